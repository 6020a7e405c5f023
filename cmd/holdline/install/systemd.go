package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"holdline/contrib"
)

// leastSystemd is the oldest systemd that the units are written for.
const leastSystemd = 247

// withoutSystemd is the hint where systemd cannot be used.
const withoutSystemd = "leave out --systemd: the first agent starts the daemon"

// systemctl returns a command line to the user's systemd.
func systemctl(args ...string) []string { return append([]string{"systemctl", "--user"}, args...) }

// runSystemctl runs a command of the user's systemd and returns its output.
func (o *Options) runSystemctl(ctx context.Context, args ...string) (string, error) {
	argv := systemctl(args...)
	return o.Run(ctx, argv[0], argv[1:]...)
}

// planSystemd plans the units of the user's systemd, enabled and started.
func (p *plan) planSystemd(ctx context.Context, bin string, force bool) error {
	o := p.o
	if err := p.setManager(Systemd); err != nil {
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
		want := content{exists: true, data: []byte(unit.Text), mode: 0o644}
		did, err := p.addFile(Unit, filepath.Join(o.UnitDir, unit.Name), want, force)
		if err != nil {
			return err
		}
		changed = changed || did
	}
	if changed {
		// The undo of the files is followed by a reload, too.
		p.steps = slices.Insert(p.steps, at, step{do: doNothing, undo: o.reload})
		p.addCommand(systemctl("daemon-reload"), nil)
	}
	if o.socketState(ctx, "is-enabled") == "enabled" && o.socketState(ctx, "is-active") == "active" {
		o.report("unchanged: %s is enabled and listens", contrib.SystemdSocket)
		return nil
	}
	for _, target := range []string{"sockets.target.wants", "default.target.wants"} {
		p.recordMissing(filepath.Join(o.UnitDir, target))
	}
	p.addCommand(systemctl("enable", "--now", contrib.SystemdSocket),
		systemctl("disable", "--now", contrib.SystemdSocket, contrib.SystemdService))
	o.noteVariables(ctx)
	return nil
}

// socketState returns the one word that systemctl prints about the socket for a verb.
func (o *Options) socketState(ctx context.Context, verb string) string {
	out, err := o.runSystemctl(ctx, verb, contrib.SystemdSocket)
	if err != nil { // "disabled" comes with an exit code
		return ""
	}
	return strings.TrimSpace(out)
}

// reload has systemd read the units anew.
func (o *Options) reload(ctx context.Context) error {
	_, err := o.runSystemctl(ctx, "daemon-reload")
	return err
}

// reachSystemd returns an error unless the user's systemd answers and is new enough for
// the units.
func (o *Options) reachSystemd(ctx context.Context) error {
	out, err := o.runSystemctl(ctx, "show", "--property=Version", "--value")
	if errors.Is(err, exec.ErrNotFound) {
		return &hintedError{errors.New("this machine has no systemctl"), withoutSystemd}
	}
	if err != nil {
		return &hintedError{
			fmt.Errorf("no user manager of systemd can be reached: %w", err),
			fmt.Sprintf("in a login session of your own it can; over su or sudo set XDG_RUNTIME_DIR=/run/user/%d, "+
				"and `loginctl enable-linger` starts it without a login; or leave out --systemd: "+
				"the first agent starts the daemon", o.UID),
		}
	}
	numbers := strings.FieldsFunc(out, func(r rune) bool { return r < '0' || r > '9' }) // "252 (252.22-1)"
	if len(numbers) == 0 {
		return nil
	}
	if n, err := strconv.Atoi(numbers[0]); err == nil && n < leastSystemd {
		return &hintedError{fmt.Errorf("systemd %d is too old, the units want %d", n, leastSystemd), withoutSystemd}
	}
	return nil
}

// noteVariables reports variables that are set here and not in the user's systemd, whose
// daemon would look for its files elsewhere.
func (o *Options) noteVariables(ctx context.Context) {
	out, err := o.runSystemctl(ctx, "show-environment")
	if err != nil {
		return
	}
	have := strings.Split(out, "\n")
	for _, name := range slices.Sorted(maps.Keys(o.Variables)) {
		if !slices.Contains(have, name+"="+o.Variables[name]) {
			o.report("note: %s is set here and not for systemd, whose daemon will not see it; "+
				"write it into ~/.config/environment.d/holdline.conf", name)
		}
	}
}

// leaveSystemd disables and stops the units. If the user's systemd cannot be reached, it
// removes the links by which they are enabled; systemd will see that at its next start.
func (o *Options) leaveSystemd(ctx context.Context) error {
	argv := systemctl("disable", "--now", contrib.SystemdSocket, contrib.SystemdService)
	if o.DryRun {
		o.report("would run %s", commandLine(argv))
		return nil
	}
	if err := o.reachSystemd(ctx); err != nil {
		o.report("note: %v; what it may still run of holdline ends with it", err)
		return o.unlinkUnits()
	}
	if _, err := o.Run(ctx, argv[0], argv[1:]...); err != nil {
		o.report("note: %s: %v", commandLine(argv), err)
		return o.stopUnits(ctx)
	}
	o.report("run %s", commandLine(argv))
	return nil
}

// stopUnits stops units whose files were removed, which `disable --now` does not do. It
// returns an error if one still runs.
func (o *Options) stopUnits(ctx context.Context) error {
	for _, unit := range []string{contrib.SystemdSocket, contrib.SystemdService} { // the socket starts the service
		argv := systemctl("stop", unit)
		_, err := o.Run(ctx, argv[0], argv[1:]...) // it fails for one that systemd has forgotten, too
		out, aerr := o.runSystemctl(ctx, "show", "--property=ActiveState", "--value", unit)
		if state := strings.TrimSpace(out); aerr != nil || state != "inactive" && state != "failed" {
			return errors.Join(fmt.Errorf("%s is not stopped, it is %q", unit, state), err, aerr)
		}
		if err == nil {
			o.report("run %s", commandLine(argv))
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
		if err := removeFile(link); err != nil {
			return err
		}
		o.report("remove %s", link)
	}
	return nil
}

// forgetSystemd has the user's systemd see that the units are gone.
func (o *Options) forgetSystemd(ctx context.Context) {
	if o.DryRun || o.reload(ctx) != nil {
		return
	}
	o.report("run %s", commandLine(systemctl("daemon-reload")))
	// A unit that had failed would be listed for ever.
	_, _ = o.runSystemctl(ctx, "reset-failed", contrib.SystemdService, contrib.SystemdSocket)
}
