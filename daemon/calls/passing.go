package calls

import (
	"errors"
	"syscall"
)

// Passes reports whether err is of those that pass: the same file may be read a moment later.
func Passes(err error) bool {
	for _, e := range []error{syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
