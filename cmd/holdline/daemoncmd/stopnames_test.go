package daemoncmd

import (
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestStopNamesAgentOnce checks that an agent with a session for each of its entries is
// named once, with their number.
func TestStopNamesAgentOnce(t *testing.T) {
	t.Parallel()
	var a control.StopAnswer
	for range 3 {
		a.Sessions = append(a.Sessions, control.Session{Identity: "codex", ClientPID: 7, State: "attached"})
	}
	a.Sessions = append(a.Sessions, control.Session{Identity: "cursor", ClientPID: 8, State: "attached"},
		control.Session{Identity: "gone", ClientPID: 9, State: "detached"})
	if got, want := stopWords(&a),
		"disconnected: codex (pid 7) with 3 sessions, cursor (pid 8)\n"; !strings.Contains(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
}
