package hosted

import (
	"errors"
	"slices"
	"time"

	"holdline/daemon/listing"
	"holdline/daemon/policy"
	"holdline/protocol/control"
)

// Status returns the state of each server, by name. It reads no file and asks no
// process, so it answers even if a server hangs.
func (m *Manager) Status() []control.Server {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]control.Server, 0, len(m.servers))
	owners := map[string]string{}
	for _, s := range m.inOrderLocked() {
		st := s.statusLocked(now)
		st.Notes = slices.Concat(s.latest.Cut(), listing.Clashes(s.spec.Name, s.latest, owners), s.overreachLocked())
		list = append(list, st)
	}
	return list
}

// Cache returns what the cache of answers holds, and its hits and misses.
func (m *Manager) Cache() control.Cache { return m.cache.Stats() }

// failedToStartLocked reports whether the last start failed. A start that the daemon
// ended because no session wanted it any more has not.
func (inst *instance) failedToStartLocked() bool {
	return inst.err != nil && !errors.Is(inst.err, errEnded)
}

// statusLocked returns the state of one server. State is the worst state of its
// instances.
func (s *server) statusLocked(now time.Time) control.Server {
	st := control.Server{
		Name: s.spec.Name, Scope: string(s.spec.Scope), State: "idle", Lazy: s.now().Lazy,
		Circuit: string(policy.Closed), CacheCount: s.m.cache.Entries(s.spec.Name), LastFault: s.fault,
		Ejected: len(s.ejected) > 0,
	}
	if s.fault != nil {
		st.LastFaultMS = s.faultAt.UnixMilli()
	}
	if s.latest != nil {
		st.Tools, st.Changed = new(len(s.latest.All(listing.Tools))), s.pins.CountChanged(s.latest)
		st.Blocked = s.now().BlockChanged && st.Changed > 0
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
		st.RefCount += inst.usersLocked()
		st.Restarts += inst.guards.restarts.Count(now)
		inside, waiting := inst.guards.gate.Load()
		st.InFlight += inside
		st.Queued += waiting
		circuit, failures := inst.guards.breaker.State(now)
		if st.Failures = max(st.Failures, failures); circuit != policy.Closed {
			st.Circuit = string(circuit)
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
			st.NoiseLines += u.noise
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
