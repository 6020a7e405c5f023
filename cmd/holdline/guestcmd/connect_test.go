package guestcmd

import (
	"errors"
	"testing"

	"holdline/protocol/control"
)

// TestAbsent checks that a daemon which answers is not said to be gone.
func TestAbsent(t *testing.T) {
	for want, err := range map[string]error{
		"the configuration has no socket box": &control.RemoteError{Message: "the configuration has no socket box"},
		"the daemon is gone: stopped":         errors.New("stopped"),
	} {
		if got := (&absentError{err}).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
