package guestcmd

import (
	"errors"
	"strings"
	"testing"

	"holdline/cmd/holdline/cmdenv"
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

// TestHostIsAnOption_ConnectRefuses checks that ssh is never given a host of which a part is an
// option.
func TestHostIsAnOption_ConnectRefuses(t *testing.T) {
	for _, host := range []string{"x@-oProxyCommand=x", "-oProxyCommand=x", "ssh://x@-oX", "a b"} {
		cmd := NewConnectCommand(&cmdenv.Process{})
		cmd.SetArgs([]string{"--", host})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.Execute(); !errors.Is(err, cmdenv.ErrUsage) || !strings.Contains(err.Error(), "dash") {
			t.Errorf("%q: %v", host, err)
		}
	}
}
