package supervisor

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

	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/workerwire"
)

// maxReport bounds the report of a new worker, in bytes.
const maxReport = 64 << 10

// errVanished says that the worker ended without a report.
var errVanished = errors.New("the worker ended before it listened")

// vanishedError marks a fault of a start whose worker was killed, as far as is
// known.
type vanishedError struct{ *fault.Record }

// Unwrap returns the fault.
func (e vanishedError) Unwrap() error { return e.Record }

// Vanished reports whether the err of [Supervisor.Start] means that the worker
// ended before it listened, without a report: it was most likely killed, and another
// start may succeed.
func Vanished(err error) bool {
	_, ok := errors.AsType[vanishedError](err)
	return ok
}

// launch runs the worker of dir and returns when it listens.
func (s *Supervisor) launch(ctx context.Context, dir string, env workerwire.Environment) error {
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

	// This process only starts the worker and leaves, so that the worker is
	// not the daemon's child.
	var words bytes.Buffer
	cmd := exec.CommandContext(ctx, s.o.Exe, "worker", dir)
	cmd.Args[0] = "holdline"
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stderr = &limited{w: &words, left: maxReport}
	cmd.ExtraFiles = []*os.File{envR, readyW}
	cmd.WaitDelay = time.Second
	err = cmd.Start()
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
	var writing sync.WaitGroup
	defer writing.Wait()
	defer func() { _ = readyR.Close() }()
	writing.Go(func() {
		_, _ = envW.Write(jsonrpc.Encode(env)) // a worker that is gone reports nothing
		_ = envW.Close()
	})
	if err := cmd.Wait(); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if ok && exit.ExitCode() < 0 && ctx.Err() == nil {
			return fmt.Errorf("%w: %w", errVanished, err)
		}
		if r, rerr := readReport(readyR); ok && rerr == nil && r.Error != nil {
			return r.Error
		}
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(words.Bytes()))
	}
	r, err := readReport(readyR)
	switch {
	case errors.Is(err, errVanished) && ctx.Err() != nil:
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
		return r, errVanished
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
