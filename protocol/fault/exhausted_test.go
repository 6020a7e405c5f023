package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

// TestExhausted checks which errors mean that this machine has no room, and what to free.
func TestExhausted(t *testing.T) {
	for _, c := range []struct {
		err  error
		says []string
	}{
		{
			fmt.Errorf("generation counter: %w",
				&fs.PathError{Op: "write", Path: "/home/u/state/.generation.1", Err: syscall.ENOSPC}),
			[]string{"/home/u/state", "free some space"},
		},
		{&fs.PathError{Op: "write", Path: "/home/u/x", Err: syscall.EDQUOT}, []string{"quota", "/home/u"}},
		{syscall.EMFILE, []string{"ulimit -n"}},
		{syscall.ENFILE, []string{"this machine"}},
		{fmt.Errorf("fork: %w", syscall.EAGAIN), []string{"ulimit -u"}},
		{errors.Join(errors.New("other"), syscall.ENOMEM), []string{"memory"}},
	} {
		r := Exhausted("op", c.err)
		if r == nil || r.Fault.Code != ResourceExhausted || r.Stage != Host || r.Cause == nil || r.Cause.Errno == nil {
			t.Errorf("%v: %+v", c.err, r)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(r.Fault.Detail, s) {
				t.Errorf("%v: %q does not say %q", c.err, r.Fault.Detail, s)
			}
		}
		if err := ErrnoNamed(*r.Cause.Errno); !errors.Is(c.err, err) {
			t.Errorf("%v is called %s, which is %v", c.err, *r.Cause.Errno, err)
		}
	}
	// An error that only mentions such an error is not one.
	for _, err := range []error{
		nil, errors.New("no space left on device"), syscall.ENOENT, New(Timeout, Host, "op", "ENOSPC"),
	} {
		if r := Exhausted("op", err); r != nil {
			t.Errorf("%v: %+v", err, r)
		}
	}
}
