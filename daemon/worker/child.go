package worker

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// pipes are the ends that the worker keeps and those that the child gets.
type pipes struct {
	stdin, stdout, stderr, start, status *os.File // ours
	theirs                               []*os.File
}

func makePipes() (*pipes, error) {
	p := &pipes{}
	for i, ours := range []**os.File{&p.stdin, &p.stdout, &p.stderr, &p.start, &p.status} {
		r, w, err := os.Pipe()
		if err != nil {
			p.close()
			return nil, err
		}
		if i == 0 || i == 3 { // stdin and start are written by the worker
			*ours = w
			p.theirs = append(p.theirs, r)
		} else {
			*ours = r
			p.theirs = append(p.theirs, w)
		}
	}
	return p, nil
}

func (p *pipes) close() {
	for _, f := range append(p.theirs, p.stdin, p.stdout, p.stderr, p.start, p.status) {
		if f != nil {
			_ = f.Close()
		}
	}
}

// parent forks the child and reaps it and, where the worker is a subreaper,
// all that came from it. It keeps its thread, since the child is sent its
// parent-death signal when the thread that forked it ends.
func (w *worker) parent(p *pipes) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer w.noMoreChildren()
	pid, errno := w.fork(p)
	for _, f := range p.theirs {
		_ = f.Close()
	}
	if errno != 0 {
		_ = p.start.Close()
		_ = p.status.Close()
		w.childEnded(process.Exit{SpawnErrno: errnoName(errno), SpawnOp: "fork"})
		close(w.forked)
		return
	}
	child, err := process.Lookup(pid)
	if err != nil { // it is already dead
		child = process.Proc{PID: pid}
	}
	faultpoint.At("worker.forked")
	w.mu.Lock()
	w.child = child
	w.mu.Unlock()
	close(w.forked)
	// Only now is the child on record, and may become the program.
	err = w.saveState()
	faultpoint.At("worker.recorded")
	if err == nil {
		err = writeRequest(p.start, &process.ExecRequest{
			Argv: w.spec.Argv, Cwd: w.spec.Cwd, Parent: w.self.PID,
			ParentDeathSignal: int(unix.SignalNum(w.spec.ParentDeathSignal)), Confine: w.spec.Confine,
		})
	}
	if err != nil {
		w.logf("start child: %v", err)
	}
	_ = p.start.Close() // without a request the exec step leaves
	failed := make(chan process.Exit, 1)
	w.wg.Go(func() {
		failed <- w.spawned(p.status)
	})
	w.reap(pid, func(ws syscall.WaitStatus) {
		exit := <-failed // known: the pipe ends with the child at the latest
		switch {
		case exit.SpawnErrno != "":
		case err != nil:
			exit = process.Exit{SpawnErrno: errnoOf(err, "EIO"), SpawnOp: "record"}
		default:
			exit = exitOf(ws)
		}
		w.childEnded(exit)
	})
}

// reap reaps until no child is left, and calls ended for the one with pid.
func (w *worker) reap(pid int, ended func(syscall.WaitStatus)) {
	for {
		got, ws, err := waitAny(&w.mu, func(got int) {
			if got == pid {
				w.reaped = true // its group is not to be signalled any more
			}
		})
		if err != nil {
			return
		}
		if got == pid {
			ended(ws)
		}
	}
}

// fork starts the exec step.
func (w *worker) fork(p *pipes) (int, syscall.Errno) {
	exe, err := self()
	if err == nil {
		env := make([]string, 0, len(w.env)+1)
		for _, v := range w.env {
			if !strings.HasPrefix(v, process.EnvWorker+"=") {
				env = append(env, v)
			}
		}
		env = append(env, process.EnvWorker+"="+w.spec.ID)
		files := make([]uintptr, len(p.theirs))
		for i, f := range p.theirs {
			files[i] = f.Fd()
		}
		var pid int
		pid, err = syscall.ForkExec(exe, []string{"holdline", "exec"}, &syscall.ProcAttr{
			Env: env, Files: files, Sys: childAttr(),
		})
		if err == nil {
			return pid, 0
		}
	}
	w.logf("fork: %v", err)
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return 0, errno
	}
	return 0, syscall.EINVAL
}

// spawned waits until the exec step has become the child or has failed.
func (w *worker) spawned(status *os.File) process.Exit {
	b, err := io.ReadAll(io.LimitReader(status, 4<<10))
	_ = status.Close()
	var f process.ExecFailure
	switch {
	case err == nil && len(b) == 0:
		w.mu.Lock()
		w.running = true
		w.mu.Unlock()
		w.poke()
	case json.Unmarshal(b, &f) == nil && f.Errno != 0:
		return process.Exit{SpawnErrno: errnoName(syscall.Errno(f.Errno)), SpawnOp: f.Op}
	default:
		return process.Exit{SpawnErrno: "EIO", SpawnOp: "exec"}
	}
	return process.Exit{}
}

// errnoOf is the name of the system's error in err, or of another one if there is
// none.
func errnoOf(err error, other string) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errnoName(errno)
	}
	return other
}

func errnoName(errno syscall.Errno) string {
	if name := unix.ErrnoName(errno); name != "" {
		return name
	}
	return errno.Error()
}

func exitOf(ws syscall.WaitStatus) process.Exit {
	if ws.Signaled() {
		return process.Exit{Signal: unix.SignalName(ws.Signal())}
	}
	code := ws.ExitStatus()
	return process.Exit{Code: &code}
}
