package e2e

import (
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestTelemetryCountsByServerAndTool checks that calls are counted by server and tool, for
// sessions of one server and of all, and that names that a client makes up are not shown to
// others.
func TestTelemetryCountsByServerAndTool(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{
		"one": p.toolsEntry(hosting{"scope": "shared"}), "two": p.toolsEntry(hosting{"scope": "shared"}),
	},
		"identities",
		map[string]any{"kept out": map[string]any{"deny": []string{"two__look", "health_snapshot", "nobody__*"}}}).
		daemon()
	look := map[string]any{"token": "t"}
	for server, calls := range map[string]int{"one": 1, "two": 2} {
		a := p.agent("--server", server).shake()
		for range calls {
			if x := a.wait(a.call("look", look)); x.code() != "" {
				t.Fatalf("look of %s: %s", server, x.raw)
			}
		}
		a.leave()
	}
	evil := "read-this/" + strings.Repeat("x", 1<<20)
	a := p.agent()
	for range 3 { // before initialize
		if x := a.ask(evil, map[string]any{}); x.Error == nil {
			t.Fatalf("%.100s was answered by %.200s", evil, x.raw)
		}
	}
	a.shake()
	a.ask(evil, map[string]any{})
	if x := a.wait(a.call("two__look", look)); x.code() != "" {
		t.Fatalf("two__look: %s", x.raw)
	}
	denied := p.agent("--identity", "kept out").shake()
	for _, name := range []string{"two__look", "health_snapshot", "nobody__look"} {
		if x := denied.wait(denied.call(name, look)); x.code() != "denied" {
			t.Fatalf("%s: %s", name, x.raw)
		}
	}
	denied.leave()
	counts := p.telemetry()
	for key, want := range map[string]int64{
		"tools/call:one__look": 1, "tools/call:two__look": 4, "tools/call:look": 0, "(unknown)": 4,
		"tools/call:health_snapshot": 1, "tools/call:(unknown)": 1,
	} {
		if counts[key] != want {
			t.Errorf("%s was counted %d times, want %d; all: %v", key, counts[key], want, counts)
		}
	}
	metrics := p.must("metrics")
	for _, want := range []string{
		`holdline_requests_total{method="tools/call",tool="one__look",server="one",outcome="success"} 1`,
		`holdline_requests_total{method="tools/call",tool="two__look",server="two",outcome="success"} 3`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
	for what, text := range map[string]string{
		"metrics": metrics, "telemetry": p.must("telemetry", "--json"), "status": p.must("status", "--json"),
		"health": p.must("status"),
	} {
		if strings.Contains(text, "read-this") {
			t.Errorf("%s shows what a client made up", what)
		}
	}
	p.until("little in the daemon's heap", func(s control.StatusAnswer) bool { return s.Runtime.HeapBytes <= 32<<20 })
	a.leave()
}
