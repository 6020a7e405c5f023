package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"strings"
	"syscall"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/daemoncmd"
	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/runner"
	"holdline/daemon/adapter/engines"
	"holdline/daemon/config"
	"holdline/protocol/process"
)

// runEngine is the hidden command "engine": a stdio MCP server whose one tool
// runs a consult program. Workers start it; any MCP client can.
func runEngine(args []string, proc *cmdenv.Process) int {
	var found *engines.Engine
	if len(args) == 1 {
		found = engines.Find(args[0])
	}
	if found == nil {
		fmt.Fprintln(proc.Stderr, "holdline: engine takes one name:", strings.Join(engines.Names(), " or "))
		return cmdenv.ExitUsage
	}
	var settings config.Consult
	engines.UseVariables(&settings, proc.Getenv)
	in, ok := proc.Stdin.(io.ReadCloser)
	if !ok {
		in = io.NopCloser(proc.Stdin)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // the client may have ended; that must not take the run's outcome along
	runner.Serve(ctx, in, proc.Stdout, runner.Options{
		Name: found.Name, Version: cmdenv.Version, Environ: proc.Environ(), Worker: proc.Getenv(process.EnvWorker),
		Engine: func(environ, extra []string) engine.Engine { return found.New(&settings, environ, extra) },
		Log:    slog.New(daemoncmd.LogHandler(proc, proc.Stderr, new(slog.LevelVar))),
	})
	return cmdenv.ExitOK
}
