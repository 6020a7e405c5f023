package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestLaunchdTakesOver checks that the daemon that launchd starts takes over from one that
// an agent has started, whose session continues, and that it counts as managed.
func TestLaunchdTakesOver(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	a := p.agent().shake()
	before := p.status().Daemon
	// The daemon must be a child of process 1, as launchd's are: its parent here ends
	// before it begins.
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c",
		`(exec sh -c 'ulimit -t 60; until read -r _ _ _ parent _ < /proc/$$/stat && [ "$parent" = 1 ]; do :; done
		exec "$0" daemon --started-by launchd' "$0" >/dev/null 2>&1 </dev/null) &`, filepath.Join(programs, "holdline"))
	cmd.Env = append(without(p.env, "XPC_SERVICE_NAME"), "XPC_SERVICE_NAME=holdline.daemon")
	cmd.WaitDelay = waitLimit // the part in the background may give back the output late
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var s control.StatusAnswer
	waitFor(t, "the daemon of launchd", func() bool { // for a moment there may be none
		out, _, code := p.look("status", "--json")
		return code == exitOK && json.Unmarshal([]byte(out), &s) == nil && s.Daemon.StartedBy == "launchd"
	})
	if s.Daemon.PID == before.PID {
		t.Errorf("status %+v", s.Daemon)
	}
	if got := a.ask("tools/call", map[string]any{"name": "health_snapshot"}).text(); !strings.HasPrefix(got, "Ready.") {
		t.Errorf("the session: %s", got)
	}
	if now := p.status().Daemon; now.PID != s.Daemon.PID {
		t.Errorf("another daemon has taken its place: %+v", now)
	}
	a.leave()
}
