package hosted

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

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

// TestStartOfEndedProcess checks that a start that Holdline itself has ended does not count
// as one that has failed.
func TestStartOfEndedProcess(t *testing.T) {
	m := New(Options{
		Log: slog.New(slog.DiscardHandler), Servers: []entry.Server{{Name: "s", Scope: entry.Shared, MaxConcurrent: 1}},
	})
	s := m.servers["s"]
	for _, tc := range []struct {
		err    error // of the last start
		failed bool
	}{{nil, false}, {errEnded, false}, {errors.New("no"), true}} {
		s.instanceLocked(&tool.Caller{}).err = tc.err
		if is := s.Start(&tool.Caller{}); is.Failed != tc.failed || !is.Begun.IsZero() {
			t.Errorf("after %v: %+v", tc.err, is)
		}
	}
}

// TestStartOfAdoptedProcess checks that a list waits for the process of an earlier daemon as
// for one that has all it needs, while this daemon's environment is not known.
func TestStartOfAdoptedProcess(t *testing.T) {
	m := New(Options{
		Log: slog.New(slog.DiscardHandler), Servers: []entry.Server{{Name: "s", Scope: entry.Shared, MaxConcurrent: 1}},
		Prepared: func() bool { return false },
	})
	s := m.servers["s"]
	inst := s.instanceLocked(&tool.Caller{})
	if !s.Start(&tool.Caller{}).Unprepared {
		t.Error("a server without a process does not wait for the environment")
	}
	inst.adopting = make(chan struct{})
	if s.Start(&tool.Caller{}).Unprepared {
		t.Error("a process that is being adopted waits for the environment")
	}
	inst.adopting, inst.up = nil, &upstream.Process{}
	if s.Start(&tool.Caller{}).Unprepared {
		t.Error("an adopted process waits for the environment")
	}
}
