package hosted

import (
	"errors"
	"slices"
	"time"

	"holdline/daemon/listing"
	"holdline/daemon/policy"
	"holdline/protocol/fault"
)

// Status is the state of a server, for users.
type Status struct {
	Name         string
	Scope        Scope
	State        string // idle, starting, ready, recovering, ejected, stopped or failed
	Active       bool   // a process of it runs
	Lazy         bool
	Users        int // sessions that share its processes
	Processes    int
	Restarts     int // in the window
	Failures     int // in a row
	Circuit      policy.State
	Ejected      bool
	Suspect      bool // it left a call without an answer, and the daemon pings it
	CacheEntries int
	Tools        int  // -1 if it was never listed
	Blocks       bool // changed tools cannot be used
	Changed      int  // of these, those that differ from what they were when they were first seen
	InFlight     int  // calls with its processes
	Queued       int  // calls that wait for their turn
	Noise        int64
	Notes        []string      // what sessions do not get of its offers, and why
	Fault        *fault.Record // of the last process that ended or did not start, until it is started by hand
	FaultAt      time.Time
}

// Status returns the state of each server, by name. It reads no file and asks no
// process, so it answers even if a server hangs.
func (m *Manager) Status() []Status {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Status, 0, len(m.servers))
	owners := map[string]string{}
	for _, s := range m.inOrderLocked() {
		st := s.statusLocked(now)
		st.Notes = slices.Concat(s.latest.Cut(), listing.Clashes(s.spec.Name, s.latest, owners), s.overreachLocked())
		list = append(list, st)
	}
	return list
}

// Cache returns what the cache of answers holds, and its hits and misses.
func (m *Manager) Cache() policy.CacheStats { return m.cache.Stats() }

// failedToStartLocked reports whether the last start failed. A start that the daemon
// ended because no session wanted it any more has not.
func (inst *instance) failedToStartLocked() bool {
	return inst.err != nil && !errors.Is(inst.err, errEnded)
}

// statusLocked returns the state of one server. State is the worst state of its
// instances.
func (s *server) statusLocked(now time.Time) Status {
	st := Status{
		Name: s.spec.Name, Scope: s.spec.Scope, State: "idle", Lazy: s.now().Lazy, Circuit: policy.Closed, Tools: -1,
		CacheEntries: s.m.cache.Entries(s.spec.Name), Fault: s.fault, FaultAt: s.faultAt, Ejected: len(s.ejected) > 0,
	}
	if s.latest != nil {
		st.Tools, st.Changed = len(s.latest.All(listing.Tools)), s.pins.CountChanged(s.latest)
		st.Blocks = s.now().BlockChanged
	}
	worst := func(state string) {
		order := []string{"idle", "ready", "starting", "recovering", "failed", "ejected"}
		if slices.Index(order, state) > slices.Index(order, st.State) {
			st.State = state
		}
	}
	for key, inst := range s.m.instances {
		if key.server != s.spec.Name {
			continue
		}
		st.Users += inst.usersLocked()
		st.Restarts += inst.guards.restarts.Count(now)
		inside, waiting := inst.guards.gate.Load()
		st.InFlight += inside
		st.Queued += waiting
		circuit, failures := inst.guards.breaker.State(now)
		if st.Failures = max(st.Failures, failures); circuit != policy.Closed {
			st.Circuit = circuit
		}
		st.Ejected = st.Ejected || inst.guards.restarts.Ejected()
		switch state := inst.stateLocked(); {
		case state == running:
			worst("ready")
		case (state == launching || state == backingOff) && inst.guards.restarts.Count(now) > 0:
			worst("recovering")
		case state == launching, state == backingOff, inst.up != nil:
			worst("starting")
		case inst.failedToStartLocked():
			worst("failed")
		}
		if u := inst.up; u != nil && u.state != exited {
			st.Active = true
			st.Processes++
			st.Noise += u.noise
			st.Suspect = st.Suspect || u.suspect
		}
	}
	if st.Ejected {
		worst("ejected")
	}
	if s.stopped {
		st.State = "stopped"
	}
	return st
}
