package e2e

import "testing"

// TestRefusedRequestsThenDaemonKilled checks that a refused second initialize and a refused
// setLevel change nothing, neither now nor at the next daemon: the session continues, and
// gets its log messages.
func TestRefusedRequestsThenDaemonKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("shared", "-logs").login()
	a := p.agent().shake()
	pid := p.pid(0)
	a.level("warning")
	again := map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]string{"name": "test", "version": "1"},
	}
	if x := a.ask("initialize", again); x.Error == nil {
		t.Errorf("a second initialize: %s", x.raw)
	}
	if x := a.ask("logging/setLevel", map[string]any{"level": "loud"}); x.Error == nil {
		t.Errorf("a level that is none: %s", x.raw)
	}
	same(t, "before the kill", a.log("error", "x1"), "error x1")
	kill9(t, pid)
	p.pid(pid)
	same(t, "with the next daemon", a.log("error", "x2"), "error x2")
	same(t, "with the next daemon", a.log("info", "x3"))
	a.rest()
}
