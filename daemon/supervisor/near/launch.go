// Package near starts the processes of workers on this machine, and kills what is left of them.
// A supervisor uses it for its workers, and so does the program that starts workers here for a
// daemon on another machine (package farside).
package near

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/workerwire"
)

// maxReport bounds the report of a new worker, in bytes.
const maxReport = 64 << 10

// ErrVanished says that the worker ended without a report.
var ErrVanished = errors.New("the worker ended before it listened")

// startTimeout is from the start of the process to its report, the time for its control group included.
const startTimeout = 20 * time.Second

// Launch runs the worker of dir, which has its spec, and returns when it listens. exe is the
// program that has the worker and exec commands. place, if it is not nil, is called with the pid of
// the worker before that runs, and returns the RLIMIT_DATA of its child.
func Launch(
	ctx context.Context, exe, dir string, env workerwire.Environment, place func(ctx context.Context, pid int) int64,
) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("worker did not report in time"))
	defer cancel()
	envR, envW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = envW.Close() }()
	readyR, readyW, err := os.Pipe()
	if err != nil {
		_ = envR.Close()
		return err
	}
	defer func() { _ = readyR.Close() }()

	// This process only starts the worker and leaves, so that the worker is not the daemon's child.
	var words bytes.Buffer
	cmd := exec.CommandContext(ctx, exe, "worker", dir)
	cmd.Args[0] = "holdline"
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stderr = &limited{w: &words, left: maxReport}
	cmd.ExtraFiles = []*os.File{envR, readyW}
	cmd.WaitDelay = time.Second
	stdin, err := cmd.StdinPipe() // its end lets the process start the worker
	if err == nil {
		err = cmd.Start()
	}
	_ = envR.Close()
	_ = readyW.Close()
	if err != nil {
		return err
	}
	faultpoint.At("launch.started")
	stop := context.AfterFunc(ctx, func() {
		_ = envW.SetWriteDeadline(time.Now())
		_ = readyR.SetReadDeadline(time.Now())
	})
	defer stop()
	if place != nil {
		env.Data = place(ctx, cmd.Process.Pid)
	}
	_ = stdin.Close()
	var writing sync.WaitGroup
	defer writing.Wait()
	defer func() { _ = readyR.Close() }()
	writing.Go(func() {
		_, _ = envW.Write(jsonrpc.Encode(env)) // a worker that is gone reports nothing
		_ = envW.Close()
	})
	// On a busy machine the time for its last words may pass before they are read: it has succeeded all the same.
	if err := cmd.Wait(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if ok && exit.ExitCode() < 0 && ctx.Err() == nil {
			return fmt.Errorf("%w: %w", ErrVanished, err)
		}
		if r, rerr := readReport(readyR); ok && rerr == nil && r.Error != nil {
			return r.Error
		}
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(words.Bytes()))
	}
	r, err := readReport(readyR)
	switch {
	case errors.Is(err, ErrVanished) && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case r.Error != nil:
		return r.Error
	}
	return nil
}

// readReport reads the report of a new worker.
func readReport(from io.Reader) (r workerwire.Report, err error) {
	line, err := bufio.NewReader(io.LimitReader(from, maxReport)).ReadBytes('\n')
	if err != nil {
		return r, ErrVanished
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("report: %w", err)
	}
	return r, nil
}

// limited is a writer that passes on the first bytes and drops the rest.
type limited struct {
	w    io.Writer
	left int
}

// Write never fails, so that the writer is not held up.
func (l *limited) Write(b []byte) (int, error) {
	n := min(len(b), l.left)
	l.left -= n
	_, _ = l.w.Write(b[:n])
	return len(b), nil
}
