package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/daemoncmd"
	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude"
	"holdline/daemon/adapter/engine/codex"
	"holdline/daemon/adapter/engine/runner"
	"holdline/protocol/process"
)

// engines makes each consult engine for an environment; see [runner.Options].
func engines(getenv func(string) string) map[string]func(environ, extra []string) engine.Engine {
	return map[string]func(environ, extra []string) engine.Engine{
		"claude": func(environ, extra []string) engine.Engine {
			return claude.New(claude.Options{Bin: getenv("HOLDLINE_CLAUDE_BIN"), Env: environ, Extra: extra})
		},
		"codex": func(environ, extra []string) engine.Engine {
			return codex.New(codex.Options{Bin: getenv("HOLDLINE_CODEX_BIN"), Env: environ, Extra: extra})
		},
	}
}

// runEngine is the hidden command "engine": a stdio MCP server whose one tool
// runs a consult program. Workers start it; any MCP client can.
func runEngine(args []string, proc *cmdenv.Process) int {
	all := engines(proc.Getenv)
	if len(args) != 1 || all[args[0]] == nil {
		fmt.Fprintln(proc.Stderr, "holdline: engine takes one name: claude or codex")
		return cmdenv.ExitUsage
	}
	in, ok := proc.Stdin.(io.ReadCloser)
	if !ok {
		in = io.NopCloser(proc.Stdin)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // the client may have ended; that must not take the run's outcome along
	runner.Serve(ctx, in, proc.Stdout, runner.Options{
		Name: args[0], Version: cmdenv.Version, Engine: all[args[0]], Environ: proc.Environ(), Worker: proc.Getenv(process.EnvWorker),
		Log: slog.New(daemoncmd.LogHandler(proc, proc.Stderr, new(slog.LevelVar))),
	})
	return cmdenv.ExitOK
}
