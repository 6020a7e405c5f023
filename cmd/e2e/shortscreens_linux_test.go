package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/ttytest"
	"holdline/protocol/control"
)

// TestHealthySetUp_StatusAndDoctorAreShort checks that an ordinary set-up in which all is well takes 20 lines of status and
// 12 of doctor on a terminal of 80 columns: six servers of two scopes, four agents that use them, and a consult.
func TestHealthySetUp_StatusAndDoctorAreShort(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	servers := map[string]any{}
	for i, scope := range []string{"shared", "shared", "project", "shared", "project", "shared"} {
		servers[fmt.Sprintf("server-%d", i+1)] = p.toolsEntry(hosting{"scope": scope})
	}
	p.configure(servers).daemon()
	for i := range 4 {
		a := p.agent("--identity", fmt.Sprintf("agent-%d", i)).shake()
		for name := range servers {
			a.wait(a.call(name+"__effect", map[string]any{"token": fmt.Sprint(name, i)}))
		}
	}
	p.must("consult", "is it well?")
	for name := range servers {
		p.untilReady(name)
	}
	p.until("four agents", func(s control.StatusAnswer) bool { return len(s.Sessions) == 4 })
	for _, tt := range []struct {
		command string
		most    int
		begins  string
	}{{"status", 20, "Ready. 6 servers up, no recent faults."}, {"doctor", 12, ""}} {
		shown := ttytest.OnScreen(t, func(tty *os.File) {
			cmd := p.command("--color", "never", tt.command)
			cmd.Env = append(cmd.Env, "COLUMNS=80")
			cmd.Stdout, cmd.Stderr = tty, tty
			if err := cmd.Run(); err != nil {
				t.Errorf("%s: %v", tt.command, err)
			}
		})
		if n := strings.Count(shown, "\n"); n > tt.most || !strings.HasPrefix(shown, tt.begins) {
			t.Errorf("%s has %d lines, want %d at most:\n%s", tt.command, n, tt.most, shown)
		}
		for line := range strings.Lines(shown) {
			if n := console.Width(strings.TrimSuffix(line, "\n")); n > ttytest.Columns {
				t.Errorf("%s: a line of %d columns: %s", tt.command, n, line)
			}
		}
	}
}
