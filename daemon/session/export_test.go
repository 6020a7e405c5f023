package session

// Fill ends all sessions as if each had too many answers queued.
func (s *Server) Fill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.sessions {
		one.Full()
	}
}
