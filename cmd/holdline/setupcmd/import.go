// Package setupcmd has the commands that connect the clients of a machine: import, which moves
// their servers, and setup, which also captures the PATH for hosted servers and checks what it
// has written.
package setupcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/clients"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/direct"
	"holdline/cmd/holdline/importer"
	"holdline/cmd/holdline/install"
	"holdline/cmd/holdline/planview"
	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/envfile"
	"holdline/daemon/plural"
	"holdline/daemon/shellword"
)

// ImportOptions are the flags of import.
type ImportOptions struct {
	from       []string // names of clients; nil for all that are found
	write      bool     // change the files, and do not only show the plan
	aggregate  bool     // one entry for all servers in each client's file
	Project    bool     // also the files of the current project
	undo       bool     // revert earlier imports
	yes        bool     // do not ask
	noCheck    bool     // do not start the servers that would move
	calls      bool     // servers that have moved are called once
	verbose    bool     // show the plan for each file, too
	skip, keep []string // servers that stay
	scope      string   // of servers that move; "" is the default
	file       string   // holdline's configuration file
}

// NewImportCommand returns the command import. Without --write and --undo it changes nothing.
func NewImportCommand(proc *cmdenv.Process) *cobra.Command {
	var o ImportOptions
	cmd := console.WithJSON(&cobra.Command{
		Use:   "import",
		Short: "Move your agents' MCP servers into holdline's configuration",
		Long: `Find the configurations of the MCP clients on this machine, and say which of their
servers holdline would host, which ones stay where they are, and why. With --write,
do it: each server moves into holdline's configuration, and its entry in the client's
file, under the same name, then starts

    holdline mcp-stdio --server NAME

so that the names of its tools and all rules for them stay as they are. A server
moves only if it works: each is started once, as the daemon would start it, for a
minute at most, and ended when it has answered; --no-check leaves that out. Commands of
a project's own files are started only by --write, and shown and asked for first; --yes
does not ask. Each client gets an entry for holdline's own tools (consult and others),
too. With --aggregate there is one entry for all instead, and tools are called
SERVER__TOOL.

Comments and everything else in the files stay. If two servers have one name and differ,
the server of the first client in this order keeps the name: ` + strings.Join(clients.Names(), ", ") + `. The name of
the other server then ends with its client's name. A server that is already in
holdline's configuration always keeps its name.

--undo reverts what import did, and nothing else: byte for byte in files that have not
changed since, else entry by entry. It leaves and names entries that have changed. The
files as they were are kept in ~/.local/state/holdline/import until then.

The last column of a server says which agents will share a process of it: all
projects, one project, or each agent its own. Servers on other machines are shared, and
programs of npm that are known to depend on neither their directory nor their client;
what is not known is kept apart for each project. -v says why; --scope chooses.

The plan is a summary and a line for each server; -v shows each file. Values of
variables, headers and arguments are never shown. A client's file that cannot be read
is left; the command goes on with the others, and fails in the end.

With --json, an object: summary (counts), files (client, title, path, project, make,
why, broken, servers, consult, changes, diff), servers (names that holdline's file
gets), config; and after --write or --undo done (files, backup, left). Servers have
name, project, verdict (moves, stays, ours), as, why, differs, login, tools, notes,
runs, args (how many), env and headers (names), scope, scope_why.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runImport(cmd, proc, &o) },
	})
	f := cmd.Flags()
	o.addFlags(f)
	f.BoolVar(&o.write, "write", false, "do it")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask before commands of a project's own files are started")
	f.BoolVar(&o.noCheck, "no-check", false, "do not start the servers first, to see whether they work")
	f.BoolVar(&o.undo, "undo", false, "take back what import did")
	for _, other := range []string{"write", "aggregate", "from", "scope"} {
		cmd.MarkFlagsMutuallyExclusive("undo", other)
	}
	return cmd
}

// addFlags adds the flags that say what is imported, and from where. Setup has them, too.
func (o *ImportOptions) addFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.from, "from", nil,
		"clients, with commas: "+strings.Join(clients.Names(), " ")+" (default all that are found)")
	f.StringSliceVar(&o.skip, "skip", nil, "servers that stay with their clients, with commas")
	f.StringSliceVar(&o.keep, "keep", nil,
		"variables of your environment that servers which move keep, with commas;\nthose known to matter are kept anyway")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show the plan for each file, too")
	f.BoolVar(&o.aggregate, "aggregate", false, "one entry for all servers instead of one for each")
	f.BoolVar(&o.Project, "project", false, "files of the current project, and in git work trees, too")
	f.StringVarP(&o.scope, "scope", "s", "", "project, shared or session, for servers that are moved\n(default what is known of each; project if nothing is)")
	console.ConfigFlag(f, &o.file)
}

// runImport plans an import and prints the plan. With --write it also carries the plan out,
// with --undo it reverts earlier imports instead. Before the plan is made, each server that
// would move is started once, unless --no-check is given.
//
// The plan and the change are made by the same process, but the files may change between
// the two: package importer checks each file again before it writes it.
func runImport(cmd *cobra.Command, proc *cmdenv.Process, o *ImportOptions) error {
	look, err := ClientOptions(proc, o)
	if err != nil {
		return err
	}
	if o.undo {
		done, err := importer.Undo(cmd.Context(), look)
		if err != nil {
			return err
		}
		return finishImport(cmd, proc, nil, look.Config, done)
	}
	look.MayTry = func(_ context.Context, commands []importer.Command) (bool, error) {
		if !o.write {
			return false, nil
		}
		return askForCommands(cmd, proc, o.yes, commands)
	}
	plan, keep, err := lookAtClients(cmd, proc, o, look, "", !o.write)
	if errors.Is(err, errDeclined) {
		return cmdenv.ExitWith(cmdenv.ExitFailure) // it has been said
	}
	if err != nil {
		return err
	}
	if !o.write {
		err := console.Print(cmd, plan, func(out io.Writer) { printPlan(out, plan, o.verbose) })
		return cmp.Or(err, unreadable(plan))
	}
	if err := lastingCommand(look.Command, "import --write"); err != nil {
		return err
	}
	// With --json the plan is printed once, together with what was done.
	if !console.IsJSON(cmd) {
		planview.Print(cmd.OutOrStdout(), plan, o.verbose)
	}
	done, err := plan.Write(cmd.Context(), time.Now())
	if err != nil {
		return err
	}
	warnUnkept(cmd, keep())
	return cmp.Or(finishImport(cmd, proc, plan, plan.Config, done), unreadable(plan))
}

// lookAtClients plans an import. Unless the user wants none of that, it starts each server that
// would move with what the daemon has: its environment and its PATH. With this shell's, a server
// might work here and fail there. capture is the PATH that the daemon will have in the place of
// the captured one; "" leaves that. Progress goes to stderr.
//
// keep puts what was found out about launchers into the state directory. With dry there is nothing to keep: servers are
// tried as their entries say.
func lookAtClients(
	cmd *cobra.Command, proc *cmdenv.Process, o *ImportOptions, look importer.Options, capture string, dry bool,
) (plan *importer.Plan, keep func() error, err error) {
	if err := attach.CheckEdit(proc, look.Config); err != nil {
		return nil, nil, err
	}
	if err := checkVariables(look.Config); err != nil {
		return nil, nil, err
	}
	keep = func() error { return nil }
	if !o.noCheck {
		l, err := direct.New(cmd.Context(), proc, look.Config, capture)
		if err != nil {
			return nil, nil, err
		}
		if look.Daemon, err = l.Environ(cmd.Context()); err != nil {
			return nil, nil, err
		}
		look.Path = command.Variable(look.Daemon, "PATH")
		if l.TryAsWritten(); !dry {
			keep = l.HoldRecords()
		}
		live, show := planview.Tries(cmd.ErrOrStderr())
		defer live.Close()
		look.Trying = show
		look.Try = func(ctx context.Context, s *config.Settings, root string) importer.Trial {
			tools, err := l.Try(ctx, s, root, func(line string) { live.Say(s.Name, line) })
			ended := importer.Trial{
				Tools: tools.Names, Err: err,
				Login: errors.Is(err, direct.ErrNeedsLogin), Late: errors.Is(err, direct.ErrLate), Runs: tools.Runs,
			}
			if o.calls && err == nil {
				ended.Call = tools.Harmless
			}
			return ended
		}
	}
	plan, err = importer.Look(cmd.Context(), look)
	if unknown, ok := errors.AsType[*importer.SkipError](err); ok {
		return nil, nil, fmt.Errorf("%w: --skip: %w", cmdenv.ErrUsage, unknown)
	}
	return plan, keep, err
}

// warnUnkept says that what was found out about launchers could not be kept: the daemon finds it out again.
func warnUnkept(cmd *cobra.Command, err error) {
	if err != nil {
		console.Warn(cmd, "%v; each server that npx or the like starts is started with that once more", err)
	}
}

// checkVariables returns an error if the file of variables beside the configuration cannot be used: each server would
// fail for that reason.
func checkVariables(config string) error {
	_, err := envfile.Read(envfile.Path(config))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// askForCommands shows the commands of a project's own files, and asks whether to start them. yes means
// that the user has been asked. It returns [errDeclined] if the user does not want it.
func askForCommands(cmd *cobra.Command, proc *cmdenv.Process, yes bool, commands []importer.Command) (bool, error) {
	if yes {
		return true, nil
	}
	if !console.IsTerminal(proc.Stdin) || console.IsJSON(cmd) {
		return false, cmdenv.WithHint(
			fmt.Errorf("%w: it would start commands that this project's files name, and cannot ask here", cmdenv.ErrUsage),
			"without --write it shows them and starts none; --yes starts them; --no-check starts none")
	}
	errs := cmd.ErrOrStderr()
	console.Line(errs, 4, "This project's files name %s, which would now be started to see whether they work:",
		plural.Count(len(commands), "command"))
	for _, c := range commands {
		words := make([]string, 0, len(c.Runs))
		for _, word := range c.Runs {
			words = append(words, shellword.Quote(word))
		}
		text := strings.Join(words, " ")
		if len(c.Env) > 0 {
			text += "  (sets " + strings.Join(c.Env, ", ") + ")"
		}
		console.Line(errs, 8, "    %s  %s", c.Name, strings.Map(console.Printable, text))
	}
	return true, askYes(cmd, proc, "Start them? [y/N] ", false)
}

// lastingCommand returns an error if clients' files would name a program that may go away,
// such as a test build. again is the command to give by the installed program.
func lastingCommand(path, again string) error {
	err := install.Lasting(path)
	if err == nil {
		return nil
	}
	return cmdenv.WithHint(fmt.Errorf("clients are to start holdline by its path: %w", err),
		"holdline install --bin puts a copy into ~/.local/bin; then, by that: ~/.local/bin/holdline "+again)
}

// unreadable returns an error if the plan lacks files that could not be read. The plan has
// named them.
func unreadable(plan *importer.Plan) error {
	if plan.Summary.Broken == 0 {
		return nil
	}
	return cmdenv.ExitWith(cmdenv.ExitFailure)
}

// printPlan prints what an import would do, and how to do it.
func printPlan(out io.Writer, plan *importer.Plan, verbose bool) {
	planview.Print(out, plan, verbose)
	switch {
	case len(plan.Files) == 0:
		console.Line(out, 2, "no client's configuration was found; --from NAME makes one")
	case plan.Empty() && plan.Summary.Broken > 0:
		console.Line(out, 2, "there is nothing to do with the files that can be read")
	case plan.Empty():
		fmt.Fprintln(out, "there is nothing to do")
	default:
		console.Line(out, 2, "nothing was changed; -v shows each file; to do it: holdline import --write")
	}
}

// finishImport prints what an import has done, or its undo if plan is nil, and has the
// running daemon read its configuration. It fails if something was left as it was.
func finishImport(
	cmd *cobra.Command, proc *cmdenv.Process, plan *importer.Plan, config string, done importer.Done,
) error {
	// With --json the plan and what was done are members of one object.
	value := struct {
		*importer.Plan
		Done importer.Done `json:"done"`
	}{plan, done}
	// A plan of nil is that of an undo, whose result has nothing else to show.
	err := console.Print(cmd, value, func(out io.Writer) {
		verb := "written"
		if plan == nil {
			verb = "taken back"
		}
		for _, path := range done.Files {
			console.Line(out, 2, "%s: %s", verb, path)
		}
		switch {
		case plan == nil && len(done.Files)+len(done.Left) == 0:
			fmt.Fprintln(out, "there is nothing to take back")
		case plan != nil && done.Backup == "":
			fmt.Fprintln(out, "there is nothing to do")
		case plan != nil:
			console.Line(out, 2, "kept as it was: %s; to take it back: holdline import --undo", done.Backup)
		}
	})
	if err == nil && len(done.Files) > 0 {
		err = attach.ReloadFile(cmd, proc, config)
	}
	if !console.IsJSON(cmd) {
		planview.WarnLeft(cmd, done.Left)
	}
	if err != nil || len(done.Left) == 0 {
		return err
	}
	return cmdenv.ExitWith(cmdenv.ExitFailure)
}

// FoundServers returns the names of the servers that clients have, for the completion of --skip.
// It starts none of them.
func FoundServers(proc *cmdenv.Process) []string {
	plan, err := LookAtClients(proc)
	if err != nil {
		return nil
	}
	return plan.CanStay()
}

// EveryClient returns what package importer needs to find the entries of all clients, those of this directory's
// project too.
func EveryClient(proc *cmdenv.Process) (importer.Options, error) {
	return ClientOptions(proc, &ImportOptions{Project: true})
}

// LookAtClients returns what an import of all clients would do, those of projects too. It starts
// no server, so it does not wait.
func LookAtClients(proc *cmdenv.Process) (*importer.Plan, error) {
	look, err := EveryClient(proc)
	if err != nil {
		return nil, err
	}
	return importer.Look(context.Background(), look)
}

// ClientOptions returns what package importer needs to know of the flags, of this user and of
// this directory. The check of the clients by doctor uses it, too.
func ClientOptions(proc *cmdenv.Process, o *ImportOptions) (importer.Options, error) {
	home := proc.Getenv("HOME")
	if !filepath.IsAbs(home) {
		return importer.Options{}, fmt.Errorf("HOME is not set to a directory")
	}
	cwd, err := os.Getwd()
	if err != nil {
		return importer.Options{}, err
	}
	path, err := cmdenv.ConfigPath(o.file, proc.Getenv)
	if err != nil {
		return importer.Options{}, err
	}
	state, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return importer.Options{}, err
	}
	command, err := ownPath(proc)
	if err != nil {
		return importer.Options{}, err
	}
	environ := proc.Environ()
	// Variables of a file that cannot be read are not set. doctor reports the error.
	if more, err := envfile.Read(filepath.Join(filepath.Dir(path), "env")); err == nil {
		environ = append(environ, more...)
	}
	return importer.Options{
		Places: clients.Places{Home: home, Cwd: cwd, Getenv: proc.Getenv, System: runtime.GOOS},
		Config: path, OtherFile: o.file != "", State: state, Command: command,
		Environ: environ, From: o.from, Project: o.Project, Aggregate: o.aggregate, Scope: o.scope, Skip: o.skip,
		Keep: o.keep,
	}, nil
}

// ownPath returns the absolute path by which clients are to start this program, since they may
// have another PATH. That is the path on PATH if it leads to this program: it keeps leading to
// the newest version where versions have directories of their own. Else it is the path of the
// running file.
func ownPath(proc *cmdenv.Process) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	// install --bin puts the program into the last one.
	dirs := append(filepath.SplitList(proc.Getenv("PATH")), filepath.Join(proc.Getenv("HOME"), ".local/bin"))
	for _, dir := range dirs {
		if path := filepath.Join(dir, "holdline"); filepath.IsAbs(dir) && cmdenv.SameFile(path, self) {
			return path, nil
		}
	}
	return self, nil
}
