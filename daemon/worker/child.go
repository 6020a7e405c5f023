package worker

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"holdline/daemon/spawn"
	"holdline/daemon/worker/detach"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// parent forks the child, lets it become the program, and reaps it; where the worker is a
// subreaper, it reaps all descendants, too. It blocks until they have ended, and keeps its thread
// until then: the child gets its parent-death signal when the thread that forked it ends. It
// closes w.forked when the child's pid is known or the fork has failed, and records how the child
// ended, also if it did not start. It takes w.mu.
//
// The child becomes the program only after state.json has its pid. A daemon that finds the worker
// dead can then kill the child; an unrecorded one would live on. If state.json cannot be written,
// the child exits without becoming the program.
func (w *worker) parent(c *spawn.Child) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer w.recordNoChildren()
	pid, err := c.Fork(w.whole, w.env, w.dir)
	if w.whole != "" {
		detach.CloseWhole()
	}
	if err != nil {
		w.logf("fork: %v", err)
		w.recordExit(spawn.Failed("fork", err))
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
	// From here on the child is recorded. It still waits for Release.
	err = w.saveState()
	faultpoint.At("worker.recorded")
	if err == nil {
		err = c.Release(process.ExecRequest{
			Argv: w.spec.Argv, Cwd: w.spec.Cwd,
			ParentDeathSignal: int(unix.SignalNum(w.spec.ParentDeathSignal)), Confine: w.spec.Confine, Data: w.data,
		})
	} else {
		c.Discard()
	}
	if err != nil {
		w.logf("start child: %v", err)
	}
	failed := make(chan process.Exit, 1)
	w.wg.Go(func() {
		exit := c.AwaitExec()
		if exit.SpawnErrno == "" {
			w.mu.Lock()
			w.moveChildLocked(childRunning)
			w.mu.Unlock()
		}
		failed <- exit
	})
	w.reap(pid, func(ws syscall.WaitStatus) {
		// This does not block for long: the pipe ends with the child at the latest.
		w.recordExit(spawn.ExitOf(<-failed, err, ws))
	})
}

// reap reaps children of this process until none is left. When it reaps pid it moves the child to
// childReaped, and then calls ended with its status, without w.mu. It takes w.mu, and blocks.
func (w *worker) reap(pid int, ended func(syscall.WaitStatus)) {
	for {
		got, ws, err := spawn.Reap(spawn.AnyChild, &w.mu, func(got int) {
			if got == pid {
				w.moveChildLocked(childReaped) // its group is not to be signalled any more
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
