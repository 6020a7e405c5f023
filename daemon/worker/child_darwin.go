package worker

import (
	"errors"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// yieldMemory does nothing: macOS has no order in which it kills processes.
func yieldMemory() {}

// closeOnExec reports whether descriptor fd is close-on-exec, or not open.
func closeOnExec(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err != nil || flags&unix.FD_CLOEXEC != 0
}

// adoptOrphans does nothing: this system has no subreapers.
func adoptOrphans() error { return nil }

// waitAny blocks until a child has ended and reaps it, then calls reaped with mu
// held. In between another process can get the pid: macOS has no wait that leaves a
// zombie. It returns ECHILD when no child is left.
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
