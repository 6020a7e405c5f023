package session

// Fill ends all sessions as if too many answers waited for each.
func (s *Server) Fill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.sessions {
		one.Full()
	}
}
