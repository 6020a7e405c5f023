package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"holdline/contrib"
)

// leastSystemd is the oldest systemd that the units are written for.
const leastSystemd = 247

func systemctl(args ...string) []string { return append([]string{"systemctl", "--user"}, args...) }

// systemd plans the units of the user manager, enabled and started.
func (p *plan) systemd(ctx context.Context, bin string, force bool) error {
	o := p.o
	if err := p.managed(Systemd); err != nil {
		return err
	}
	if err := Lasting(bin); err != nil {
		return err
	}
	if err := o.reachSystemd(ctx); err != nil {
		return err
	}
	at := len(p.steps)
	changed := false
	units, err := contrib.SystemdUnits(bin)
	if err != nil {
		return err
	}
	for _, unit := range units {
		did, err := p.put(Unit, filepath.Join(o.UnitDir, unit.Name), 0o644, []byte(unit.Text), force)
		if err != nil {
			return err
		}
		changed = changed || did
	}
	if changed {
		// What takes the files away again is followed by a reload, too.
		reload := step{do: nothing, undo: o.reload}
		p.steps = slices.Insert(p.steps, at, reload)
		p.command(systemctl("daemon-reload"), nil)
	}
	if o.ask(ctx, "is-enabled") == "enabled" && o.ask(ctx, "is-active") == "active" {
		o.say("unchanged: %s is enabled and listens", contrib.SystemdSocket)
		return nil
	}
	for _, target := range []string{"sockets.target.wants", "default.target.wants"} {
		p.owe(filepath.Join(o.UnitDir, target))
	}
	p.command(systemctl("enable", "--now", contrib.SystemdSocket), systemctl("disable", "--now", contrib.SystemdSocket, contrib.SystemdService))
	o.misplaced(ctx)
	return nil
}

// ask is the one word that systemctl says of the socket, by way of verb.
func (o *Options) ask(ctx context.Context, verb string) string {
	out, err := o.Run(ctx, "systemctl", "--user", verb, contrib.SystemdSocket)
	if err != nil { // "disabled" comes with an exit code
		return ""
	}
	return strings.TrimSpace(out)
}

func (o *Options) reload(ctx context.Context) error {
	_, err := o.Run(ctx, "systemctl", "--user", "daemon-reload")
	return err
}

// reachSystemd makes sure that a user manager answers that knows what the units
// say.
func (o *Options) reachSystemd(ctx context.Context) error {
	out, err := o.Run(ctx, "systemctl", "--user", "show", "--property=Version", "--value")
	if errors.Is(err, exec.ErrNotFound) {
		return &hintedError{errors.New("this machine has no systemctl"), "leave out --systemd: the first agent starts the daemon"}
	}
	if err != nil {
		return &hintedError{
			fmt.Errorf("no user manager of systemd can be reached: %w", err),
			fmt.Sprintf("in a login session of your own it can; over su or sudo set XDG_RUNTIME_DIR=/run/user/%d, and `loginctl enable-linger` starts it without a login; or leave out --systemd: the first agent starts the daemon", o.UID),
		}
	}
	number := strings.TrimFunc(out, func(r rune) bool { return r < '0' || r > '9' })
	if i := strings.IndexFunc(number, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		number = number[:i]
	}
	if n, err := strconv.Atoi(number); err == nil && n < leastSystemd {
		return &hintedError{fmt.Errorf("systemd %d is too old, the units want %d", n, leastSystemd), "leave out --systemd: the first agent starts the daemon"}
	}
	return nil
}

// misplaced names variables that are set here and not in the user manager: its
// daemon would look for its files elsewhere.
func (o *Options) misplaced(ctx context.Context) {
	out, err := o.Run(ctx, "systemctl", "--user", "show-environment")
	if err != nil {
		return
	}
	have := strings.Split(out, "\n")
	for _, name := range slices.Sorted(maps.Keys(o.Variables)) {
		if !slices.Contains(have, name+"="+o.Variables[name]) {
			o.say("note: %s is set here and not for systemd, whose daemon will not see it; write it into ~/.config/environment.d/holdline.conf", name)
		}
	}
}

// leaveSystemd disables and stops the units. Without a user manager it removes
// what enabling has made, and systemd learns it at its next start.
func (o *Options) leaveSystemd(ctx context.Context) error {
	argv := systemctl("disable", "--now", contrib.SystemdSocket, contrib.SystemdService)
	if o.DryRun {
		o.say("would run %s", words(argv))
		return nil
	}
	if err := o.reachSystemd(ctx); err != nil {
		o.say("note: %v; what it may still run of holdline ends with it", err)
		return o.unlinkUnits()
	}
	if _, err := o.Run(ctx, argv[0], argv[1:]...); err != nil {
		o.say("note: %s: %v", words(argv), err)
		return o.leaveByHand(ctx)
	}
	o.say("run %s", words(argv))
	return nil
}

// leaveByHand does what `disable --now` does not for units whose files somebody
// has removed: systemd may still run them. It fails if one runs on.
func (o *Options) leaveByHand(ctx context.Context) error {
	for _, unit := range []string{contrib.SystemdSocket, contrib.SystemdService} { // the socket first, which starts the other
		argv := systemctl("stop", unit)
		_, err := o.Run(ctx, argv[0], argv[1:]...) // fails for one that systemd has forgotten, too
		out, aerr := o.Run(ctx, "systemctl", "--user", "show", "--property=ActiveState", "--value", unit)
		if state := strings.TrimSpace(out); aerr != nil || state != "inactive" && state != "failed" {
			return errors.Join(fmt.Errorf("%s is not stopped, it is %q", unit, state), err, aerr)
		}
		if err == nil {
			o.say("run %s", words(argv))
		}
	}
	return o.unlinkUnits()
}

// unlinkUnits removes the links by which the units are enabled.
func (o *Options) unlinkUnits() error {
	links, _ := filepath.Glob(filepath.Join(o.UnitDir, "*.wants", "holdline.*"))
	for _, link := range links {
		if filepath.Base(link) != contrib.SystemdSocket && filepath.Base(link) != contrib.SystemdService {
			continue
		}
		if err := gone(os.Remove(link)); err != nil {
			return err
		}
		o.say("remove %s", link)
	}
	return nil
}

// forgetSystemd has the user manager see that the units are gone.
func (o *Options) forgetSystemd(ctx context.Context) {
	if o.DryRun || o.reload(ctx) != nil {
		return
	}
	o.say("run %s", words(systemctl("daemon-reload")))
	// A unit that had failed would be listed for ever.
	_, _ = o.Run(ctx, "systemctl", "--user", "reset-failed", contrib.SystemdService, contrib.SystemdSocket)
}
