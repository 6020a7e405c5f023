package worker

import (
	"errors"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// yieldMemory does nothing: this system has no order of whom it kills.
func yieldMemory() {}

// closeOnExec reports whether descriptor fd has the flag, or is none.
func closeOnExec(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err != nil || flags&unix.FD_CLOEXEC != 0
}

// adoptOrphans does nothing: this system has no subreapers.
func adoptOrphans() error { return nil }

// waitAny waits for a child to end and reaps it, then calls reaped with mu
// held. Between the two its pid could be reused; there is no wait here that
// leaves a zombie. It returns ECHILD when no child is left.
func waitAny(mu sync.Locker, reaped func(pid int)) (pid int, ws syscall.WaitStatus, err error) {
	for {
		pid, err = syscall.Wait4(-1, &ws, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err == nil {
			mu.Lock()
			reaped(pid)
			mu.Unlock()
		}
		return pid, ws, err
	}
}
