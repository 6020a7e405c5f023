package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/doctor"
	"holdline/cmd/holdline/importer"
	"holdline/cmd/holdline/pair"
	"holdline/cmd/holdline/setupcmd"
	"holdline/daemon/commands"
	"holdline/daemon/config"
	"holdline/daemon/launch"
	"holdline/daemon/plural"
	"holdline/daemon/service"
	"holdline/daemon/userenv"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/socket"
)

// newDoctorCommand returns the command doctor. Its exit code is 1 if a finding is a problem;
// it finishes all checks before. With the flag --consult-selftest it runs the self-test in
// place of the checks: see [runSelftest].
func newDoctorCommand(proc *cmdenv.Process) *cobra.Command {
	var selftest, verbose bool
	cmd := console.WithJSON(&cobra.Command{
		Use:   "doctor",
		Short: "Check everything that could be wrong, and say how to fix it",
		Long: `Check the configuration, the directories, the socket, the daemon, the versions of
daemon and proxies, claude and codex. Problems come first, each with what fixes it,
then notes, each on one line. -v shows every check, and notes with why they matter and
what to do. Nothing is changed. The exit code is 1 if there is a problem.

With --consult-selftest, doctor runs consults with the installed claude instead, at each
level, in a directory of their own. In place of the model, a stand-in on loopback asks
claude to write to files in every way that there is. For each agent of the configuration,
a program that is confined as the agent is tries the same. That costs nothing and needs
no login. A table shows the outcome of each attempt. The exit code is 1 if anything was
written.

With --json, a list of objects: check, state (ok, note, problem), what, why,
fix.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if selftest {
				return runSelftest(cmd, proc)
			}
			paths, err := attach.PathsOf(cmd, proc)
			if err != nil {
				return err
			}
			found := doctor.Run(cmd.Context(), doctorOptions(proc, paths))
			if err := console.Print(cmd, found, func(out io.Writer) { printFindings(out, found, verbose) }); err != nil {
				return err
			}
			// Notes do not make the command fail.
			for _, f := range found {
				if f.State == doctor.Problem {
					return cmdenv.ExitWith(cmdenv.ExitFailure)
				}
			}
			return nil
		},
	})
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "show the checks that are ok, and notes as a whole, too")
	cmd.Flags().BoolVar(&selftest, "consult-selftest", false, "try to write through consults, at each level")
	return cmd
}

// printFindings prints the problems, each with why it matters and what fixes it; the notes, each on one
// line; and how many checks there were of each kind. With verbose it prints all of each finding, also of
// those that are OK.
func printFindings(out io.Writer, found []doctor.Finding, verbose bool) {
	const indent = 9
	styles := map[doctor.State]console.Style{
		doctor.OK: console.Good, doctor.Note: console.Odd, doctor.Problem: console.Bad,
	}
	count := map[doctor.State]int{}
	for _, state := range []doctor.State{doctor.Problem, doctor.Note, doctor.OK} {
		for _, f := range found {
			at := f.State
			if f.Unused && at == doctor.Note {
				at = doctor.OK
			}
			if at != state {
				continue
			}
			count[state]++
			head := fmt.Sprintf("%s: %s", f.Check, f.What)
			switch columns := console.Columns(out); {
			case verbose || state == doctor.Problem:
				console.Line(out, indent, "%-8v %s", styles[f.State].Paint(f.State), head)
				if f.State != doctor.OK {
					console.Line(out, indent+6, "         why:  %s", f.Why)
					console.Line(out, indent+6, "         fix:  %s", f.Fix)
				}
			case state == doctor.Note:
				if columns > indent {
					head = console.Shorten(head, columns-indent)
				}
				console.Line(out, indent, "%-8v %s", styles[f.State].Paint(f.State), head)
			}
		}
	}
	if verbose || count[doctor.Problem]+count[doctor.Note] > 0 {
		fmt.Fprintln(out)
	}
	var kinds []string
	if n := count[doctor.Problem]; n > 0 {
		kinds = append(kinds, plural.Count(n, "problem"))
	}
	if n := count[doctor.Note]; n > 0 {
		kinds = append(kinds, plural.Count(n, "note"))
	}
	kinds = append(kinds, plural.Count(count[doctor.OK], "check")+" ok")
	last := strings.Join(kinds, ", ")
	if !verbose {
		last += " (-v shows them)"
	}
	console.Line(out, 0, "%s", last)
}

// doctorOptions returns what the checks need to know of this user and this machine. It asks
// nothing that takes time: what does, such as the login shell, is asked by functions that the
// checks call. An error of reading the configuration is an option, too, since it has a check
// of its own.
func doctorOptions(proc *cmdenv.Process, paths socket.Paths) doctor.Options {
	name, _, _ := userenv.Account(os.Getuid())
	program, _ := pair.Program(os.Args[0]) // without a path the check says that the other program is missing
	o := doctor.Options{
		Paths: paths, Home: proc.Getenv("HOME"), Environ: proc.Environ(),
		LoginPath: userenv.UserShell(proc.Getenv).LoginPath,
		Units:     service.FindUnits(proc.Getenv),
		Program:   program,
		Linger:    filepath.Join("/var/lib/systemd/linger", cmp.Or(name, proc.Getenv("USER"))),
	}
	// Package doctor makes no checks of launchd without these two.
	if runtime.GOOS == "darwin" {
		o.LaunchAgents = filepath.Join(o.Home, "Library", "LaunchAgents")
		o.Launchctl = func(ctx context.Context, args ...string) error {
			_, err := runProgram(ctx, "launchctl", args...)
			return err
		}
	}
	// From here on an error must not end the function: the other checks need no
	// configuration, and the user needs their findings most when something is wrong.
	var err error
	if o.StateDir, err = cmdenv.StateDir(proc.Getenv); err != nil {
		o.ConfigErr = err
	}
	if o.Config, err = cmdenv.ConfigPath("", proc.Getenv); err != nil {
		o.ConfigErr = err
		return o
	}
	cfg, err := config.Load(o.Config)
	o.ConfigErr = errors.Join(o.ConfigErr, err)
	if err == nil {
		o.Loaded = &cfg
	}
	o.Clients = func() (*importer.Plan, error) { return setupcmd.LookAtClients(proc) }
	consults := consultConfig(proc)
	// If no daemon runs, the environment of the next one counts: it is not that of this shell.
	shell := userenv.UserShell(proc.Getenv)
	next := userenv.New(userenv.Options{
		Log: slog.New(slog.DiscardHandler), StateDir: o.StateDir, Own: attach.DaemonEnv(proc.Getenv), Shell: &shell,
	})
	var once sync.Once
	o.Check = func(ctx context.Context, engine string) control.CheckAnswer {
		once.Do(func() { go func() { _ = next.Run(ctx) }() }) // it ends with the checks
		info, err := launch.CheckProgram(ctx, &consults, o.Config, next, protocol.LoginVariables(o.Environ), engine)
		return commands.CheckAnswer(&consults, engine, info, err)
	}
	return o
}

// consultConfig returns the configuration that a daemon started from here would have for
// consults, with a leading ~/ of paths replaced. If the file cannot be read it returns the
// default one; the check of the configuration reports the error.
func consultConfig(proc *cmdenv.Process) config.Config {
	cfg := config.Default()
	if path, err := cmdenv.ConfigPath("", proc.Getenv); err == nil {
		if loaded, err := config.Load(path); err == nil { // the check of the configuration reports an error
			cfg = loaded
		}
	}
	return cfg.WithHome(proc.Getenv("HOME"))
}
