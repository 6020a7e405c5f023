package e2e

import (
	"path/filepath"
	"testing"

	"holdline/protocol/control"
)

// TestAgentsComeWhileUnusedStartEnds_ServerStarted has the only agent leave while its server starts, so
// that this is ended, and two others come before it is gone. The server is started for them, without a
// call, and both get its tools.
func TestAgentsComeWhileUnusedStartEnds_ServerStarted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	// The first process lasts until its input has ended, and a while longer: nothing else ends it at once.
	script := `trap '' TERM HUP INT; if mkdir "$0.first" 2>/dev/null; then cat >"$0.input"; touch "$0.unused"; sleep 2; exit 1; fi; exec "$@"`
	p.configure(map[string]any{"tools": map[string]any{
		"command":  "/bin/sh",
		"args":     []string{"-c", script, p.latch("start"), filepath.Join(programs, "toolserver"), "-ledger", p.effects()},
		"holdline": hosting{"scope": "shared"},
	}})
	p.daemon()
	first := p.agent()
	waitFor(t, "the first process", func() bool { return exists(p.latch("start") + ".input") })
	first.die()
	p.until("nobody is there", func(s control.StatusAnswer) bool { return len(s.Sessions) == 0 })
	waitFor(t, "the end of the unused start", func() bool { return exists(p.latch("start") + ".unused") })
	a, b := p.agent(), p.agent()
	a.shake()
	b.shake()
	p.untilReady("tools")
	for _, one := range []*agent{a, b} {
		if x := one.wait(one.effect("after", 1)); x.text() != "after" {
			t.Errorf("a call: %s", x.raw)
		}
		one.rest()
	}
}
