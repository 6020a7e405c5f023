package hosted

import (
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/masked"
)

// secrets returns the secrets of a process of an earlier daemon, as the present
// configuration has them. They are unknown if the process belongs to another entry,
// or if the entry cannot be expanded now, for example because a variable is not set.
// Then nothing that the process wrote may be shown.
func (inst *instance) secrets() *masked.Secrets {
	s := inst.srv
	s.m.hub.Mu.Lock()
	configured := s.m.servers[s.spec.Name] == s
	s.m.hub.Mu.Unlock()
	if !configured || s.spec.Process == nil {
		return masked.Unknown()
	}
	p, err := s.spec.Process(inst.root)
	if err != nil {
		return masked.Unknown()
	}
	return masked.New(p.Secrets)
}

// Remask tries again to find the secrets of adopted processes that are unknown. Call
// it when the user's environment is known: at the adoption it may not have been.
func (m *Manager) Remask() {
	m.hub.Mu.Lock()
	unknown := map[*upstream.Process]*masked.Secrets{}
	for u := range m.hub.Processes {
		if secrets := u.Secrets.Load(); secrets.IsUnknown() {
			unknown[u] = secrets
		}
	}
	m.hub.Mu.Unlock()
	for u, before := range unknown {
		if secrets := instanceOf(u).secrets(); !secrets.IsUnknown() {
			u.Secrets.CompareAndSwap(before, secrets)
		}
	}
}
