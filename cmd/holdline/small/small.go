// Package small is the program holdline-stdio: the proxy of package stdio and the worker of
// package worker. Many of both run at the same time, so they are one program, whose pages all
// of them share.
//
// What this package imports is in every one of them: cmd/e2e TestSmallProgram holds the list.
package small

import (
	"errors"
	"fmt"
	"io"
	"os"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/pair"
	"holdline/cmd/holdline/stdio"
	"holdline/daemon/worker"
	"holdline/daemon/worker/detach"
)

// Main runs this process as holdline-stdio, with its own arguments, environment and standard
// streams, and returns the exit code. Without the name of the worker it is the proxy.
func Main() int {
	if len(os.Args) < 2 || os.Args[1] != pair.Worker {
		return stdio.Main()
	}
	cmdenv.KeepOwnerBits()
	whole := detach.Whole{Path: os.Getenv(pair.EnvWhole), Variable: pair.EnvWhole}
	return cmdenv.Report(os.Stderr, RunWorker(os.Args[2:], whole, os.Stderr))
}

// RunWorker is the command worker of both programs, which owns one child process. Only the
// daemon starts it, with the worker's directory as its argument. It blocks until the worker
// ends.
func RunWorker(args []string, whole detach.Whole, stderr io.Writer) error {
	switch err := worker.Main(args, whole, stderr); {
	case errors.Is(err, worker.ErrUsage):
		return fmt.Errorf("%w: worker [--run] DIR", cmdenv.ErrUsage)
	case err != nil:
		return fmt.Errorf("worker: %w", err)
	}
	return nil
}
