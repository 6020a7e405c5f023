package rollout

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// reapLimit is how long a child of the older program may run. These children are short
// commands, for example to ask a consult program for its version. The code that waited
// for them ended with the older program.
const reapLimit = 30 * time.Second

// Reap waits for the children that the older program has started, so that they do not
// stay as zombies. It kills those that run longer than [reapLimit]. It blocks until all
// have ended or ctx is done.
func Reap(ctx context.Context, pids []int) {
	if len(pids) == 0 {
		return
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	limit := time.After(reapLimit)
	for {
		if pids = unreaped(pids); len(pids) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ended:
		case <-limit:
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL) // not waited for, so the pid is still its own
			}
		}
	}
}

// unreaped reaps the children that have ended, and returns the others. It does not
// block.
func unreaped(pids []int) []int {
	var left []int
	for _, pid := range pids {
		got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		if got == 0 && err == nil || errors.Is(err, syscall.EINTR) {
			left = append(left, pid)
		}
	}
	return left
}
