// Package workertest lets a test binary stand in for the holdline program where workers are
// started. The TestMain of the binary calls [Dispatch] first, and the tests name the binary
// as the program. So tests of the daemon run real workers without building holdline.
package workertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/acp"
	"holdline/daemon/adapter/engine/claude"
	"holdline/daemon/adapter/engine/codex"
	"holdline/daemon/adapter/engine/runner"
	"holdline/daemon/spawn/execstep"
	"holdline/daemon/worker"
	"holdline/daemon/worker/detach"
	"holdline/protocol/lockcheck/lockchecktest"
	"holdline/protocol/process"
)

// Freeze stops the process pid with SIGSTOP. On Linux it returns when all its threads have
// stopped: on a busy machine they run on for a while after the signal. It fails the test if the
// signal cannot be sent, or if a thread still runs after 20 seconds. On other systems it does not
// wait.
func Freeze(tb testing.TB, pid int) {
	tb.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(time.Millisecond) {
		running := 0
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // empty on other systems than Linux
		for _, f := range stats {
			if b, err := os.ReadFile(f); err == nil && !bytes.Contains(b, []byte(") T ")) {
				running++
			}
		}
		if running == 0 {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("process %d does not stop", pid)
		}
	}
}

// Dispatch runs the worker, its exec step or an engine process if args[0] is "worker", "exec" or
// "engine", and then ends this process, with exit code 1 after an error, else 0. It does not print
// the error. For other args it returns and does nothing. args are the arguments of the process
// without its name.
func Dispatch(args, environ []string, stderr io.Writer) {
	if len(args) == 0 {
		return
	}
	var err error
	switch args[0] {
	case "worker":
		lockchecktest.Watch(stderr, func() { syscall.Exit(1) }) // the tests lose the worker then
		err = worker.Main(args[1:], detach.Whole{}, stderr)
	case "exec":
		err = execstep.Exec(environ)
	case "engine":
		serveEngine(args[1], environ, stderr)
	default:
		return
	}
	code := 0
	if err != nil {
		code = 1
	}
	// os.Exit would wait for a second under the race detector.
	syscall.Exit(code)
}

// serveEngine runs the engine process of that name on stdin and stdout until it is done. A SIGTERM
// cancels its context. The name codex and names that begin with acp: have engines of their own;
// any other name runs claude.
func serveEngine(name string, environ []string, stderr io.Writer) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	runner.Serve(ctx, os.Stdin, os.Stdout, runner.Options{
		Name: name, Version: "test", Environ: environ, Worker: os.Getenv(process.EnvWorker),
		Log: slog.New(slog.NewTextHandler(stderr, nil)),
		Engine: func(environ, extra []string) engine.Engine {
			switch {
			case strings.HasPrefix(name, "acp:"): // what an agent is comes with the call
				return acp.New(acp.Options{Env: environ, Extra: extra})
			case name == "codex":
				return codex.New(codex.Options{Env: environ, Extra: extra})
			}
			return claude.New(claude.Options{Env: environ, Extra: extra})
		},
	})
}
