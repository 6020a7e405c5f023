package e2e

import (
	"regexp"
	"strings"
	"testing"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/control"
)

// TestCancelledUnprompted checks that a consult that is cancelled before its program got
// the prompt ends as cancelled, even if the daemon dies right after it has told the program
// to end.
func TestCancelledUnprompted(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().faults()
	const started, exited = "private.started", "private.exited"
	p.dieAs(started, death{held: true})
	a := p.agent().shake()
	x := a.wait(a.call("consult",
		map[string]any{"prompt": claudetest.Prompt("x", claudetest.Say("never")), "wait_s": 0}))
	id := regexp.MustCompile(`[0-9a-f]{12}`).FindString(x.text())
	waitFor(t, "the consult's program", func() bool { return p.died(started) })
	p.dieAs(exited, death{})
	n := a.call("consult_control", map[string]any{"consult_id": id, "action": "cancel", "render": "json"})
	p.until("the cancelling",
		func(s control.StatusAnswer) bool { return len(s.Sessions) == 1 && s.Sessions[0].InFlight == 1 })
	p.letGo(started)
	if x := a.wait(n); !strings.Contains(x.raw, `"cancelled"`) {
		t.Errorf("%s", x.raw)
	}
	if !p.died(exited) {
		t.Error("the daemon lived on")
	}
	if x := a.wait(a.call("consult_result", map[string]any{
		"consult_id": id,
	})); !strings.Contains(x.text(), "The consult was cancelled") {
		t.Errorf("%s", x.raw)
	}
	a.rest()
}
