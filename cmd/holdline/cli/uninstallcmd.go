package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/daemoncmd"
	"holdline/cmd/holdline/importer"
	"holdline/cmd/holdline/install"
	"holdline/cmd/holdline/planview"
	"holdline/cmd/holdline/setupcmd"
	"holdline/daemon/plural"
	"holdline/protocol/control"
)

// uninstallOptions are the flags of uninstall.
type uninstallOptions struct {
	purge, dryRun bool
	yes           bool // do not ask
	keepClients   bool // leave the clients' entries
}

// newUninstallCommand returns the command uninstall. It gives the clients' files their own servers back first,
// while holdline is still there in case that fails. Package install knows from its list what to remove, so the
// command works without the flags of the installation.
func newUninstallCommand(proc *cmdenv.Process) *cobra.Command {
	var o uninstallOptions
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Take setup back, stop the daemon, and remove what install made",
		Long: `Take back what setup did, so that your agents start their own servers again. Then stop
the daemon with everything that it runs, and remove what install made: units, the
programs, the captured PATH, and the directories that it created if they are empty. The
command leaves and names files that were changed since.

It names the agents that run, and asks first. Without a terminal it wants --yes, or
--keep-clients, which leaves the clients' entries: they name a program that will be
gone. It asks about entries that you edited after setup wrote them; --yes leaves these.
If an entry still starts holdline, or a client's file that names it cannot be read, the
program stays: the command names these last, and fails.

An entry that you added by hand is removed, too, and the output names the file that
keeps its text. An entry that may start another holdline (over ssh, in a container, with
other files) stays.

Configuration, logs and kept consults stay, except with --purge.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runUninstall(cmd, proc, o) },
	}
	f := cmd.Flags()
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask; leave entries that were edited")
	f.BoolVar(&o.keepClients, "keep-clients", false, "leave the clients' entries, which will not find holdline")
	f.BoolVar(&o.purge, "purge", false, "remove the directories of configuration, state and runtime, too")
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would be done, and do nothing")
	cmd.MarkFlagsMutuallyExclusive("yes", "keep-clients")
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
	return cmd
}

// runUninstall gives the clients their entries back, and removes what install made.
func runUninstall(cmd *cobra.Command, proc *cmdenv.Process, o uninstallOptions) error {
	in, err := installer(cmd, proc)
	if err != nil {
		return err
	}
	look, err := setupcmd.EveryClient(proc)
	if err != nil {
		return err
	}
	in.DryRun = o.dryRun
	in.Stop = func(context.Context) error {
		return daemoncmd.Stop(cmd, proc, control.StopParams{All: true, Uninstall: true})
	}
	u := &uninstall{cmd: cmd, proc: proc, o: o, look: look}
	if err := u.clients(in); err != nil {
		return err
	}
	return in.Uninstall(cmd.Context(), o.purge)
}

// uninstall is the part of one run of the command that is about clients.
type uninstall struct {
	cmd  *cobra.Command
	proc *cmdenv.Process
	o    uninstallOptions
	look importer.Options
}

// clients takes holdline's entries out of the clients' files, after a question. The error says that some still
// start holdline, or may: then nothing is removed.
func (u *uninstall) clients(in *install.Options) error {
	held, unread, err := importer.FindHeld(u.look)
	more, left, perr := importer.Pending(u.look.State)
	held = slices.DeleteFunc(held, func(h importer.Held) bool {
		switch {
		case h.Common:
			console.Warn(u.cmd, "left %s: other people have this file, too", &h)
		case isElsewhere(&h):
			console.Warn(u.cmd, "left %s: it may start another holdline than this one; if it starts this one, remove it",
				&h)
		}
		return isNotOurs(h)
	})
	if err = errors.Join(err, perr); err != nil { // what a client's file was may be written there alone
		if u.o.purge || len(held)+len(unread) > 0 && !u.o.keepClients {
			return cmdenv.WithHint(err,
				"holdline import --undo, by the holdline that wrote it; or move it away, then uninstall")
		}
		console.Warn(u.cmd, "%v; clients may still start holdline", err)
		return nil
	}
	switch {
	case len(held)+len(unread) == 0 && !more:
		planview.WarnLeft(u.cmd, left)
		return nil
	case u.o.keepClients && u.o.purge && more:
		return cmdenv.WithHint(fmt.Errorf("clients still start holdline, and what their files were before the import is in %s",
			u.look.State), "holdline uninstall --purge without --keep-clients takes their entries back first")
	case u.o.keepClients:
		if len(held) > 0 {
			console.Warn(u.cmd, "these entries stay, and will not find holdline: %s", planview.Names(held))
		}
		planview.WarnLeft(u.cmd, unread)
		return nil
	case u.o.dryRun:
		if len(held) > 0 {
			console.Line(in.Out, 4, "would take back what setup did: %s", planview.Names(held))
		}
		if len(unread) > 0 {
			return u.stays(in, unread, nil)
		}
		return nil
	case !u.o.yes && len(held) > 0 && !console.IsTerminal(u.proc.Stdin):
		return cmdenv.WithHint(
			fmt.Errorf("%w: %s of your agents start%s holdline, and uninstall cannot ask here what becomes of them",
				cmdenv.ErrUsage, plural.Count(len(held), "entry"), map[bool]string{true: "s"}[len(held) == 1]),
			"holdline uninstall --yes gives the agents their own servers back; --keep-clients leaves the entries, "+
				"which will not find holdline")
	}
	running := u.running()
	if !u.o.yes && len(held) > 0 {
		errs := u.cmd.ErrOrStderr()
		console.Line(errs, 4, "These entries of your agents start holdline, and become what they were before: %s", planview.Names(held))
		if running != "" {
			console.Line(errs, 4, "These agents run, and lose their servers until you restart them: %s", running)
		}
		if !console.Confirm(u.cmd, u.proc.Stdin, "Take them back, and remove holdline? [Y/n] ", true) {
			console.Line(errs, 4, "Nothing was changed.")
			return cmdenv.ExitWith(cmdenv.ExitFailure)
		}
	}
	if err := u.takeBack(in); err != nil {
		return err
	}
	if running != "" {
		console.Line(in.Out, 4, "restart these agents, so that they start their own servers again: %s", running)
	}
	return nil
}

// isElsewhere reports whether an entry may start another holdline, and no import wrote one at its place.
func isElsewhere(h *importer.Held) bool { return h.Elsewhere && !h.Written }

// isNotOurs reports whether an entry stays in any case.
func isNotOurs(h importer.Held) bool { return h.Common || isElsewhere(&h) }

// running names the agents that are connected; "" if there is none, or no daemon that answers.
func (u *uninstall) running() string {
	status, err := attach.Ask[control.StatusAnswer](u.cmd, u.proc, control.Status, nil)
	if err != nil {
		return ""
	}
	return daemoncmd.AgentNames(status.Sessions)
}

// takeBack reverts what setup did, and then asks about each entry that still starts holdline. If one is left
// after that, or a file that may have one cannot be read, the daemon reads its configuration again and goes on, and
// the error says so.
func (u *uninstall) takeBack(in *install.Options) error {
	done, err := importer.Undo(u.cmd.Context(), u.look)
	if err != nil {
		return err
	}
	held, _, err := importer.FindHeld(u.look)
	if err != nil {
		return err
	}
	var gone []importer.Held
	for _, h := range held {
		switch {
		case isNotOurs(h):
		case !h.Written: // the user's own entry, of no use without holdline
			gone = append(gone, h)
		case !u.o.yes && console.Confirm(u.cmd, u.proc.Stdin, fmt.Sprintf(
			"%s was edited since setup wrote it. Replace it by what it was before? [y/N] ", &h), false):
			gone = append(gone, h)
		}
	}
	if err := context.Cause(u.cmd.Context()); err != nil {
		return err
	}
	cleared, err := importer.TakeAway(u.cmd.Context(), u.look, gone, true)
	if err != nil {
		return err
	}
	done.Files = append(done.Files, cleared.Files...)
	last, err := importer.Undo(u.cmd.Context(), u.look) // servers of holdline's file that no entry starts now
	if err != nil {
		return err
	}
	slices.Sort(done.Files)
	for _, path := range slices.Compact(done.Files) {
		console.Line(in.Out, 4, "taken back: %s", path)
	}
	if cleared.Kept != "" && !u.o.purge {
		console.Line(in.Out, 4, "kept entries that setup had not written, as they were: %s", cleared.Kept)
	}
	held, unread, err := importer.FindHeld(u.look)
	if err != nil {
		return err
	}
	held = slices.DeleteFunc(held, isNotOurs)
	more, _, err := importer.Pending(u.look.State)
	if err != nil {
		return err
	}
	left := slices.Concat(last.Left, cleared.Left, unread)
	if len(held)+len(unread) == 0 && !more {
		planview.WarnLeft(u.cmd, left)
		return nil
	}
	err = attach.ReloadFile(u.cmd, u.proc, u.look.Config)
	if stays := u.stays(in, left, held); err == nil {
		err = stays
	}
	return err
}

// stays says that holdline stays installed, and names the files and entries that are left. The error makes the
// command fail.
func (u *uninstall) stays(in *install.Options, left []importer.Left, held []importer.Held) error {
	verb := "stays"
	if u.o.dryRun {
		verb = "would stay"
	}
	console.Line(in.Out, 4, "holdline %s installed, since agents may still start it. To remove it all the same: "+
		"holdline uninstall --keep-clients", verb)
	planview.WarnLeft(u.cmd, slices.DeleteFunc(left, func(l importer.Left) bool { return l.Path == u.look.Config }))
	for _, h := range held {
		if !slices.ContainsFunc(left, func(l importer.Left) bool { return l.Path == h.Path && l.Key == h.Name }) {
			console.Warn(u.cmd, "left %s", &h)
		}
	}
	return cmdenv.ExitWith(cmdenv.ExitFailure)
}
