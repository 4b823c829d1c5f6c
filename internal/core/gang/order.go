package gang

import "time"

// Turn is where a member stands in the queue among pods of its priority.
type Turn struct {
	// Degraded members go first: fewer than the minimum run of a gang that has started.
	Degraded bool
	// Created is when the gang was, not the pod: the older gang goes first, however often it was tried.
	Created time.Time
}

// Turn returns where a pod stands; false for a pod without a gang.
func (s *State) Turn(uid string) (Turn, bool) {
	m := s.members[uid]
	if m == nil || m.gang.isPlain() {
		return Turn{}, false
	}
	return Turn{m.gang.isDegraded(), m.gang.created()}, true
}
