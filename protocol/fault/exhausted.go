package fault

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
)

// Exhausted returns the fault for an error that says that this machine, or what
// holdline may use of it, has no disk space, files, processes or memory left; nil
// for any other error. No server is to blame for that, and it passes once there
// is room again, so it counts against none.
func Exhausted(operation string, err error) *Record {
	for _, what := range exhaustions {
		if !errors.Is(err, what.errno) {
			continue
		}
		words := what.words
		if p, ok := errors.AsType[*fs.PathError](err); ok && what.advice != "" {
			words += " at " + filepath.Dir(p.Path)
		}
		r := New(ResourceExhausted, Host, operation, "%s. Holdline tries again by itself", words+what.advice)
		r.Cause = &Cause{Errno: &what.name}
		return r
	}
	return nil
}

// exhaustion is a resource that may be used up.
type exhaustion struct {
	errno  syscall.Errno
	name   string // of errno, as a worker reports it
	words  string // what is used up, and what to free
	advice string // follows the path, for resources that a path belongs to
}

// exhaustions are the errors that [Exhausted] knows.
var exhaustions = []exhaustion{
	{syscall.ENOSPC, "ENOSPC", "the disk is full", ": free some space there"},
	{syscall.EDQUOT, "EDQUOT", "your disk quota is used up", ": free some space there"},
	{syscall.EMFILE, "EMFILE", "holdline has as many files open as it may: " +
		"end agents or servers that are not needed, or raise the limit (ulimit -n)", ""},
	{syscall.ENFILE, "ENFILE", "this machine has as many files open as it can: end programs that are not needed", ""},
	{syscall.EAGAIN, "EAGAIN", "no more processes can be started: " +
		"end programs that are not needed, or raise the limit (ulimit -u)", ""},
	{syscall.ENOMEM, "ENOMEM", "the memory is used up: end programs that are not needed", ""},
}

// ErrnoNamed returns the error with that name if [Exhausted] knows it, else nil.
func ErrnoNamed(name string) error {
	for _, what := range exhaustions {
		if what.name == name {
			return what.errno
		}
	}
	return nil
}
