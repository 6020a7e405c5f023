package hosted

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"holdline/daemon/hosted/catalog"
	"holdline/daemon/hosted/startup"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/masked"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// Visible returns the servers that a caller sees, by name.
func (m *Manager) Visible(ctx context.Context, c *tool.Caller) []catalog.Server {
	m.awaitSights(ctx, c)
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	var seen []catalog.Server
	for _, s := range m.inOrderLocked() {
		if s.visible(c) {
			seen = append(seen, s)
		}
	}
	return seen
}

// Logs returns what each process of a server wrote to stderr, with the secrets of its
// environment hidden. after has the offset in bytes at which to begin, by worker;
// other logs begin near their end. With follow an incomplete last line is left for
// the next call. The fault is that of the process that ended last, or nil.
func (m *Manager) Logs(name string, after map[string]int64, follow bool) ([]control.ServerLog, *fault.Record, error) {
	s, err := m.lookup(name)
	if err != nil {
		return nil, nil, err
	}
	m.hub.Mu.Lock()
	var running []*upstream.Process
	for u := range m.hub.Processes {
		if instanceOf(u).key.server == name && u.State != upstream.Exited {
			running = append(running, u)
		}
	}
	last := s.fault
	m.hub.Mu.Unlock()
	slices.SortFunc(running, func(a, b *upstream.Process) int { return cmp.Compare(a.ID, b.ID) })
	logs := []control.ServerLog{}
	for _, u := range running {
		from, known := after[u.ID]
		l, err := u.ReadLog(masked.Place{From: from, Known: known, Follow: follow})
		if err != nil {
			return nil, nil, fmt.Errorf("log of %s: %w", u.ID, err)
		}
		l.Root = instanceOf(u).root
		logs = append(logs, l)
	}
	return logs, last, nil
}

// Rests returns why a server is not asked for its tools: it is lazy and does not run.
// It returns nil if the server is to be asked, or if its tools are known.
func (s *server) Rests(c *tool.Caller, start bool) *fault.Record {
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	if start || !s.now().Lazy || s.offersLocked(c) != nil {
		return nil
	}
	for key, inst := range s.m.instances {
		if key.server == s.spec.Name && inst.up != nil {
			return nil // it runs already
		}
	}
	return fault.New(fault.InvalidInput, fault.Server, startup.Operation(s.spec.Name),
		"what it offers is not known, since it was never started: ask with start=true, or call a tool of it")
}

// Trouble returns why a call to the server would fail at once, or nil if no reason is
// known.
func (s *server) Trouble(c *tool.Caller) *fault.Record {
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	if s.stopped {
		return s.stoppedFault()
	}
	inst := s.m.instances[s.instanceKey(c)]
	switch {
	case inst == nil && slices.Contains(s.ejected, s.instanceKey(c).of):
		return newGuards(s.now()).restarts.Fault(s.spec.Name, "")
	case inst == nil || inst.up != nil && inst.up.State == upstream.Serving:
		return nil
	case inst.guards.restarts.Ejected():
		return inst.ejectedLocked()
	case inst.failedToStartLocked():
		return fault.From(inst.err, fault.Server, startup.Operation(s.spec.Name))
	}
	return nil
}

// StartError returns why the last start for a caller failed, or nil.
func (s *server) StartError(c *tool.Caller) error {
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	if inst := s.m.instances[s.instanceKey(c)]; inst != nil && inst.failedToStartLocked() {
		return inst.err
	}
	return nil
}

// Patience returns how long a list waits for the server if it has never listed.
func (s *server) Patience(c *tool.Caller) time.Duration {
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	return s.instanceLocked(c).patienceLocked(time.Now())
}
