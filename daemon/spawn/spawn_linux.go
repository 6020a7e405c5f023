package spawn

import (
	"errors"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Self returns a path of the running executable. It stays valid when the file
// is replaced by a newer version.
func Self() (string, error) { return "/proc/self/exe", nil }

// childAttr puts the child into a process group of its own. The parent-death
// signal holds until the exec step sets that of its request.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// DieWithParent sets the signal that this process gets when its parent ends.
func DieWithParent(sig int) error {
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(sig), 0, 0, 0)
}

// Reap blocks until the child pid has ended, or one of all children for [AnyChild]. It reaps
// the child and calls reaped, both with mu held: until mu is unlocked no other process can
// have the pid. It returns ECHILD if there is no child.
func Reap(pid int, mu sync.Locker, reaped func(pid int)) (got int, ws syscall.WaitStatus, err error) {
	kind, id := unix.P_PID, pid
	if pid == AnyChild {
		kind, id = unix.P_ALL, 0
	}
	for {
		// This leaves the child a zombie, which keeps the pid.
		err = unix.Waitid(kind, id, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			mu.Lock()
			got, err = syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
			if err == nil && got > 0 {
				reaped(got)
			}
			mu.Unlock()
		}
		if got > 0 || err != nil && !errors.Is(err, syscall.EINTR) {
			return got, ws, err
		}
	}
}
