package e2e

import (
	"strings"
	"testing"
)

// TestStopped_PersonIsAsked checks that a command which needs a daemon asks at a terminal whether to start the one that
// was stopped: after a no it starts none, and after a yes it does its work.
func TestStopped_PersonIsAsked(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.env = append(p.env, "TERM=xterm", "COLUMNS=80")
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
	p.must("stop")
	for _, c := range []struct {
		typed string
		code  int
	}{{"n\r", exitNoDaemon}, {"y\r", exitOK}} {
		cmd := p.command("--color", "never", "servers", "tools", "tools")
		shown := onTerminalAll(t, cmd, "", prompted{"Start it? [Y/n] ", typing(t, c.typed)})
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(shown, "was stopped by") {
			t.Errorf("%q: exit %d: %q", c.typed, code, shown)
		}
		if runs := c.code == exitOK; p.listens() != runs || strings.Contains(shown, "effect") != runs {
			t.Errorf("%q: a daemon runs: %v, want %v: %q", c.typed, p.listens(), runs, shown)
		}
	}
}
