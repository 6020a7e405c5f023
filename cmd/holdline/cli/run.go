package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// Exit codes of every subcommand.
const (
	exitOK       = 0
	exitFailure  = 1
	exitUsage    = 2
	exitNoDaemon = 3
	exitLost     = 4
)

// Errors that become exit codes.
var (
	// errUsage is a call of the command that makes no sense.
	errUsage = errors.New("usage")
	// errNoDaemon is returned by connect if nobody listens.
	errNoDaemon = errors.New("no daemon is running")
	// errLost is that the daemon ended before it had answered.
	errLost = errors.New("line lost")
)

// hinted is an error with a way out for the user, printed on its own line.
type hinted struct {
	err  error
	hint string
}

func (h *hinted) Error() string { return h.err.Error() }
func (h *hinted) Unwrap() error { return h.err }

// silent is an error that has been told already; only its code counts.
type silent struct{ code int }

func (s *silent) Error() string { return fmt.Sprintf("exit %d", s.code) }

// run is the program: it returns the exit code.
func run(ctx context.Context, w world) int {
	if len(w.args) > 0 {
		switch w.args[0] {
		case "mcp-stdio":
			return runMCPStdio(w.args[1:], &w)
		case "worker":
			return runWorker(w.args[1:], w.stderr)
		case "exec":
			return runExec(w.args[1:], w.stderr)
		case "remote":
			return runRemote(&w)
		}
	}
	return runTree(ctx, &w, w.args)
}

// runTree runs a command of the tree and returns the exit code.
func runTree(ctx context.Context, w *world, args []string) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(w)
	root.SetArgs(args)
	root.SetIn(w.stdin)
	out, errs := &told{w: w.stdout}, &told{w: w.stderr}
	root.SetOut(out)
	root.SetErr(errs)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil && out.err != nil {
		err = fmt.Errorf("writing the answer: %w", out.err)
	}
	return report(errs, helped(cmd, err))
}

// helped adds to a usage error without a hint where the command's help is.
func helped(cmd *cobra.Command, err error) error {
	if _, has := errors.AsType[*hinted](err); has || !errors.Is(err, errUsage) {
		return err
	}
	return &hinted{err, "see " + cmd.CommandPath() + " --help"}
}

// report prints err and its hint, and turns it into an exit code.
func report(stderr io.Writer, err error) int {
	code, hint := classify(err)
	if _, told := errors.AsType[*silent](err); err == nil || told {
		return code
	}
	fmt.Fprintf(stderr, "holdline: %v\n", err)
	if hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", hint)
	}
	return code
}

// classify is the one place where errors become exit codes and hints.
func classify(err error) (code int, hint string) {
	if err == nil {
		return exitOK, ""
	}
	code = exitFailure
	if h, ok := errors.AsType[*hinted](err); ok {
		hint = h.hint
	}
	if s, ok := errors.AsType[*silent](err); ok {
		return s.code, ""
	}
	refusal, refused := errors.AsType[*protocol.Refusal](err)
	remote, answered := errors.AsType[*control.RemoteError](err)
	switch {
	case errors.Is(err, errUsage):
		code = exitUsage
	case errors.Is(err, errNoDaemon):
		code = exitNoDaemon
		if hint == "" {
			hint = "an agent that starts `holdline mcp-stdio` starts it, or: holdline daemon"
		}
	case errors.Is(err, errLost):
		code = exitLost
	case refused && refusal.Code == protocol.RefusedVersion:
		hint = "stop the old daemon with its own binary: holdline stop"
	case answered && remote.Fault != nil && remote.Fault.Fault.Code == fault.UnknownMethod:
		hint = "restart the daemon: holdline stop"
	}
	return code, hint
}

// newRoot builds the command tree.
func newRoot(w *world) *cobra.Command {
	root := &cobra.Command{
		Use:   "holdline",
		Short: "One daemon keeps all your coding agents connected to the tools they share",
		Long: `Holdline is one long-lived daemon per user between coding agents and the tools
that they share. Each agent's MCP configuration names one command:

    holdline mcp-stdio

Through it an agent can call the tools of the MCP servers that are configured
once for all agents, consult (a second opinion from Claude Code or Codex,
read-only), health_snapshot and telemetry_snapshot. The daemon is started at
first use; holdline import connects the agents of this machine.

Exit codes of every command: 0 done, 1 failed, 2 usage, 3 no daemon, 4 line lost.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          usageArgs(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:       version, // what --version tells, as most programs do
	}
	root.SetVersionTemplate("holdline {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.PersistentFlags().String("socket", "", "the daemon's socket (default $HOLDLINE_SOCKET, else found)")
	root.AddCommand(
		newDaemonCommand(w), newMCPStdioCommand(w), newStatusCommand(w), newSessionsCommand(w),
		newConsultCommand(w), newConsultsCommand(w), newTelemetryCommand(w), newLogsCommand(w),
		newServersCommand(w), newReloadCommand(w), newUpgradeCommand(w), newStopCommand(w), newConfigCommand(w), newDoctorCommand(w), newVersionCommand(),
		newMetricsCommand(w), newImportCommand(w), newInstallCommand(w), newUninstallCommand(w),
	)
	root.AddCommand(manCommands()...)
	return root
}

// usageArgs makes errors of an argument check usage errors.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		return nil
	}
}
