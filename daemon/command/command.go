// Package command runs programs that are waited for: in a process group of
// their own, which is killed whole when the context ends and does not outlive
// the program, with a bounded part of what they print.
//
// It reads no environment: a program gets the one that it is given.
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

// grace is how long output may be held open, by something that was left behind,
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
	Strict bool // one that prints more is ended, with [ErrOutput]; else the rest is swallowed
	// Session gives the program a session of its own, without the terminal of
	// this process. On Linux it then also dies with this process.
	Session bool
}

// Output is what a program printed, as far as it is kept.
type Output struct {
	Stdout, Stderr []byte
	Cut            bool // of one of them more was printed
	Held           bool // something that it left behind held them open
}

// Run runs the program and waits for it. The error is the cause of ctx if that
// has ended, an [*exec.ExitError] if the program failed, [ErrOutput], or why it
// could not be started. What it left behind in its group is killed.
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

// capped keeps the first bytes that are written to it.
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
