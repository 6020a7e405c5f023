package session

import "sync/atomic"

// An agent is a client process. Most have one session for each server that
// they use, all of them children of the one process: what a client may use at
// once, and in all, is counted for them together.
type agent struct {
	key      string
	sessions int          // guarded by the server's mu
	calls    atomic.Int64 // in flight, of all its sessions
}

// joinLocked makes one a session of its client. The caller must hold s.mu.
func (s *Server) joinLocked(one *session) {
	key := one.caller.Agent
	a := s.agents[key]
	if a == nil {
		a = &agent{key: key}
		s.agents[key] = a
	}
	a.sessions++
	one.agent = a
}

// partLocked takes a session that has ended from its client. It returns the
// client's key if that was its last one, else "". The caller must hold s.mu.
func (s *Server) partLocked(one *session) string {
	one.mu.Lock()
	for _, f := range one.flights {
		one.moveLocked(f, finished)
	}
	one.mu.Unlock()
	if one.agent.sessions--; one.agent.sessions > 0 {
		return ""
	}
	delete(s.agents, one.agent.key)
	return one.agent.key
}
