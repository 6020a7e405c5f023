package hosted

import "holdline/daemon/masked"

// secrets returns what must not be shown of a process of an earlier daemon, by the
// entry that is configured now. They are unknown if that is not the process's own
// entry, or if a variable is gone that stood there when the process started.
func (inst *instance) secrets() *masked.Secrets {
	s := inst.srv
	s.m.mu.Lock()
	configured := s.m.servers[s.spec.Name] == s
	s.m.mu.Unlock()
	if !configured || s.spec.Process == nil {
		return masked.Unknown()
	}
	p, err := s.spec.Process(inst.root)
	if err != nil {
		return masked.Unknown()
	}
	return masked.New(p.Secrets)
}

// Remask looks up again what must not be shown of processes of earlier daemons:
// variables are known now that were not when the processes were adopted.
func (m *Manager) Remask() {
	m.mu.Lock()
	unknown := map[*upstream]*masked.Secrets{}
	for u := range m.processes {
		if secrets := u.secrets.Load(); secrets.IsUnknown() {
			unknown[u] = secrets
		}
	}
	m.mu.Unlock()
	for u, before := range unknown {
		if secrets := u.inst.secrets(); !secrets.IsUnknown() {
			u.secrets.CompareAndSwap(before, secrets)
		}
	}
}
