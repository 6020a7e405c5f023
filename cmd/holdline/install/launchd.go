package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"holdline/contrib"
)

// agentPath is where the LaunchAgent lies.
func (o *Options) agentPath() string {
	return filepath.Join(o.Home, "Library", "LaunchAgents", contrib.LaunchAgentFile)
}

// domain is launchd's name for the user's graphical session.
func (o *Options) domain() string { return fmt.Sprintf("gui/%d", o.UID) }

// service is launchd's name for the daemon in it.
func (o *Options) service() string { return o.domain() + "/" + contrib.LaunchLabel }

// loaded tells whether launchd knows the daemon.
func (o *Options) loaded(ctx context.Context) bool {
	_, err := o.Run(ctx, "launchctl", "print", o.service())
	return err == nil
}

// launchd plans the LaunchAgent, loaded.
func (p *plan) launchd(ctx context.Context, bin string, force bool) error {
	o := p.o
	if err := p.managed(Launchd); err != nil {
		return err
	}
	if o.OS != "darwin" {
		return &hintedError{fmt.Errorf("launchd is macOS's, and this is %s", o.OS), "holdline install --systemd, or no manager at all: the first agent starts the daemon"}
	}
	if err := Lasting(bin); err != nil {
		return err
	}
	if _, err := o.Run(ctx, "launchctl", "print", o.domain()); err != nil {
		return &hintedError{
			fmt.Errorf("launchd has no session %s for you: %w", o.domain(), err),
			"log in at the screen once; or leave out --launchd: the first agent starts the daemon",
		}
	}
	p.owe(filepath.Dir(filepath.Join(o.Home, contrib.LaunchLog)))
	loaded := o.loaded(ctx)
	if loaded { // what brings the old file back has it loaded again
		p.add(step{do: nothing, undo: func(ctx context.Context) error {
			if o.loaded(ctx) {
				return nil
			}
			return o.bootstrap(ctx)
		}})
	}
	changed, err := p.put(Unit, o.agentPath(), 0o644, contrib.LaunchAgent(bin, o.Home), force)
	if err != nil {
		return err
	}
	if loaded && !changed {
		p.steps = p.steps[:len(p.steps)-1]
		o.say("unchanged: launchd has %s", contrib.LaunchLabel)
		return nil
	}
	p.add(step{do: func(context.Context) error {
		return os.MkdirAll(filepath.Dir(filepath.Join(o.Home, contrib.LaunchLog)), 0o700)
	}})
	if loaded {
		p.command([]string{"launchctl", "bootout", o.service()}, nil)
	}
	p.add(step{
		what: "run " + words([]string{"launchctl", "bootstrap", o.domain(), o.agentPath()}),
		do:   o.bootstrap,
		undo: o.bootout,
	})
	return nil
}

func (o *Options) bootstrap(ctx context.Context) error {
	_, err := o.Run(ctx, "launchctl", "bootstrap", o.domain(), o.agentPath())
	return err
}

// bootout has launchd forget the daemon, if it knows it.
func (o *Options) bootout(ctx context.Context) error {
	if !o.loaded(ctx) {
		return nil
	}
	_, err := o.Run(ctx, "launchctl", "bootout", o.service())
	return err
}

// leaveLaunchd has launchd forget the daemon.
func (o *Options) leaveLaunchd(ctx context.Context) error {
	argv := []string{"launchctl", "bootout", o.service()}
	if o.DryRun {
		o.say("would run %s", words(argv))
		return nil
	}
	if !o.loaded(ctx) {
		o.say("launchd does not have %s", contrib.LaunchLabel)
		return nil
	}
	if err := o.bootout(ctx); err != nil {
		return fmt.Errorf("%s: %w", words(argv), err)
	}
	o.say("run %s", words(argv))
	return nil
}

// launchLog is where launchd puts the daemon's log, "" on other systems.
func (o *Options) launchLog() string {
	if o.OS != "darwin" {
		return ""
	}
	return filepath.Join(o.Home, contrib.LaunchLog)
}
