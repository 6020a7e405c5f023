package session

// Flushed reports whether everything that was queued for clients has been
// written to their connections.
func (s *Server) Flushed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.sessions {
		one.mu.Lock()
		l := one.cur
		one.mu.Unlock()
		if l != nil && !l.Out.Empty() {
			return false
		}
	}
	return true
}
