// Package command runs programs and waits for them. Each program has a process group of
// its own, which is killed as a whole when the context ends, and does not outlive the
// program. A bounded part of what the program prints is kept.
//
// The package also finds programs on a PATH and composes environments. It does not read
// the environment of this process: a program gets the one that it is given.
package command

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// grace is how long a process that the program left behind may hold the output open,
// once the program has ended or was killed.
const grace = 500 * time.Millisecond

// ErrOutput is the error of a strict command that printed more than is kept.
var ErrOutput = errors.New("it printed more than is kept")

// Command is a program to be run, with nothing on its standard input.
type Command struct {
	Path   string
	Args   []string // behind the name
	Name   string   // by which it is called; "" is Path
	Env    []string // all of it; nil is none
	Dir    string
	Stdout int  // bytes that are kept of what it prints
	Stderr int  // the same of standard error
	Strict bool // a program that prints more is ended, with [ErrOutput]; else the rest is dropped
	// Session gives the program a session of its own, without the terminal of
	// this process. On Linux it then also dies with this process.
	Session bool
}

// Output is what a program printed, as far as it is kept.
type Output struct {
	Stdout, Stderr []byte
	Cut            bool // more was printed than was kept, of one of them
	Held           bool // a process that the program left behind held them open
}

// Run runs the program and blocks until it has ended. The error is the cause of ctx if
// that has ended, an [*exec.ExitError] if the program failed, [ErrOutput] if a strict
// program printed too much, or the reason why the program could not be started.
// Processes that the program left in its group are killed.
func (c *Command) Run(ctx context.Context) (Output, error) {
	inner, end := context.WithCancelCause(ctx)
	defer end(nil)
	over := func() {
		if c.Strict {
			end(ErrOutput)
		}
	}
	stdout, stderr := &capped{left: c.Stdout, over: over}, &capped{left: c.Stderr, over: over}
	cmd := exec.CommandContext(inner, c.Path, c.Args...)
	if c.Name != "" {
		cmd.Args[0] = c.Name
	}
	cmd.Env = append([]string{}, c.Env...) // nil would be this process's own
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.Dir, stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !c.Session, Setsid: c.Session}
	if c.Session {
		// The signal comes when the thread ends that started the program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		dieWithParent(cmd.SysProcAttr)
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = grace
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	out := Output{Stdout: stdout.buf.Bytes(), Stderr: stderr.buf.Bytes(), Cut: stdout.cut.Load() || stderr.cut.Load()}
	switch {
	case inner.Err() != nil:
		return out, context.Cause(inner)
	case errors.Is(err, exec.ErrWaitDelay):
		out.Held = true
		return out, nil
	}
	return out, err
}

// capped is a writer that keeps the first bytes and drops the rest. It calls over
// once, when something is dropped.
type capped struct {
	buf  bytes.Buffer // not embedded: its ReadFrom would go round the limit
	left int
	cut  atomic.Bool
	over func()
}

// Write never fails.
func (w *capped) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.buf.Write(p[:n])
	w.left -= n
	if n < len(p) && !w.cut.Swap(true) {
		w.over()
	}
	return len(p), nil
}
