package cli

import (
	"fmt"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestAgentRowIsShort checks that the row of an agent with an entry for each of many
// servers names a few of them and counts the others.
func TestAgentRowIsShort(t *testing.T) {
	t.Parallel()
	var sessions []control.Session
	for i := range 20 {
		sessions = append(sessions, control.Session{
			Identity: "codex", Client: "codex 1", ClientPID: 7, PID: i, Server: fmt.Sprintf("server-%02d", i),
			State: "attached", Cwd: "/p",
		})
	}
	var b strings.Builder
	printAgents(&b, sessions, "/home/user")
	row := strings.Split(b.String(), "\n")[1]
	if !strings.Contains(row, "server-00, server-01 and 18 more  ") || len(row) > 100 {
		t.Errorf("%d columns: %s", len(row), row)
	}
}
