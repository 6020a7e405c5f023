// Package cli is the command line of holdline: it turns flags, the environment and files
// into values. The packages below it see none of those.
//
// [Main] is the way in. It has three kinds of commands:
//
//   - mcp-stdio, the proxy, of which many run. Package early makes the process
//     holdline-stdio, if that file is there. Otherwise it is the proxy itself, dispatched
//     before the command tree is built.
//   - Hidden commands, which the daemon and workers start (hidden.go): worker, exec,
//     remote, engine, login (serverscmd) and far (farside). They are dispatched early, too, and
//     worker becomes holdline-stdio. People may start engine; the tree has its help.
//   - Commands for users, which [NewRoot] puts into a tree of cobra's.
//
// Commands for users that share much have packages of their own beside this one: servers
// (serverscmd), consult (consultcmd), config (configcmd), daemon, start and stop (daemoncmd), setup and import
// (setupcmd). The others are here, one file for each.
//
// What all commands have in common is elsewhere: package attach finds the daemon or
// starts one, package console prints, and package cmdenv has exit codes and hints. A
// command returns an error, which [cmdenv.Report] turns into words and an exit code.
package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/configcmd"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/consultcmd"
	"holdline/cmd/holdline/daemoncmd"
	_ "holdline/cmd/holdline/early" // mcp-stdio and worker become holdline-stdio
	"holdline/cmd/holdline/envcmd"
	"holdline/cmd/holdline/farside"
	"holdline/cmd/holdline/guestcmd"
	"holdline/cmd/holdline/hostscmd"
	"holdline/cmd/holdline/metricscmd"
	"holdline/cmd/holdline/pair"
	"holdline/cmd/holdline/serverscmd"
	"holdline/cmd/holdline/setupcmd"
	"holdline/cmd/holdline/stdio"
	"holdline/daemon/adapter/engines"
)

