package consult

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/adapter/engine/codex"
	"holdline/daemon/adapter/engine/runner"
	"holdline/daemon/spawn"
	"holdline/daemon/worker"
	"holdline/protocol/process"
)

// envRefuse makes the exec step fail to confine itself.
const envRefuse = "TEST_REFUSE"

// exit ends the process without the second that the race detector takes.
func exit(code int) { syscall.Exit(code) }

// TestMain lets the test binary be the worker, the step that becomes its
// child, and the consult program.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "worker":
		if err := worker.Main(os.Args[2:], os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			exit(1)
		}
		exit(0)
	case len(os.Args) > 1 && os.Args[1] == "exec":
		if os.Getenv(envRefuse) != "" && os.Getenv("CLAUDE_CODE_TMPDIR") != "" { // no descriptor is left for the ruleset of a run
			_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 5, Max: 5})
		}
		if err := spawn.Exec(os.Environ()); err != nil {
			exit(1)
		}
		exit(0)
	case len(os.Args) > 2 && os.Args[1] == "engine":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		runner.Serve(ctx, os.Stdin, os.Stdout, runner.Options{
			Name: os.Args[2], Version: "test", Environ: os.Environ(), Worker: os.Getenv(process.EnvWorker),
			Log:    slog.New(slog.NewTextHandler(os.Stderr, nil)),
			Engine: engineOf(os.Args[2]),
		})
		exit(0)
	case os.Getenv(claudetest.FakeEnv) != "":
		os.Exit(claudetest.FakeMain(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
	}
	os.Exit(m.Run())
}

// engineOf makes an engine in its own process.
func engineOf(name string) func(environ, extra []string) engine.Engine {
	return func(environ, extra []string) engine.Engine {
		if name == Codex {
			return codex.New(codex.Options{Env: environ, Extra: extra})
		}
		return claude.New(claude.Options{Env: environ, Extra: extra})
	}
}
