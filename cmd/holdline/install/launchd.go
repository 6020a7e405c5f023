package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"holdline/contrib"
)

// agentPath returns where the LaunchAgent is.
func (o *Options) agentPath() string {
	return filepath.Join(o.Home, "Library", "LaunchAgents", contrib.LaunchAgentFile)
}

// launchDomain returns launchd's name for the user's graphical session.
func (o *Options) launchDomain() string { return fmt.Sprintf("gui/%d", o.UID) }

// launchctl returns a command line about the daemon.
func (o *Options) launchctl(verb string) []string {
	if verb == "bootstrap" {
		return []string{"launchctl", verb, o.launchDomain(), o.agentPath()}
	}
	return []string{"launchctl", verb, o.launchDomain() + "/" + contrib.LaunchLabel}
}

// runLaunchctl runs a command about the daemon.
func (o *Options) runLaunchctl(ctx context.Context, verb string) error {
	argv := o.launchctl(verb)
	_, err := o.Run(ctx, argv[0], argv[1:]...)
	return err
}

// hasLoaded reports whether launchd has loaded the daemon.
func (o *Options) hasLoaded(ctx context.Context) bool { return o.runLaunchctl(ctx, "print") == nil }

// planLaunchd plans the LaunchAgent, loaded.
func (p *plan) planLaunchd(ctx context.Context, bin string, force bool) error {
	o := p.o
	if err := p.setManager(Launchd); err != nil {
		return err
	}
	if o.OS != "darwin" {
		return &hintedError{
			fmt.Errorf("launchd is macOS's, and this is %s", o.OS),
			"holdline install --systemd, or no manager at all: the first agent starts the daemon",
		}
	}
	if err := Lasting(bin); err != nil {
		return err
	}
	if _, err := o.Run(ctx, "launchctl", "print", o.launchDomain()); err != nil {
		return &hintedError{
			fmt.Errorf("launchd has no session %s for you: %w", o.launchDomain(), err),
			"log in at the screen once; or leave out --launchd: the first agent starts the daemon",
		}
	}
	logs := filepath.Dir(filepath.Join(o.Home, contrib.LaunchLog))
	p.recordMissing(logs)
	loaded := o.hasLoaded(ctx)
	if loaded { // the undo of the file is followed by this one
		p.steps = append(p.steps, step{do: doNothing, undo: func(ctx context.Context) error {
			if o.hasLoaded(ctx) {
				return nil
			}
			return o.runLaunchctl(ctx, "bootstrap")
		}})
	}
	want := content{exists: true, data: contrib.LaunchAgent(bin, o.Home), mode: 0o644}
	changed, err := p.addFile(Unit, o.agentPath(), want, force)
	if err != nil {
		return err
	}
	if loaded && !changed {
		p.steps = p.steps[:len(p.steps)-1]
		o.report("unchanged: launchd has %s", contrib.LaunchLabel)
		return nil
	}
	p.steps = append(p.steps, step{do: func(context.Context) error { return os.MkdirAll(logs, 0o700) }})
	if loaded {
		p.addCommand(o.launchctl("bootout"), nil)
	}
	p.addCommand(o.launchctl("bootstrap"), nil)
	p.steps[len(p.steps)-1].undo = o.unload
	return nil
}

// unload has launchd forget the daemon, if it has loaded it.
func (o *Options) unload(ctx context.Context) error {
	if !o.hasLoaded(ctx) {
		return nil
	}
	return o.runLaunchctl(ctx, "bootout")
}

// leaveLaunchd has launchd forget the daemon, and reports that.
func (o *Options) leaveLaunchd(ctx context.Context) error {
	command := commandLine(o.launchctl("bootout"))
	if o.DryRun {
		o.report("would run %s", command)
		return nil
	}
	if !o.hasLoaded(ctx) {
		o.report("launchd does not have %s", contrib.LaunchLabel)
		return nil
	}
	if err := o.unload(ctx); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	o.report("run %s", command)
	return nil
}

// launchLog returns where launchd puts the daemon's log; "" on other systems.
func (o *Options) launchLog() string {
	if o.OS != "darwin" {
		return ""
	}
	return filepath.Join(o.Home, contrib.LaunchLog)
}
