package worker

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// oomAbove is how much sooner than the daemon the kernel is to kill a worker and
// what it runs when memory is short (proc_pid_oom_score_adj(5)).
const oomAbove = 100

// yieldMemory makes this process, and all that it starts, go before the daemon
// when memory is short. It does nothing where that is not permitted.
func yieldMemory() {
	const path = "/proc/self/oom_score_adj"
	b, err := os.ReadFile(path)
	if err != nil {
		return
	}
	now, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return
	}
	_ = os.WriteFile(path, strconv.AppendInt(nil, int64(min(now+oomAbove, 1000)), 10), 0)
}

// closeOnExec reports whether descriptor fd is close-on-exec, or not open.
func closeOnExec(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err != nil || flags&unix.FD_CLOEXEC != 0
}

// adoptOrphans makes this process the parent of each descendant whose own parent
// has ended.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// waitAny blocks until a child has ended. It reaps the child and calls reaped, both
// with mu held: until mu is unlocked no other process can have the pid. It returns
// ECHILD when no child is left.
func waitAny(mu sync.Locker, reaped func(pid int)) (pid int, ws syscall.WaitStatus, err error) {
	for {
		// This leaves the child a zombie.
		err = unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return 0, 0, err
		}
		mu.Lock()
		pid, err = syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if err == nil && pid > 0 {
			reaped(pid)
		}
		mu.Unlock()
		if pid > 0 || (err != nil && !errors.Is(err, syscall.EINTR)) {
			return pid, ws, err
		}
	}
}
