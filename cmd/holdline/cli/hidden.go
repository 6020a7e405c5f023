package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/daemoncmd"
	"holdline/cmd/holdline/small"
	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/runner"
	"holdline/daemon/adapter/engines"
	"holdline/daemon/adapter/remote"
	"holdline/daemon/config"
	"holdline/daemon/heap"
	"holdline/daemon/launch"
	"holdline/daemon/login"
	"holdline/daemon/login/flow"
	"holdline/daemon/spawn/execstep"
	"holdline/daemon/worker/detach"
	"holdline/protocol/process"
)

// runWorker is the command worker where holdline-stdio is not there for it.
func runWorker(args []string, proc *cmdenv.Process) error {
	return small.RunWorker(args, detach.Whole{}, proc.Stderr)
}

// runExec is the command exec, which becomes a worker's child. Only a worker starts it, with
// the child's environment. It returns only if it could not become the child; then the worker
// knows why, and nothing is printed.
func runExec(args []string, _ *cmdenv.Process) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: exec takes no arguments and is started by a worker only", cmdenv.ErrUsage)
	}
	_ = execstep.Exec(os.Environ())
	return cmdenv.ExitWith(cmdenv.ExitFailure)
}

// runRemote is the command remote: a stdio MCP server that passes everything on to a server
// which is reached by an address. Workers start it. A variable has the address and the headers,
// since other users of the machine can read the arguments of a process.
//
// An end by SIGINT or SIGTERM, or by the end of stdin, is no error.
func runRemote(_ []string, proc *cmdenv.Process) error {
	target, err := remote.ParseTarget(proc.Getenv(remote.EnvTarget))
	if err != nil {
		return fmt.Errorf("%w: remote: %w", cmdenv.ErrUsage, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer keepSmall(ctx)()
	log := childLog(proc)
	// This turns off package log, too, in which net/http quotes what a server sends.
	slog.SetDefault(slog.New(slog.DiscardHandler)) //nolint:forbidigo // net/http takes no logger
	o := remote.Options{
		Name: target.Name, URL: target.URL, Headers: target.Headers, Version: cmdenv.Version, Secrets: target.Secrets,
	}
	if at := target.Login; at != nil {
		tokens := login.NewTokens(login.Options{
			Name: target.Name, URL: target.URL, Target: at.Target, Version: cmdenv.Version, Log: log,
			Store:    launch.Logins{Dir: at.Dir, KeyCommand: at.KeyCommand}.Open(proc.Environ()),
			Discover: flow.Machine,
		})
		defer tokens.Close() // a renewal that has begun comes to its end
		o.Login = tokens
	}
	err = remote.Serve(ctx, stdinOf(proc), proc.Stdout, log, o)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("remote: %w", err)
}

// newEngineCommand returns the command engine for its help. A call that does not ask for help does not
// come here: [runProcess] dispatches it before the tree is built.
func newEngineCommand(proc *cmdenv.Process) *cobra.Command {
	names := engines.Join(func(e *engines.Engine) string { return e.Name })
	return &cobra.Command{
		Use:   "engine NAME",
		Short: "Run consults without the daemon, as a stdio MCP server",
		Long: `Run consults with one program, ` + names + `, without the daemon. This is an MCP server
on stdin and stdout with one tool, run, whose only required argument is prompt. A
worker starts it for each consult of the daemon; any MCP client can start it, too:

    holdline engine claude

It keeps no answers and reads no configuration: all settings are arguments of the
call. HOLDLINE_CLAUDE_BIN and HOLDLINE_CODEX_BIN name the programs if they are not
on PATH.`,
		Args: cobra.ArbitraryArgs, // runEngine checks them
		RunE: func(_ *cobra.Command, args []string) error { return runEngine(args, proc) },
	}
}

// runEngine is the command engine: a stdio MCP server whose one tool runs a consult
// program. Workers start it; any MCP client can. The argument is the name of the engine. A
// variable may name another program than the one on PATH; all other settings come with a call.
func runEngine(args []string, proc *cmdenv.Process) error {
	var settings config.Consult
	var found *engines.Engine
	worker := proc.Getenv(process.EnvWorker)
	if len(args) == 1 {
		// What the configuration says of an agent comes with the call, and only the daemon makes it.
		if name, ok := strings.CutPrefix(args[0], config.AgentPrefix); ok && worker != "" {
			settings.Agents = map[string]config.Agent{name: {}}
		}
		found = engines.Find(&settings, args[0])
	}
	if found == nil {
		return fmt.Errorf("%w: engine takes one name: %s", cmdenv.ErrUsage,
			strings.Join(engines.Names(&settings), " or "))
	}
	engines.UseVariables(&settings, proc.Getenv)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	defer keepSmall(ctx)()
	signal.Ignore(syscall.SIGPIPE) // a run's outcome is kept even if its client has ended
	runner.Serve(ctx, stdinOf(proc), proc.Stdout, runner.Options{
		Name: found.Name, Version: cmdenv.Version, Environ: proc.Environ(), Worker: worker,
		Engine: func(environ, extra []string) engine.Engine { return found.New(&settings, environ, extra) },
		Log:    childLog(proc),
	})
	return nil
}

// keepHeap is a heap in bytes that an idle child does not give back. The runtime does not collect a
// smaller one by itself, and most children never need more.
const keepHeap = 4 << 20

// keepSmall keeps this process small, of which a user may have many, until the returned function
// is called. As in a proxy one processor is enough, and each one has caches of its own.
func keepSmall(ctx context.Context) (stop func()) {
	runtime.GOMAXPROCS(1)
	ctx, cancel := context.WithCancel(ctx)
	var memory sync.WaitGroup
	memory.Go(func() { heap.GiveBack(ctx, keepHeap) })
	return func() { cancel(); memory.Wait() }
}

// stdinOf returns the standard input, which Close closes if it is a file.
func stdinOf(proc *cmdenv.Process) io.ReadCloser {
	if in, ok := proc.Stdin.(io.ReadCloser); ok {
		return in
	}
	return io.NopCloser(proc.Stdin)
}

// childLog returns the log of a child that is holdline itself. It goes to stderr, which the
// child's worker keeps.
func childLog(proc *cmdenv.Process) *slog.Logger {
	return slog.New(daemoncmd.LogHandler(proc, proc.Stderr, new(slog.LevelVar)))
}
