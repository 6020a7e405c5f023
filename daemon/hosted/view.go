package hosted

import (
	"context"
	"slices"

	"holdline/daemon/hosted/catalog"
	"holdline/daemon/hosted/dispatch"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/hosted/startup"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// find returns the server that has a name now, for package catalog.
func (m *Manager) find(name string) (catalog.Server, error) {
	s, err := m.lookup(name)
	if err != nil {
		return nil, err // not a nil server in an interface
	}
	return s, nil
}

// view returns what a caller sees of all servers. It waits up to [sight.Wait] if that
// is not known yet. The caller must not hold the hub's mutex.
func (m *Manager) view(ctx context.Context, c *tool.Caller) *listing.View {
	return m.viewNamed(ctx, c, "")
}

// viewNamed is [Manager.view] of the servers whose tool or prompt a name may be, or of all if
// it is "". A call looks at no other: there may be many.
func (m *Manager) viewNamed(ctx context.Context, c *tool.Caller, shown string) *listing.View {
	m.awaitSights(ctx, c, shown)
	m.hub.Mu.Lock()
	var seen []listing.ServerView
	for _, s := range m.servers {
		if s.mayOffer(c, shown) && s.visible(c) {
			seen = append(seen, s.viewLocked(c))
		}
	}
	m.hub.Mu.Unlock()
	return listing.NewView(c, m.o.Rules, seen)
}

// expected is [Manager.view] with what servers that are not up will probably offer, see
// [listing.Offers.Expected]. It waits for nothing: known is false if it is not known yet which
// servers the caller sees. The caller must not hold the hub's mutex.
func (m *Manager) expected(c *tool.Caller) (view *listing.View, known bool) {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	var seen []listing.ServerView
	for name, s := range m.servers {
		if c.Only != "" && c.Only != name {
			continue
		}
		if _, known := s.sights.Sees(c.Place()); !known {
			return nil, false
		}
		if s.visible(c) {
			v := s.viewLocked(c)
			if v.Offering == nil {
				v.Offering = s.offers.Expected(s.Scope(c))
				v.Unasked = v.Unasked && v.Offering == nil
			}
			seen = append(seen, v)
		}
	}
	return listing.NewView(c, m.o.Rules, seen), true
}

// mayOffer reports whether a name that a caller has may be that of something of the server. The
// name "" may be, and so may any if the caller sees only one server.
func (s *server) mayOffer(c *tool.Caller, shown string) bool {
	return shown == "" || c.Only != "" || tool.MayBeOf(s.spec.Name, shown)
}

// viewLocked returns what a caller is offered by the server.
func (s *server) viewLocked(c *tool.Caller) listing.ServerView {
	v := s.offers.View(s.spec.Name, s.Scope(c), s.Entry().BlockChanged)
	v.Unasked = v.Offering == nil && s.Entry().Lazy
	return v
}

// View is [server.viewLocked] for a caller that does not hold the hub's mutex.
func (s *server) View(c *tool.Caller) listing.ServerView {
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	return s.viewLocked(c)
}

// Guards returns the guards of the instance that a caller uses.
func (s *server) Guards(c *tool.Caller) (dispatch.Guards, error) {
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	inst, err := s.useLocked(c)
	if err != nil {
		return dispatch.Guards{}, err
	}
	guards := inst.guards
	if guards.Down, _ = inst.downLocked(); guards.Down == nil && inst.unreached.Reason() == fault.Unreachable {
		guards.Down = inst.unreached
	}
	return guards, nil
}

// Scope names those that share a process with a caller: a project or a session, or all.
func (s *server) Scope(c *tool.Caller) string { return s.instanceKey(c).of }

// Rests returns why a server is not asked for its tools: it is lazy and does not run.
// It returns nil if the server is to be asked, or if its tools are known.
func (s *server) Rests(c *tool.Caller, start bool) *fault.Record {
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	if start || !s.Entry().Lazy || s.offers.Of(s.Scope(c)) != nil {
		return nil
	}
	for inst := range s.instancesLocked() {
		if inst.up != nil {
			return nil // it runs already
		}
	}
	return fault.New(fault.InvalidInput, fault.Server, startup.Operation(s.spec.Name),
		"what it offers is not known, since it was never started: ask with start=true, or call a tool of it")
}

// Trouble returns why a call to the server would probably fail, or nil if no reason is known.
func (s *server) Trouble(c *tool.Caller) *fault.Record {
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	if s.verdict.Stopped {
		return startup.Stopped(s.spec.Name, s.verdict.Damaged)
	}
	if f := s.login.Missing(); f != nil {
		return f
	}
	inst := s.m.instances[s.instanceKey(c)]
	switch {
	case inst == nil && slices.Contains(s.verdict.Ejected, s.instanceKey(c).of):
		return dispatch.NewGuards(s.Entry()).Restarts.Fault(s.spec.Name, "")
	case inst == nil || inst.up != nil && inst.up.State == stage.Serving:
		return nil
	case inst.guards.Restarts.Ejected():
		return startup.Ejected(inst.key.server, inst.guards.Restarts, inst.srv.verdict.Fault)
	case inst.failedToStartLocked():
		return fault.From(inst.err, fault.Server, startup.Operation(s.spec.Name))
	}
	return nil
}

// Start returns how the start of the caller's process stands.
func (s *server) Start(c *tool.Caller) catalog.Start {
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	inst, err := s.useLocked(c)
	if err != nil { // it was removed meanwhile
		return catalog.Start{}
	}
	starts := inst.up == nil && inst.adopting == nil // an adopted process has its environment
	unknown := s.m.o.Prepared != nil && !s.m.o.Prepared()
	st := catalog.Start{Failed: inst.failedToStartLocked(), Unprepared: starts && unknown}
	if inst.starting != nil {
		st.Begun = inst.begun
	}
	if inst.up != nil && inst.up.State != stage.Serving {
		st.Printed = inst.up.PrintedLocked()
	}
	return st
}
