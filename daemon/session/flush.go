package session

// Flushed tells whether everything that was queued for clients has been
// written to their connections.
func (s *Server) Flushed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.sessions {
		one.mu.Lock()
		l := one.cur
		one.mu.Unlock()
		if l != nil && !l.out.empty() {
			return false
		}
	}
	return true
}

// empty tells whether nothing is queued, or taken and not yet written.
func (o *outbox) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes == 0
}
