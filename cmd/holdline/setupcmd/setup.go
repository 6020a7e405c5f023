package setupcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/clients"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/direct"
	"holdline/cmd/holdline/importer"
	"holdline/cmd/holdline/install"
	"holdline/cmd/holdline/planview"
	"holdline/daemon/command"
	"holdline/daemon/plural"
	"holdline/daemon/sandbox"
	"holdline/daemon/userenv"
	"holdline/protocol/control"
	"holdline/protocol/socket"
)

// setupOptions are the flags of setup. It has most of those of import.
type setupOptions struct {
	ImportOptions

	dryRun           bool
	noCall           bool // do not call a tool of each server to check it
	systemd, launchd bool // have that service manager start the daemon
}

// undoTimeout bounds the undo of a setup that has failed or was interrupted.
const undoTimeout = time.Minute

// Installing is what setup needs of the command install.
type Installing struct {
	// Options returns package install's view of this machine and this user.
	Options func(*cobra.Command, *cmdenv.Process) (*install.Options, error)
	// Path returns the PATH to capture for hosted servers. It may take seconds.
	Path func(context.Context, *cmdenv.Process) (string, error)
}

// NewCommand returns the command setup.
func NewCommand(proc *cmdenv.Process, by Installing) *cobra.Command {
	var o setupOptions
	cmd := console.WithJSON(&cobra.Command{
		Use:   "setup",
		Short: "Connect your agents: check their servers, move those that work",
		Long: `Connect the agents of this machine to holdline, in one command:

 1. Find the configurations of the MCP clients, and their servers.
 2. Start each server once, with the daemon's environment, and end it.
    Commands of a project's own files (--project) are shown first, and started
    only if you agree; --dry-run does not start them.
 3. Show what would change, and ask.
 4. Capture the PATH for hosted servers, as install does, and move the servers
    that work into holdline's configuration, as import does.
 5. Start every new entry as its client would, in the version of MCP that the
    client speaks, and compare its tools with those of the server before. If a
    server has a tool that only reads and needs no arguments, the plan names one
    such tool, and setup calls it once. All calls together take 10 s at most. An
    error that the tool itself reports is no fault. --no-call calls no tool.

If step 4 or 5 fails, or if you interrupt it, everything is undone: the files
have their old bytes again. A server stays with its client if it does not start,
or if it needs a login; one that does not work in step 5 goes back there, and the
others stay moved. --skip leaves more of them there.

If you have stopped the daemon with holdline stop, agents start it again from then on.

--undo takes back what setup did, later, as import --undo does. The PATH stays
captured.

With --json, an object: that of import --json, path (captured for hosted servers,
if it is another one), checked (clients, paths, entry, tools, called, error), failed
(the same, of servers that went back to their clients), undone (setup has failed, and
nothing is changed). Servers have call (the tool that is called), too.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.calls = !o.noCall
			return runSetup(cmd, proc, &o, by)
		},
	})
	f := cmd.Flags()
	o.addFlags(f)
	f.BoolVar(&o.noCall, "no-call", false, "call no tool to check a server that has moved")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would be done, and change nothing")
	f.BoolVar(&o.undo, "undo", false, "take back what setup did")
	f.BoolVar(&o.systemd, "systemd", false, "have systemd's user manager start the daemon, as install does")
	f.BoolVar(&o.launchd, "launchd", false, "have launchd start the daemon, as install does (macOS)")
	cmd.MarkFlagsMutuallyExclusive("systemd", "launchd")
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
	for _, other := range []string{"yes", "dry-run", "aggregate", "from", "scope", "skip", "no-call", "systemd", "launchd"} {
		cmd.MarkFlagsMutuallyExclusive("undo", other)
	}
	return cmd
}

// manager returns the service manager that is to start the daemon.
func (o *setupOptions) manager() install.Manager {
	switch {
	case o.systemd:
		return install.Systemd
	case o.launchd:
		return install.Launchd
	}
	return install.Nobody
}

// setup is one run of the command.
type setup struct {
	cmd  *cobra.Command
	proc *cmdenv.Process
	o    *setupOptions
	by   Installing
	look importer.Options
	in   *install.Options

	path   string // on which servers are found
	ran    bool   // a daemon ran before
	answer setupAnswer

	keep func() error // puts what is known of launchers into the state directory
	kept []string     // names of variables that setup has put into the file of variables

	called   map[string]*direct.Called // what came of the call of a server's tool, by the server
	callTime *direct.CallTime
}

// setupAnswer is what setup prints with --json.
type setupAnswer struct {
	*importer.Plan

	Path    string         `json:"path,omitempty"`
	Done    *importer.Done `json:"done,omitempty"`
	Checked []checkedEntry `json:"checked,omitempty"`
	Failed  []checkedEntry `json:"failed,omitempty"` // of servers that went back to their clients
	Undone  bool           `json:"undone,omitempty"`
}

// errDeclined is returned if the user does not want what setup would do.
var errDeclined = errors.New("nothing was changed")

// runSetup connects the clients of this machine, or undoes that.
func runSetup(cmd *cobra.Command, proc *cmdenv.Process, o *setupOptions, by Installing) error {
	look, err := ClientOptions(proc, &o.ImportOptions)
	if err != nil {
		return err
	}
	if o.undo {
		return runImport(cmd, proc, &o.ImportOptions)
	}
	if !o.yes && !o.dryRun && (!console.IsTerminal(proc.Stdin) || console.IsJSON(cmd)) {
		return cmdenv.WithHint(
			fmt.Errorf("%w: setup asks before it changes anything, and cannot ask here", cmdenv.ErrUsage),
			"holdline setup --dry-run shows the changes; holdline setup --yes makes them")
	}
	if err := lastingCommand(look.Command, "setup"); err != nil && !o.dryRun {
		return err
	}
	s := &setup{
		cmd: cmd, proc: proc, o: o, by: by, look: look,
		called: map[string]*direct.Called{}, callTime: direct.NewCallTime(maxCalls),
	}
	if s.in, err = by.Options(cmd, proc); err != nil {
		return err
	}
	// What would keep the service manager from its part is said before anything is done.
	if manager := o.manager(); manager != install.Nobody {
		try := *s.in
		try.DryRun, try.Out = true, io.Discard
		if err := try.Install(cmd.Context(), install.Wish{Manager: manager}); err != nil {
			return err
		}
	}
	err = s.run()
	if cmd.Context().Err() != nil || errors.Is(err, errDeclined) {
		return cmdenv.ExitWith(cmdenv.ExitFailure) // it has been said
	}
	return err
}

// run plans the setup, shows the plan, asks, and carries it out.
func (s *setup) run() error {
	if err := s.plan(); err != nil {
		err = s.declined(err)
		if s.cmd.Context().Err() != nil {
			console.Warn(s.cmd, "interrupted; nothing was changed")
		}
		return err
	}
	out := s.cmd.OutOrStdout()
	plan := s.answer.Plan
	if !console.IsJSON(s.cmd) {
		planview.Print(out, plan, s.o.verbose)
		printCalls(out, plan)
		if s.answer.Path != "" {
			console.Line(out, 4, "The PATH for hosted servers is to be captured: %d directories.",
				len(command.SearchDirs(s.answer.Path)))
		}
	}
	nothing := plan.Empty() && s.answer.Path == ""
	switch {
	case s.o.dryRun && !nothing:
		return s.finish("Nothing was changed. To do this: holdline setup")
	case !s.o.yes && !nothing:
		if err := s.ask(); err != nil {
			return s.declined(err)
		}
	}
	if !s.o.dryRun {
		if err := attach.LiftStop(s.cmd, s.proc); err != nil {
			return err
		}
	}
	if nothing {
		return s.finish("Nothing to do: " + s.unchanged())
	}
	if err := s.carryOut(); err != nil {
		return err
	}
	return s.finish("")
}

// unchanged says why there is nothing to do.
func (s *setup) unchanged() string {
	if len(s.answer.Files) == 0 {
		return "no MCP client was found. --from NAME connects one: " + strings.Join(clients.Names(), ", ")
	}
	if s.answer.Summary.Broken > 0 {
		return "the files that can be read need no change. Correct the others, which are named above; " +
			"then: holdline setup"
	}
	return "all clients that were found are connected."
}

// plan captures the PATH, in memory, and makes the plan with it.
func (s *setup) plan() error {
	show, done := console.ProgressLine(s.cmd.ErrOrStderr())
	if show != nil {
		show(control.Progress{Message: "Asking your login shell for its PATH"})
	}
	path, err := s.by.Path(s.cmd.Context(), s.proc)
	done()
	if err != nil && s.cmd.Context().Err() == nil {
		console.Warn(s.cmd, "%v; servers are checked without it", err)
	}
	old, oerr := userenv.ReadPath(userenv.PathFile(s.look.State))
	if oerr == nil && sameDirs(old, path) {
		path = old // a shell inside of another one has them in another order
	} else {
		s.answer.Path = path
	}
	s.look.MayTry = func(_ context.Context, commands []importer.Command) (bool, error) {
		if s.o.dryRun {
			return false, nil
		}
		return askForCommands(s.cmd, s.proc, s.o.yes, commands)
	}
	s.path = path
	if err := s.offerVariables(); err != nil {
		return err
	}
	s.answer.Plan, s.keep, err = lookAtClients(s.cmd, s.proc, &s.o.ImportOptions, s.look, path, s.o.dryRun)
	return err
}

// sameDirs reports whether two PATHs have the same directories, in whatever order.
func sameDirs(a, b string) bool {
	one, other := command.SearchDirs(a), command.SearchDirs(b)
	slices.Sort(one)
	slices.Sort(other)
	return slices.Equal(one, other)
}

// ask asks the user whether to do what the plan says. An empty line is a yes if a server would move.
func (s *setup) ask() error {
	sum := s.answer.Summary
	moves := sum.Move+sum.Login > 0
	choice := "[y/N/d/?]"
	if moves {
		choice = "[Y/n/d/?]"
	}
	for {
		line, err := console.Answer(s.cmd, s.proc.Stdin, "Do this? "+choice+" ")
		switch {
		case err == nil && (line == "" && moves || line == "y" || line == "yes"):
			return nil
		case err == nil && line == "d":
			planview.Print(s.cmd.OutOrStdout(), s.answer.Plan, true)
		case err == nil && line != "" && line != "n" && line != "no":
			console.Line(s.cmd.ErrOrStderr(), 4, "y does it, n changes nothing, d shows what changes in each file. "+
				"Without a letter it is the large one.")
		default:
			console.Line(s.cmd.ErrOrStderr(), 4, "Nothing was changed.")
			return errDeclined
		}
	}
}

// askYes asks the user, and returns [errDeclined] for anything but yes. An empty line is a yes if byDefault is
// true.
func askYes(cmd *cobra.Command, proc *cmdenv.Process, question string, byDefault bool) error {
	if console.Confirm(cmd, proc.Stdin, question, byDefault) {
		return nil
	}
	console.Line(cmd.ErrOrStderr(), 4, "Nothing was changed.")
	return errDeclined
}

// carryOut captures the PATH, writes the files, and checks what it has written. A server that does not
// work then goes back to its client, and the others are written and checked without it. If all fails, or if
// the user interrupts it, everything is undone before it returns the error.
func (s *setup) carryOut() (err error) {
	_, err = attach.Ask[control.StatusAnswer](s.cmd, s.proc, control.Status, nil)
	s.ran = !errors.Is(err, socket.ErrNoDaemon)
	var undo []func(context.Context) error // the last one first
	defer func() {
		if err == nil {
			err = context.Cause(s.cmd.Context())
		}
		if err != nil {
			err = s.undo(err, undo)
		}
	}()
	if len(s.kept) > 0 {
		undo = append(undo, s.forgetVariables)
	}
	if s.answer.Path != "" {
		s.in.Out = io.Discard
		back, err := s.in.CapturePath(s.cmd.Context(), s.answer.Path)
		if err != nil {
			return err
		}
		undo = append(undo, back)
	}
	before := len(undo)
	for {
		done, err := s.answer.Write(s.cmd.Context(), time.Now())
		if done.Backup != "" {
			s.answer.Done = &done
			undo = append(undo, func(ctx context.Context) error { return s.takeBack(ctx, done) })
		}
		if err != nil || len(done.Files) == 0 {
			return err
		}
		warnUnkept(s.cmd, s.keep())
		if err := attach.ReloadFile(s.cmd, s.proc, s.look.Config); err != nil {
			return err
		}
		entries, err := s.answer.Written(done)
		if err != nil {
			return err
		}
		s.answer.Checked = s.checkEntries(entries)
		failed := failedEntries(s.answer.Checked)
		f, ok := errors.AsType[*failedError](failed)
		if !ok || s.cmd.Context().Err() != nil || !s.othersWork(f) {
			return failed
		}
		if err := s.takeBack(s.cmd.Context(), done); err != nil {
			return err
		}
		undo = undo[:before]
		if err := s.leaveOut(f); err != nil {
			return err
		}
	}
}

// othersWork reports whether servers move besides those that have failed, each of which has an entry of
// its own: then it costs nobody else anything to leave these with their clients.
func (s *setup) othersWork(f *failedError) bool {
	for _, c := range s.answer.Checked {
		if c.Error != "" && (c.entry.Server == "" || c.entry.Server == clients.OwnEntry) {
			return false
		}
	}
	return slices.ContainsFunc(s.answer.Servers, func(name string) bool { return !slices.Contains(f.servers, name) })
}

// leaveOut plans again, without the servers that have failed.
func (s *setup) leaveOut(f *failedError) (err error) {
	for _, c := range s.answer.Checked {
		if c.Error != "" {
			s.answer.Failed = append(s.answer.Failed, c)
		}
	}
	s.look.Skip = append(slices.Clip(s.look.Skip), f.servers...)
	s.look.MayTry = func(context.Context, []importer.Command) (bool, error) { return true, nil } // the user has said so
	s.answer.Plan, s.keep, err = lookAtClients(s.cmd, s.proc, &s.o.ImportOptions, s.look, s.path, false)
	return err
}

// undo takes back what carryOut has done, even if the user has interrupted it, and returns the
// error to print: cause with what became of the undo.
func (s *setup) undo(cause error, steps []func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.cmd.Context()), undoTimeout)
	defer cancel()
	interrupted := s.cmd.Context().Err() != nil
	given := s.cmd.Context()
	s.cmd.SetContext(ctx) // for the requests to the daemon
	defer s.cmd.SetContext(given)
	var errs []error
	for _, step := range slices.Backward(steps) {
		errs = append(errs, step(ctx))
	}
	if !s.ran { // the check has started it
		out := s.cmd.OutOrStdout()
		s.cmd.SetOut(io.Discard)
		errs = append(errs, s.in.Stop(ctx))
		s.cmd.SetOut(out)
	}
	if err := errors.Join(errs...); err != nil {
		return cmdenv.WithHint(fmt.Errorf("%w; and not all of it could be undone: %w", cause, err),
			"holdline setup --undo tries again")
	}
	s.answer.Undone = true
	switch {
	case console.IsJSON(s.cmd):
		if err := console.PrintJSON(s.cmd.OutOrStdout(), s.answer); err != nil {
			return err
		}
	case !interrupted:
		printFailed(s.cmd.OutOrStdout(), slices.Concat(s.answer.Failed, s.answer.Checked))
	}
	if interrupted {
		console.Warn(s.cmd, "interrupted; all that was changed is undone")
		return cause
	}
	hint := "holdline doctor checks what setup needs"
	if failed, ok := errors.AsType[*failedError](cause); ok && len(failed.servers) > 0 {
		hint = "to leave these servers with their clients: holdline setup --skip " + strings.Join(failed.servers, ",")
	}
	return cmdenv.WithHint(fmt.Errorf("%w; all that was changed is undone", cause), hint)
}

// takeBack reverts the import, and has a running daemon read its configuration again. It fails
// if something could not be reverted.
func (s *setup) takeBack(ctx context.Context, done importer.Done) error {
	back, err := done.Undo(ctx, s.look)
	if err != nil {
		return err
	}
	if !console.IsJSON(s.cmd) {
		planview.WarnLeft(s.cmd, back.Left)
	}
	if len(back.Left) > 0 {
		return fmt.Errorf("%d entries are as setup has left them", len(back.Left))
	}
	if !s.ran {
		return attach.DropCopy(s.proc, s.look.Config) // there is no daemon that should go on
	}
	return attach.ReloadFile(s.cmd, s.proc, s.look.Config)
}

// finish prints the result, and installs for the service manager that the user wants. Without a
// text setup has changed something.
func (s *setup) finish(text string) error {
	manager, out := s.o.manager(), s.cmd.OutOrStdout()
	if s.o.dryRun {
		manager = install.Nobody
	}
	if console.IsJSON(s.cmd) {
		out = io.Discard
	}
	if manager != install.Nobody {
		s.in.Out = out
		if err := s.in.Install(s.cmd.Context(), install.Wish{Manager: manager}); err != nil {
			return fmt.Errorf("the agents are connected, but %s does not start the daemon: %w", manager, err)
		}
	}
	if console.IsJSON(s.cmd) {
		if err := console.PrintJSON(s.cmd.OutOrStdout(), s.answer); err != nil {
			return err
		}
	}
	done := s.answer.Done
	switch {
	case text != "":
		console.Line(out, 0, "%s", text)
	case done != nil:
		if failed := s.answer.Failed; len(failed) > 0 {
			printFailed(out, failed)
			console.Line(out, 6, "%s: as before with %s, and not moved. The others are.",
				plural.Count(len(failed), "server"), map[bool]string{true: "its client", false: "their clients"}[len(failed) == 1])
		}
		entries := 0
		for _, c := range s.answer.Checked {
			entries += len(c.Clients)
		}
		works := "no entry is new"
		switch {
		case entries == 1:
			works = "its entry works"
		case entries > 1:
			works = fmt.Sprintf("all %d entries that start holdline work", entries)
		}
		console.Line(out, 6, "%s", console.Good.Paint(fmt.Sprintf("Done: %s moved, %s written; %s.",
			plural.Count(len(s.answer.Servers), "server"), plural.Count(len(done.Files), "file"), works)))
		console.Line(out, 6, "Next: restart your agents, so that they read their files again. Then: holdline status")
		console.Line(out, 6, "To take it back: holdline setup --undo")
		if len(s.answer.Servers) == 0 && s.answer.Summary.Ours == 0 {
			console.Line(out, 6, "No server has moved. To add one for all agents: "+
				"holdline servers add files -- npx -y @modelcontextprotocol/server-filesystem .")
		}
		if len(s.answer.Servers) > 0 && sandbox.Refusal(false) == nil {
			console.Line(out, 6, "To have a server change nothing outside your project: "+
				"holdline config set mcpServers.NAME.holdline.confine project")
		}
		if !console.IsJSON(s.cmd) {
			s.adviseLogin(out)
		}
	default:
		console.Line(out, 0, "Done: the PATH for hosted servers is captured.")
	}
	if done != nil && len(done.Left) > 0 {
		planview.WarnLeft(s.cmd, done.Left)
		return cmdenv.ExitWith(cmdenv.ExitFailure)
	}
	return unreadable(s.answer.Plan)
}
