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
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
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
	var outlets [2]outlet
	defer func() {
		for i := range outlets {
			outlets[i].close()
		}
	}()
	for i, most := range []int{c.Stdout, c.Stderr} {
		outlets[i].text = capped{left: most, over: over}
		if err := outlets[i].open(); err != nil {
			return Output{}, err
		}
	}
	stdout, stderr := &outlets[0], &outlets[1]
	cmd := exec.CommandContext(inner, c.Path, c.Args...)
	if c.Name != "" {
		cmd.Args[0] = c.Name
	}
	cmd.Env = append([]string{}, c.Env...) // nil would be this process's own
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.Dir, stdout.w, stderr.w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !c.Session, Setsid: c.Session}
	if c.Session {
		// The signal comes when the thread ends that started the program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		dieWithParent(cmd.SysProcAttr)
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = grace
	if err := cmd.Start(); err != nil {
		if inner.Err() != nil {
			return Output{}, context.Cause(inner)
		}
		return Output{}, err
	}
	// A program that was started is waited for, even if the time is over by now.
	var reading sync.WaitGroup
	for i := range outlets {
		reading.Go(outlets[i].read)
	}
	err := cmd.Wait()
	late := time.Now().Add(grace)
	for i := range outlets {
		_ = outlets[i].r.SetReadDeadline(late)
	}
	reading.Wait()
	// The time may have passed because this process did not run. Then all that the program has written is there.
	stdout.drain()
	stderr.drain()
	out := Output{Held: !stdout.over || !stderr.over}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	out.Stdout, out.Stderr = stdout.text.buf.Bytes(), stderr.text.buf.Bytes()
	if out.Cut = stdout.text.cut.Load() || stderr.text.cut.Load(); inner.Err() != nil {
		return out, context.Cause(inner)
	}
	return out, err
}

// An outlet is a pipe to which the program writes.
type outlet struct {
	r, w *os.File // w is nil once this process has closed it
	text capped
	over bool // all was read; used by one goroutine at a time
}

// open makes the pipe.
func (o *outlet) open() (err error) {
	o.r, o.w, err = os.Pipe()
	return err
}

// close closes what is open of the pipe.
func (o *outlet) close() {
	for _, f := range []*os.File{o.r, o.w} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// read closes this process's end for writing, and reads until no process holds the pipe open for writing, or until
// the deadline.
func (o *outlet) read() {
	_ = o.w.Close()
	o.w = nil
	_, err := io.Copy(&o.text, o.r)
	o.over = err == nil
}

// maxPipe is the most that a pipe holds, in bytes.
const maxPipe = 1 << 20

// drain reads what lies in the pipe, and does not wait for more.
func (o *outlet) drain() {
	if o.over || o.r.SetReadDeadline(time.Time{}) != nil {
		return
	}
	raw, err := o.r.SyscallConn()
	if err != nil {
		return
	}
	b := make([]byte, 64<<10)
	for left, n := maxPipe, 1; n > 0 && left > 0; left -= n {
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			n, rerr = syscall.Read(int(fd), b)
			return true
		})
		if n = max(n, 0); err != nil || rerr != nil {
			return
		}
		_, _ = o.text.Write(b[:n])
		o.over = n == 0
	}
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
