package sandbox

import (
	"fmt"
	"syscall"
)

// Landlock returns 0: this system has no Landlock.
func Landlock() int { return 0 }

// Confine always fails with [syscall.EOPNOTSUPP].
func Confine(_, _ []string) error { return fmt.Errorf("landlock: %w", syscall.EOPNOTSUPP) }
