package sandbox

import (
	"fmt"
	"syscall"

	"holdline/protocol/process"
)

// Landlock returns 0: this system has no Landlock.
func Landlock() int { return 0 }

// filters reports that this system has no filter of system calls.
func filters() bool { return false }

// Confine always fails with [syscall.EOPNOTSUPP].
func Confine(*process.Confine) error { return fmt.Errorf("landlock: %w", syscall.EOPNOTSUPP) }
