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

// yieldMemory has the kernel kill this process, and what it starts, before the daemon when memory
// is short. It ignores errors.
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

// adoptOrphans makes this process a subreaper: the parent of descendants whose own parent ended.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