// Main runs this process as holdline, with its own arguments, environment and
// standard streams, and returns the exit code.
func Main() int {
	cmdenv.KeepOwnerBits()
	return runProcess(context.Background(), cmdenv.Process{
		Args: os.Args[1:], Getenv: os.Getenv, Environ: os.Environ,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
}

// hidden are the commands that holdline starts itself, by their names. No help shows them, except engine.
// Each gets the arguments behind its name.
var hidden = map[string]func(args []string, proc *cmdenv.Process) error{
	"worker": runWorker, "exec": runExec, "remote": runRemote, "engine": runEngine,
	"login": serverscmd.RunLogin, "far": farside.Run,
}

// runProcess runs the command that the arguments name, and returns the exit code. It prints the
// error of the command, if any.
func runProcess(ctx context.Context, proc cmdenv.Process) int {
	// One of these runs for each agent, each server and each consult. They cost less
	// without the tree.
	if len(proc.Args) > 0 {
		if proc.Args[0] == pair.Command {
			return stdio.Run(proc.Args[1:], &proc, wholeProgram(ctx, &proc))
		}
		// A prompt waits for this one.
		if proc.Args[0] == "statusline" && len(proc.Args) == 1 {
			return cmdenv.Report(proc.Stderr, runStatusline(ctx, &proc))
		}
		if command := hidden[proc.Args[0]]; command != nil && !asksForHelp(proc.Args[1:]) {
			return cmdenv.Report(proc.Stderr, command(proc.Args[1:], &proc))
		}
	}
	if len(proc.Args) > 0 && proc.Args[0] == "daemon" {
		return runTree(ctx, &proc, newDaemonRoot(&proc), proc.Args)
	}
	return runTree(ctx, &proc, NewRoot(&proc), proc.Args)
}

// asksForHelp reports whether the arguments of a hidden command ask what it is for. The tree answers
// that, for those that are in it.
func asksForHelp(args []string) bool {
	return slices.Contains(args, "--help") || slices.Contains(args, "-h")
}

// runTree runs a command of the tree at root and returns the exit code. The first SIGINT or SIGTERM
// ends the context of the command. An error of writing to stdout counts as an error of the
// command.
func runTree(ctx context.Context, proc *cmdenv.Process, root *cobra.Command, args []string) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	root.SetArgs(args)
	root.SetIn(proc.Stdin)
	// Everything that commands print goes through these two.
	out, errs := console.NewOutput(proc.Stdout), console.NewOutput(proc.Stderr)
	root.SetOut(out)
	root.SetErr(errs)
	checkCompletion(root)
	cmd, err := root.ExecuteContextC(ctx)
	if failure := out.Failure(); err == nil && failure != nil {
		err = fmt.Errorf("writing the answer: %w", failure)
	}
	var text strings.Builder
	code := cmdenv.Report(&text, addHelpHint(cmd, hintForSudo(cmd, proc, err)))
	console.Lines(errs, text.String())
	return code
}

// NewRoot returns the command tree. Release archives have its man pages and completions. proc
// is used when a command runs, and for nothing before.
//
// Commands return their errors and print none: cobra is told to be silent, since [runTree]
// prints an error with its hint and turns it into the exit code.
func NewRoot(proc *cmdenv.Process) *cobra.Command {
	root := newBareRoot(proc)
	root.SetHelpCommandGroupID(groupMaintain)
	root.SetCompletionCommandGroupID(groupMaintain)
	// A new command goes into one of these lists. Its checks of arguments come from checkArgs.
	add := func(group, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: group, Title: title})
		for _, cmd := range commands {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	add(groupUse, "Use:",
		consultcmd.NewCommand(proc), newStatusCommand(proc), newTopCommand(proc), newSessionsCommand(proc),
		newTelemetryCommand(proc), newStatuslineCommand(proc))
	add(groupServers, "Servers:", serverscmd.NewCommand(proc, setupcmd.EveryClient), hostscmd.NewCommand(proc))
	add(groupSetUp, "Set up:",
		setupcmd.NewCommand(proc, setupcmd.Installing{Options: installer, Path: pathToCapture}),
		setupcmd.NewImportCommand(proc), newInstallCommand(proc), newDoctorCommand(proc),
		configcmd.NewCommand(proc), envcmd.NewCommand(proc), guestcmd.NewConnectCommand(proc))
	add(groupMaintain, "Maintain:",
		daemoncmd.NewStartCommand(proc), daemoncmd.NewStopCommand(proc),
		serverscmd.NewReloadCommand(proc), guestcmd.NewDisconnectCommand(proc), newLogsCommand(proc),
		newUninstallCommand(proc), newVersionCommand())
	add(groupPrograms, "Run by other programs, seldom by people:",
		newProxyCommand(proc), daemoncmd.NewCommand(proc), newEngineCommand(proc), newUpgradeCommand(proc),
		metricscmd.NewCommand(proc))
	checkArgs(root)
	addCompletions(root, proc)
	return root
}

// newDaemonRoot returns a tree that has the command daemon alone. That process keeps its tree
// until it ends, and an agent may wait for its start.
func newDaemonRoot(proc *cmdenv.Process) *cobra.Command {
	root := newBareRoot(proc)
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(daemoncmd.NewCommand(proc))
	checkArgs(root)
	return root
}

// newBareRoot returns a tree without commands.
func newBareRoot(proc *cmdenv.Process) *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "holdline",
		Short: "One daemon keeps all your coding agents connected to the tools they share",
		Long: `Holdline is one long-lived daemon per user between coding agents and the tools
that they share. Each agent's MCP configuration names one command:

    holdline mcp-stdio

Through it an agent can call the tools of the MCP servers that are configured
once for all agents, consult (a second opinion from ` + engines.Titles() + `,
read-only), health_snapshot and telemetry_snapshot. The daemon is started at
first use; holdline setup connects the agents of this machine.

Exit codes: 0 done, 1 failed, 2 usage, 3 no daemon, 4 line lost.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return printVersion(cmd.OutOrStdout())
			}
			return runWelcome(cmd, proc)
		},
	}
	// Cobra's own flag takes a template to print what the command version prints. With one
	// template the linker keeps each exported method of each type: 2.3 MB, of which a running
	// daemon has 1.7 in memory.
	root.Flags().BoolVarP(&version, "version", "v", false, "version for holdline")
	root.SetFlagErrorFunc(wrongFlag)
	console.FoldHelp(root)
	root.PersistentFlags().String("socket", "", "the daemon's socket (default $HOLDLINE_SOCKET, else found)")
	color := root.PersistentFlags().String("color", "auto", "use colour: "+strings.Join(console.ColorModes, ", "))
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := console.Configure(cmd, *color, proc.Getenv); err != nil {
			return err
		}
		return refuseHome(cmd, proc)
	}
	return root
}

// Groups of commands on the help page, in its order.
const (
	groupUse      = "use"
	groupServers  = "servers"
	groupSetUp    = "set up"
	groupMaintain = "maintain"
	groupPrograms = "programs"
)
