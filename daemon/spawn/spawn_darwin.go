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

// DieWithParent does nothing: macOS has no parent-death signal.
func DieWithParent(int) error { return nil }

// Reap blocks until the child pid has ended, or one of all children for [AnyChild]. It reaps
// the child, and then calls reaped with mu held. In between another process can get the pid:
// macOS has no wait that leaves a zombie. It returns ECHILD if there is no child.
func Reap(pid int, mu sync.Locker, reaped func(pid int)) (got int, ws syscall.WaitStatus, err error) {
	for {
		if got, err = syscall.Wait4(pid, &ws, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err == nil {
		mu.Lock()
		defer mu.Unlock()
		reaped(got)
	}
	return got, ws, err
}
