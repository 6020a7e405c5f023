// Package spawn starts a program as a child process by way of the command
// "holdline exec" (package execstep).
//
// The command first waits on a pipe, the go-pipe. So the parent can write the pid to disk before the program runs,
// and a parent that dies in between leaves nothing behind: the exec step sees
// the end of the pipe and exits. Then it sets its parent-death signal, changes
// directory, applies Landlock and becomes the program. If one of these steps
// fails it says which one on a second pipe, the failure pipe.
//
// The package starts no goroutines.
package spawn

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/lockcheck"
	"holdline/protocol/process"
)

// File descriptors of the exec step beside the program's first three.
const (
	FDGo     = 3 // read end of the go-pipe: [process.ExecRequest]
	FDStatus = 4 // write end of the failure pipe: [process.ExecFailure]; a successful exec closes it
)

// Child is a program that is started in three steps: [New] makes the pipes,
// [Child.Fork] starts the exec step, [Child.Release] turns that into the
// program. [Child.AwaitExec] then says whether it became the program.
type Child struct {
	// Our ends of the program's stdin, stdout and stderr. The caller closes
	// them.
	Stdin, Stdout, Stderr *os.File

	start  *os.File // write end of the go-pipe
	status *os.File // read end of the failure pipe
	theirs []*os.File
}

// New makes the pipes of a child. The caller then calls [Child.Fork].
func New() (*Child, error) {
	c := &Child{}
	for i, ours := range []**os.File{&c.Stdin, &c.Stdout, &c.Stderr, &c.start, &c.status} {
		r, w, err := os.Pipe()
		if err != nil {
			for _, f := range append(c.theirs, c.Stdin, c.Stdout, c.Stderr, c.start, c.status) {
				_ = f.Close() // closing nil is an error and nothing else
			}
			return nil, err
		}
		if i == 0 || i == 3 { // stdin and the go-pipe are written by the parent
			*ours, c.theirs = w, append(c.theirs, r)
		} else {
			*ours, c.theirs = r, append(c.theirs, w)
		}
	}
	return c, nil
}

// Fork starts the exec step with the environment env in a process group of its
// own and returns its pid. exe is the path of holdline; "" stands for
// [Self]. workerDir is set as [process.EnvWorker] in place of any other value;
// with an empty one the variable is left out.
//
// On Linux the child is killed when the calling thread ends. The caller must
// have locked its goroutine to the thread and must stay there until the child
// has been reaped.
//
// The error is a [syscall.Errno]. After it the pipes of the exec step are
// closed, and the caller needs neither Release nor AwaitExec.
func (c *Child) Fork(exe string, env []string, workerDir string) (pid int, err error) {
	lockcheck.Blocking("fork")
	defer func() {
		for _, f := range c.theirs {
			_ = f.Close()
		}
		if err != nil {
			_ = c.start.Close()
			_ = c.status.Close()
		}
	}()
	if exe == "" {
		exe, err = Self()
	}
	if err == nil {
		files := make([]uintptr, len(c.theirs))
		for i, f := range c.theirs {
			files[i] = f.Fd()
		}
		pid, err = syscall.ForkExec(exe, []string{"holdline", "exec"}, &syscall.ProcAttr{
			Env: withWorker(env, workerDir), Files: files, Sys: childAttr(),
		})
	}
	if err == nil {
		return pid, nil
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return 0, errno
	}
	return 0, syscall.EINVAL
}

// withWorker returns env with [process.EnvWorker] set to dir alone.
func withWorker(env []string, dir string) []string {
	out := make([]string, 0, len(env)+1)
	for _, v := range env {
		if !strings.HasPrefix(v, process.EnvWorker+"=") {
			out = append(out, v)
		}
	}
	if dir != "" {
		out = append(out, process.EnvWorker+"="+dir)
	}
	return out
}

// Release lets the exec step become the program of r. The parent in r is set
// to this process. Without Release the exec step waits; see [Child.Discard].
func (c *Child) Release(r process.ExecRequest) error {
	r.Parent = os.Getpid()
	_, err := c.start.Write(jsonrpc.Encode(r))
	_ = c.start.Close()
	return err
}

// Discard lets the exec step exit without becoming a program.
func (c *Child) Discard() { _ = c.start.Close() }

// AwaitExec blocks until the exec step has become the program or has failed.
// The result is the zero Exit in the first case, else it has SpawnErrno and
// SpawnOp.
func (c *Child) AwaitExec() process.Exit {
	b, err := io.ReadAll(io.LimitReader(c.status, 4<<10))
	_ = c.status.Close()
	var f process.ExecFailure
	switch {
	case err == nil && len(b) == 0:
		return process.Exit{}
	case json.Unmarshal(b, &f) == nil && f.Errno != 0:
		return process.Exit{SpawnErrno: process.ErrnoName(syscall.Errno(f.Errno)), SpawnOp: f.Op}
	}
	return process.Exit{SpawnErrno: "EIO", SpawnOp: "exec"}
}

// AnyChild as the pid of [Reap] is any child of this process.
const AnyChild = -1

// Failed returns the Exit of a child that was never started: op is the step
// that failed with err.
func Failed(op string, err error) process.Exit {
	name := "EIO"
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		name = process.ErrnoName(errno)
	}
	return process.Exit{SpawnErrno: name, SpawnOp: op}
}

// ExitOf returns how a child ended that was reaped with status ws. failed is the result of
// [Child.AwaitExec], and err is why the child was not released, or nil.
func ExitOf(failed process.Exit, err error, ws syscall.WaitStatus) process.Exit {
	switch {
	case failed.SpawnErrno != "":
		return failed
	case err != nil:
		return Failed("release", err)
	case ws.Signaled():
		return process.Exit{Signal: unix.SignalName(ws.Signal())}
	}
	return process.Exit{Code: new(ws.ExitStatus())}
}
