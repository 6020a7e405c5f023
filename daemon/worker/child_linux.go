package worker

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// oomAbove is how much sooner than the daemon the kernel is to kill a worker and
// what it runs when memory is short (proc_pid_oom_score_adj(5)).
const oomAbove = 100

// yieldMemory raises the oom score of this process, which all that it starts inherits, so that the
// kernel kills these before the daemon when memory is short. It ignores errors: it does nothing
// where that is not permitted.
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

// adoptOrphans makes this process a subreaper: it becomes the parent of each descendant whose own
// parent has ended. It returns the error of prctl(2).
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
