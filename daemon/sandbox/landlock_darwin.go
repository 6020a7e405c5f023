package sandbox

import (
	"fmt"
	"syscall"
)

// Landlock is 0: this system has none.
func Landlock() int { return 0 }

// Confine is not to be had: the error is [syscall.EOPNOTSUPP].
func Confine(_, _ []string) error { return fmt.Errorf("landlock: %w", syscall.EOPNOTSUPP) }
