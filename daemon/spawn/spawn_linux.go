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

// dieWithParent sets the signal that this process gets when its parent ends.
func dieWithParent(sig int) error {
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(sig), 0, 0, 0)
}

// Reap blocks until process pid has ended and reaps it. It calls reaped with mu
// held, before another process can get the pid.
func Reap(pid int, mu sync.Locker, reaped func()) syscall.WaitStatus {
	// This leaves the process a zombie, which keeps the pid.
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), syscall.EINTR) {
	}
	mu.Lock()
	defer mu.Unlock()
	reaped()
	var ws syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &ws, 0, nil); !errors.Is(err, syscall.EINTR) {
			return ws
		}
	}
}
