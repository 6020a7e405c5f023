package attach

import (
	"strings"
	"testing"
)

// TestDaemonStartedByAnAgent_LacksItsTemporaryDirectories checks that a daemon which an agent's proxy starts does
// not search the directories that the agent has made for one conversation.
func TestDaemonStartedByAnAgent_LacksItsTemporaryDirectories(t *testing.T) {
	for name, vars := range map[string]map[string]string{
		"by default": {"HOME": "/h", "PATH": "/h/.codex/tmp/arg0/codex-arg0abc:/h/.codex/bin:/opt/x"},
		"elsewhere": {
			"HOME": "/h", "CODEX_HOME": "/c", "PATH": "/c/tmp/arg0/codex-arg0abc:/h/.codex/bin:/opt/x:/c/tmpx", "TERM": "dumb",
		},
	} {
		for _, kv := range DaemonEnv(func(name string) string { return vars[name] }) {
			if strings.Contains(kv, "arg0") || strings.HasPrefix(kv, "TERM=") {
				t.Errorf("%s: the daemon gets %s", name, kv)
			}
			if strings.HasPrefix(kv, "PATH=") && !strings.Contains(kv, "/h/.codex/bin:/opt/x") {
				t.Errorf("%s: %s, want the other directories", name, kv)
			}
		}
	}
}
