package e2e

import (
	"strings"
	"testing"
)

// TestServerOfOldTransport_RefusedWithWayOut checks that a server that cannot be used is refused where it
// is added and where the file is checked, that both say what to do, and that other servers of the file work.
func TestServerOfOldTransport_RefusedWithWayOut(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{})})
	const address = "http://127.0.0.1:1/sse"
	for _, args := range [][]string{
		{"servers", "add", "-t", "sse", "old", address},
		{"servers", "add", "old", "--json", `{"type":"sse","url":"` + address + `"}`},
	} {
		_, errs, code := p.run("", args...)
		if said := strings.Join(strings.Fields(errs), " "); code == 0 || !strings.Contains(said, "transport sse") ||
			!strings.Contains(said, "mcp-remote URL") {
			t.Errorf("%v: exit %d: %s", args, code, errs)
		}
	}
	if out := p.must("servers", "list"); strings.Contains(out, "old") {
		t.Errorf("it was added: %s", out)
	}
	p.must("config", "check")
	p.configure(map[string]any{
		"tools": p.toolsEntry(hosting{}), "old": map[string]any{"type": "sse", "url": address},
	})
	_, errs, code := p.run("", "config", "check")
	if said := strings.Join(strings.Fields(errs), " "); code == 0 || !strings.Contains(said, "mcpServers.old") ||
		!strings.Contains(said, "mcp-remote URL") {
		t.Errorf("config check: exit %d: %s", code, errs)
	}
	p.must("servers", "list")
}
