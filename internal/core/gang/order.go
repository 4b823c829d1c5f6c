package gang

import "time"

// Turn is where a member stands in the queue among pods of its priority.
type Turn struct {
	// Degraded members go first: fewer than the minimum run of a gang that has started.
	Degraded bool
	// Created is when the gang was, not the pod: the older gang goes first, however often it was tried.
	Created time.Time
}

// Compare is negative where t is before o.
func (t Turn) Compare(o Turn) int {
	if t.Degraded != o.Degraded {
		if t.Degraded {
			return -1
		}
		return 1
	}
	return t.Created.Compare(o.Created)
}

// turn returns the gang's place among those of one priority.
func (g *gang) turn() Turn { return Turn{g.isDegraded(), g.created()} }

// Turn returns where a pod stands; created is when it was.
func (s *State) Turn(uid string, created time.Time) Turn {
	if m := s.members[uid]; m != nil && !m.gang.isPlain() {
		return m.gang.turn()
	}
	return Turn{Created: created}
}
