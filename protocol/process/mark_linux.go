package process

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// SetMark gives this process, and all that will come from it, the mark of the worker of dir. It changes
// nothing if the process has a lower limit already, or if the system has no such limit.
func SetMark(dir string) {
	var now unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_RTTIME, &now) != nil {
		return
	}
	first := Mark(markFirst)
	if above := Mark(now.Max); now.Max != unix.RLIM_INFINITY {
		if first = above>>markBits - 1; first < markLast || first >= markFirst {
			return
		}
	}
	limit := uint64(first<<markBits | markOf(dir))
	_ = unix.Setrlimit(unix.RLIMIT_RTTIME, &unix.Rlimit{Cur: min(now.Cur, limit), Max: limit})
}

// MarkOf returns the mark of a process of this user; 0 if it has none.
func MarkOf(pid int) Mark {
	var limit unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &limit) != nil {
		return 0
	}
	if first := limit.Max >> markBits; first < markLast || first > markFirst {
		return 0
	}
	return Mark(limit.Max)
}

// isStray reports whether neither p nor a process above it is a worker, or this process: then p does not
// belong to what a living worker, or this process, has started.
func isStray(p Proc) bool {
	self := os.Getpid()
	if self == 1 { // as the first process of a container, it gets all orphans
		self = 0
	}
	for at, tries := p, 0; tries < 1000; tries++ {
		if at.PID == self || WorkerDir(Args(at.PID)) != "" {
			return false
		}
		if at.PPID <= 1 {
			return at.PPID == 1
		}
		up, err := Lookup(at.PPID)
		switch {
		case up.PID != 0: // also one that has ended, and whose children still have it for their parent
			at = up
		case !errors.Is(err, ErrGone):
			return false // it cannot be known; the next hunt will see
		default: // its children have another parent by now
			if at, err = Lookup(p.PID); err != nil || at.Start != p.Start {
				return false
			}
		}
	}
	return false
}
