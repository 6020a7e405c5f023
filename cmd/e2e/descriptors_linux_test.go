package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/protocol/control"
)

// TestDescriptorsRunOut_AgentsGetFault connects 60 agents to a daemon that may have 64 descriptors. Each is
// served, or gets within seconds a fault that says what is wrong. Status says it, too, and agents
// are served again once others have left.
func TestDescriptorsRunOut_AgentsGetFault(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	limited := p.script("limited", "#!/bin/sh\nulimit -n 64\nexec "+filepath.Join(programs, "holdline")+" \"$@\"\n")
	p.daemonAt(limited)
	const lacking = "no file descriptor left"
	agents := make([]*agent, 60)
	for i := range agents {
		agents[i] = p.agent("--no-autostart")
		agents[i].begin("initialize", map[string]any{
			"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
			"clientInfo": map[string]string{"name": "test", "version": "1"},
		})
	}
	begin := time.Now()
	var served []*agent
	for i, a := range agents {
		switch x := a.wait(1); {
		case x.Error == nil:
			served = append(served, a)
		case !strings.Contains(x.raw, lacking):
			t.Errorf("agent %d: %s", i, x.raw)
		}
	}
	if took := time.Since(begin); took > endBound {
		t.Errorf("the last agent had its answer after %v", took)
	}
	if len(served) == len(agents) || len(served) < 10 {
		t.Errorf("%d of %d agents are served, want some and not all", len(served), len(agents))
	}
	if out, errs, _ := p.look("status", "--json"); !strings.Contains(out+errs, lacking) {
		t.Errorf("status does not say it:\n%s%s", out, errs)
	}
	for _, a := range served {
		a.leave()
	}
	p.until("the sessions are gone", func(s control.StatusAnswer) bool { return len(s.Sessions) == 0 })
	p.agent("--no-autostart").shake().leave()
}
