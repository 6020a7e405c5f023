package rollout

import (
	"context"
	"os"
	"sync"
	"time"

	"holdline/daemon/waiting"
)

// reapLimit is how long a child of the older program may run. These children are short
// commands, for example to ask a consult program for its version. The code that waited
// for them ended with the older program.
const reapLimit = 30 * time.Second

// Reap waits for the children that the older program has started, so that they do not
// stay as zombies. It kills those that run longer than [reapLimit]. It blocks until all
// have ended or ctx is done; its goroutines end with the children.
func Reap(ctx context.Context, pids []int) {
	var children sync.WaitGroup
	for _, pid := range pids {
		child, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		children.Go(func() {
			defer time.AfterFunc(reapLimit, func() { _ = child.Kill() }).Stop()
			_, _ = child.Wait()
		})
	}
	_ = waiting.For(ctx, &children) // at the end of ctx the rest is left
}
