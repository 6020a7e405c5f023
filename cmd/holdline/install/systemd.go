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

	"holdline/cmd/holdline/cmdenv"
	"holdline/contrib"
)

// leastSystemd is the oldest systemd that the units are written for.
const leastSystemd = 247

// withoutSystemd is the hint where systemd cannot be used.
const withoutSystemd = "leave out --systemd: the first agent starts the daemon"

// systemd is the user's systemd.
type systemd struct{ *Options }

// systemctl returns a command line to the user's systemd.
func systemctl(args ...string) []string { return append([]string{"systemctl", "--user"}, args...) }

// askSystemctl runs a command of the user's systemd and returns its output without white space at
// its ends.
func (s systemd) askSystemctl(ctx context.Context, args ...string) (string, error) {
	argv := systemctl(args...)
	out, err := s.Run(ctx, argv[0], argv[1:]...)
	return strings.TrimSpace(out), err
}

// reach returns an error unless the user's systemd answers and is new enough for the
// units.
func (s systemd) reach(ctx context.Context) error {
	out, err := s.askSystemctl(ctx, "show", "--property=Version", "--value")
	if errors.Is(err, exec.ErrNotFound) {
		return cmdenv.WithHint(errors.New("this machine has no systemctl"), withoutSystemd)
	}
	if err != nil {
		return cmdenv.WithHint(fmt.Errorf("no user manager of systemd can be reached: %w", err),
			fmt.Sprintf("in a login session of your own it can; over su or sudo set XDG_RUNTIME_DIR=/run/user/%d, "+
				"and `loginctl enable-linger` starts it without a login; or leave out --systemd: "+
				"the first agent starts the daemon", s.UID))
	}
	numbers := strings.FieldsFunc(out, func(r rune) bool { return r < '0' || r > '9' }) // "252 (252.22-1)"
	if len(numbers) == 0 {
		return nil
	}
	if n, err := strconv.Atoi(numbers[0]); err == nil && n < leastSystemd {
		return cmdenv.WithHint(fmt.Errorf("systemd %d is too old, the units want %d", n, leastSystemd), withoutSystemd)
	}
	return nil
}

// files returns the units.
func (s systemd) files(bin string) ([]contrib.Unit, error) {
	units, err := contrib.SystemdUnits(bin)
	for i := range units {
		units[i].Name = filepath.Join(s.UnitDir, units[i].Name)
	}
	return units, err
}

// isStarted reports whether the socket is enabled, and systemd listens.
func (s systemd) isStarted(ctx context.Context) bool {
	for verb, want := range map[string]string{"is-enabled": "enabled", "is-active": "active"} {
		out, err := s.askSystemctl(ctx, verb, contrib.SystemdSocket) // "disabled" is an error
		if err != nil || out != want {
			return false
		}
	}
	return true
}

// reread makes systemd read the units again. It does so whether systemd started the
// daemon before or not, since systemd may have read files that are gone now.
func (s systemd) reread(ctx context.Context, _ bool) error {
	return s.runProgram(ctx, systemctl("daemon-reload"))
}

// addStart adds the steps by which the socket is enabled and listens.
func (s systemd) addStart(ctx context.Context, p *plan, changed, started bool) {
	if changed {
		p.addCommand(systemctl("daemon-reload"), nil)
	}
	if started {
		s.report("unchanged: %s is enabled and listens", contrib.SystemdSocket)
		return
	}
	for _, target := range []string{"sockets.target.wants", "default.target.wants"} {
		p.recordMissing(filepath.Join(s.UnitDir, target))
	}
	p.addCommand(systemctl("enable", "--now", contrib.SystemdSocket),
		func(ctx context.Context) error { return s.runProgram(ctx, disable) })
	s.noteVariables(ctx)
}

// disable is the command line that disables and stops the units.
var disable = systemctl("disable", "--now", contrib.SystemdSocket, contrib.SystemdService)

// noteVariables reports variables that are set here and not in the user's systemd,
// whose daemon would look for its files elsewhere. If systemd does not show its
// environment, it reports nothing.
func (s systemd) noteVariables(ctx context.Context) {
	out, err := s.askSystemctl(ctx, "show-environment")
	if err != nil {
		return
	}
	have := strings.Split(out, "\n")
	for _, name := range slices.Sorted(maps.Keys(s.Variables)) {
		if !slices.Contains(have, name+"="+s.Variables[name]) {
			s.report("note: %s is set here and not for systemd, whose daemon will not see it; "+
				"write it into ~/.config/environment.d/holdline.conf", name)
		}
	}
}

// removeStart disables and stops the units. If the user's systemd cannot be reached, it
// removes the links by which they are enabled; systemd will see that at its next start.
func (s systemd) removeStart(ctx context.Context) error {
	if !s.DryRun {
		if err := s.reach(ctx); err != nil {
			s.report("note: %v; what it may still run of holdline ends with it", err)
			return s.unlinkUnits()
		}
	}
	err := s.change("run "+commandLine(disable), func() error { return s.runProgram(ctx, disable) })
	if err == nil {
		return nil
	}
	s.report("note: %v", err)
	return s.stopUnits(ctx)
}

// stopUnits stops units whose files were removed, which `disable --now` does not do. It
// returns an error if one still runs.
func (s systemd) stopUnits(ctx context.Context) error {
	// The socket first, since it starts the service.
	for _, unit := range []string{contrib.SystemdSocket, contrib.SystemdService} {
		argv := systemctl("stop", unit)
		// It fails for a unit that systemd has forgotten, too.
		err := s.change("run "+commandLine(argv), func() error { return s.runProgram(ctx, argv) })
		state, aerr := s.askSystemctl(ctx, "show", "--property=ActiveState", "--value", unit)
		if aerr != nil || state != "inactive" && state != "failed" {
			return errors.Join(fmt.Errorf("%s is not stopped, it is %q", unit, state), err, aerr)
		}
	}
	return s.unlinkUnits()
}

// unlinkUnits removes the links by which the units are enabled, wherever they are
// wanted from. `systemctl disable` cannot do it if systemd does not answer or a unit's
// file is gone.
func (s systemd) unlinkUnits() error {
	for _, unit := range []string{contrib.SystemdSocket, contrib.SystemdService} {
		links, _ := filepath.Glob(filepath.Join(s.UnitDir, "*.wants", unit))
		for _, link := range links {
			if err := s.change("remove "+link, func() error { return removeFile(link) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget makes systemd read that the units are gone. It also resets their state, since
// systemd would list a unit that had failed for ever. Errors are ignored: the files
// are removed already.
func (s systemd) forget(ctx context.Context) {
	argv := systemctl("daemon-reload")
	if s.DryRun || s.change("run "+commandLine(argv), func() error { return s.runProgram(ctx, argv) }) != nil {
		return
	}
	_ = s.runProgram(ctx, systemctl("reset-failed", contrib.SystemdService, contrib.SystemdSocket))
}
