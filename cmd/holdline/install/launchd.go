package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"holdline/cmd/holdline/cmdenv"
	"holdline/contrib"
)

// launchd is the launchd of macOS, which has a LaunchAgent of the user's.
type launchd struct{ *Options }

// agent returns where the LaunchAgent is.
func (l launchd) agent() string {
	return filepath.Join(l.Home, "Library", "LaunchAgents", contrib.LaunchAgentFile)
}

// domain returns launchd's name for the user's graphical session.
func (l launchd) domain() string { return fmt.Sprintf("gui/%d", l.UID) }

// launchctl returns a command line about the daemon.
func (l launchd) launchctl(verb string) []string {
	if verb == "bootstrap" {
		return []string{"launchctl", verb, l.domain(), l.agent()}
	}
	return []string{"launchctl", verb, l.domain() + "/" + contrib.LaunchLabel}
}

// reach returns an error unless this is macOS, and the user has a session.
func (l launchd) reach(ctx context.Context) error {
	if l.OS != "darwin" {
		return cmdenv.WithHint(fmt.Errorf("launchd is macOS's, and this is %s", l.OS),
			"holdline install --systemd, or no manager at all: the first agent starts the daemon")
	}
	if err := l.runProgram(ctx, []string{"launchctl", "print", l.domain()}); err != nil {
		return cmdenv.WithHint(fmt.Errorf("launchd has no session %s for you: %w", l.domain(), err),
			"log in at the screen once; or leave out --launchd: the first agent starts the daemon")
	}
	return nil
}

// files returns the LaunchAgent.
func (l launchd) files(bin string) ([]contrib.Unit, error) {
	return []contrib.Unit{{Name: l.agent(), Text: string(contrib.LaunchAgent(bin, l.Home))}}, nil
}

// isStarted reports whether launchd has loaded the daemon.
func (l launchd) isStarted(ctx context.Context) bool {
	return l.runProgram(ctx, l.launchctl("print")) == nil
}

// reread loads the daemon again if it was loaded.
func (l launchd) reread(ctx context.Context, started bool) error {
	if !started || l.isStarted(ctx) {
		return nil
	}
	return l.runProgram(ctx, l.launchctl("bootstrap"))
}

// addStart adds the steps by which launchd loads the daemon.
func (l launchd) addStart(_ context.Context, p *plan, changed, started bool) {
	logs := filepath.Dir(l.launchLog())
	p.recordMissing(logs)
	if started && !changed {
		l.report("unchanged: launchd has %s", contrib.LaunchLabel)
		return
	}
	if started {
		p.addCommand(l.launchctl("bootout"), nil)
	}
	argv := l.launchctl("bootstrap")
	p.steps = append(p.steps, step{
		what: "run " + commandLine(argv), undo: l.unload,
		do: func(ctx context.Context) error {
			if err := os.MkdirAll(logs, 0o700); err != nil {
				return err
			}
			return l.runProgram(ctx, argv)
		},
	})
}

// unload makes launchd forget the daemon, if it has loaded it.
func (l launchd) unload(ctx context.Context) error {
	if !l.isStarted(ctx) {
		return nil
	}
	return l.runProgram(ctx, l.launchctl("bootout"))
}

// removeStart makes launchd forget the daemon, and reports it. It is no error that launchd
// has not loaded it.
func (l launchd) removeStart(ctx context.Context) error {
	if !l.DryRun && !l.isStarted(ctx) {
		l.report("launchd does not have %s", contrib.LaunchLabel)
		return nil
	}
	argv := l.launchctl("bootout")
	return l.change("run "+commandLine(argv), func() error { return l.runProgram(ctx, argv) })
}

// forget does nothing: launchd has forgotten the daemon already.
func (launchd) forget(context.Context) {}

// launchLog returns where launchd puts the daemon's log; "" on other systems.
func (o *Options) launchLog() string {
	if o.OS != "darwin" {
		return ""
	}
	return filepath.Join(o.Home, contrib.LaunchLog)
}
