package hook

// Size returns how many sandboxes and containers are remembered.
func Size(s *Service) (sandboxes, containers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sandboxes), len(s.containers)
}
