package hosted

import (
	"fmt"
	"log/slog"
	"testing"

	"holdline/daemon/tool"
)

// TestInstancesThin: projects that nobody works in any more are forgotten when
// there are too many, those that are ejected last.
func TestInstancesThin(t *testing.T) {
	m := New(Options{Log: slog.New(slog.DiscardHandler), Servers: []Spec{{Name: "s", Scope: Project, Key: "k", MaxConcurrent: 1}}})
	s := m.servers["s"]
	busy := s.instanceLocked(&tool.Caller{Project: "busy"})
	busy.up = &upstream{}
	ejected := s.instanceLocked(&tool.Caller{Project: "ejected"})
	ejected.guards.restarts.Eject()
	for i := range 10 * maxInstances {
		s.instanceLocked(&tool.Caller{Project: fmt.Sprint(i)})
	}
	if n := len(m.instances); n > maxInstances {
		t.Errorf("%d instances are kept", n)
	}
	if m.instances[busy.key] != busy || m.instances[ejected.key] != ejected {
		t.Error("one that is needed was forgotten")
	}
	for i := range 2 * maxInstances {
		s.instanceLocked(&tool.Caller{Project: fmt.Sprint("e", i)}).guards.restarts.Eject()
	}
	if n := len(m.instances); n > maxInstances || m.instances[busy.key] != busy {
		t.Errorf("%d instances are kept of a machine of sick ones", n)
	}
}
