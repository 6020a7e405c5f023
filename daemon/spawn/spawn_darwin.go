package spawn

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

// Self returns the path of the running executable. macOS has no name for the
// image that runs, so a replaced file is a newer version.
func Self() (string, error) { return os.Executable() }

// childAttr puts the child into a process group of its own.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// dieWithParent does nothing: macOS has no parent-death signal.
func dieWithParent(int) error { return nil }

// Reap blocks until process pid has ended, reaps it and then calls reaped with
// mu held. In between another process can get the pid: macOS has no wait that
// leaves a zombie.
func Reap(pid int, mu sync.Locker, reaped func()) syscall.WaitStatus {
	var ws syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &ws, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	mu.Lock()
	defer mu.Unlock()
	reaped()
	return ws
}
