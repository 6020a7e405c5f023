package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
)

// Exhausted returns the fault for an error that says that this machine, or what
// holdline may use of it, has no disk space, files, processes or memory left; nil
// for any other error. No server is to blame for that, and it passes once there
// is room again, so it counts against none.
func Exhausted(operation string, err error) *Record {
	words := exhausted(err)
	if words == "" {
		return nil
	}
	r := New(ResourceExhausted, Host, operation, "%s. Holdline tries again by itself", words)
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		if name := errnoNames[errno]; name != "" {
			r.Cause = &Cause{Errno: &name}
		}
	}
	return r
}

// errnoNames are the errors that [Exhausted] is about, by what a worker calls
// them.
var errnoNames = map[syscall.Errno]string{
	syscall.ENOSPC: "ENOSPC", syscall.EDQUOT: "EDQUOT", syscall.EMFILE: "EMFILE", syscall.ENFILE: "ENFILE",
	syscall.EAGAIN: "EAGAIN", syscall.ENOMEM: "ENOMEM",
}

// ErrnoNamed returns the error that [Exhausted] is about and that goes by that
// name; nil if there is none.
func ErrnoNamed(name string) error {
	for errno, known := range errnoNames {
		if known == name {
			return errno
		}
	}
	return nil
}

// exhausted says in words what is used up and what to free; "" for nothing.
func exhausted(err error) string {
	at := ""
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		at = filepath.Dir(p.Path)
	}
	place := func(what string) string {
		if at == "" {
			return what
		}
		return fmt.Sprintf("%s at %s", what, at)
	}
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return place("the disk is full") + ": free some space there"
	case errors.Is(err, syscall.EDQUOT):
		return place("your disk quota is used up") + ": free some space there"
	case errors.Is(err, syscall.EMFILE):
		return "holdline has as many files open as it may: end agents or servers that are not needed, or raise the limit (ulimit -n)"
	case errors.Is(err, syscall.ENFILE):
		return "this machine has as many files open as it can: end programs that are not needed"
	case errors.Is(err, syscall.EAGAIN):
		return "no more processes can be started: end programs that are not needed, or raise the limit (ulimit -u)"
	case errors.Is(err, syscall.ENOMEM):
		return "the memory is used up: end programs that are not needed"
	}
	return ""
}
