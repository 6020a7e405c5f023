package hosted

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"holdline/daemon/hosted/catalog"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/tool"
)

// TestInstancesThin checks that instances of unused projects are evicted when there are too
// many, ejected ones last.
func TestInstancesThin(t *testing.T) {
	m := New(Options{
		Log: slog.New(slog.DiscardHandler), Servers: []entry.Server{{Name: "s", Scope: entry.Project, Key: "k", MaxConcurrent: 1}},
	})
	s := m.servers["s"]
	busy := s.instanceLocked(&tool.Caller{Project: "busy"})
	busy.up = &upstream.Process{}
	ejected := s.instanceLocked(&tool.Caller{Project: "ejected"})
	ejected.guards.Restarts.Eject()
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
		s.instanceLocked(&tool.Caller{Project: fmt.Sprint("e", i)}).guards.Restarts.Eject()
	}
	if n := len(m.instances); n > maxInstances || m.instances[busy.key] != busy {
		t.Errorf("%d instances are kept of a machine of sick ones", n)
	}
}

// TestPatience checks how long a request for lists waits for a server that has not listed
// anything yet: as long as the first such request in all, and hardly for a server that has
// just failed to start.
func TestPatience(t *testing.T) {
	now := time.Now()
	up := make(chan struct{})
	for _, tc := range []struct {
		name  string
		begun time.Duration // ago
		inst  instance
		want  time.Duration
	}{
		{"not started", 0, instance{}, catalog.FirstList},
		{"starting", 4 * time.Second, instance{starting: up}, catalog.FirstList - 4*time.Second},
		{"starting for long", time.Minute, instance{starting: up}, 0},
		{"failed", time.Minute, instance{err: errors.New("no")}, nextList},
		{
			"starting after it has failed",
			300 * time.Millisecond,
			instance{err: errors.New("no"), starting: up},
			nextList - 300*time.Millisecond,
		},
		{"ended by us", time.Minute, instance{err: errEnded}, catalog.FirstList},
	} {
		tc.inst.begun = now.Add(-tc.begun)
		tc.inst.m = &Manager{}
		if got := tc.inst.patienceLocked(now); got != tc.want {
			t.Errorf("%s: it is waited for %v, want %v", tc.name, got, tc.want)
		}
	}
}
