package gang

import (
	"cmp"
	"slices"
	"time"
)

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

func (g *gang) turn() Turn { return Turn{g.isDegraded(), g.created()} }

// Turn returns where a pod stands; created is when it was.
func (s *State) Turn(uid string, created time.Time) Turn {
	if m := s.members[uid]; m != nil && !m.gang.isPlain() {
		return m.gang.turn()
	}
	return Turn{Created: created}
}

// Constraint is how hard it is to find a node for a member.
type Constraint struct {
	// Nodes is how many nodes could take the member if they were empty.
	Nodes int
	// Share is the largest part of what a node has that the member asks for, of any resource; 1 is a whole node.
	Share float64
}

// SortConstrained sorts members by how hard it is to find a node for them, the hardest first: fewest nodes, then the
// largest share. Members that are as hard to place keep their order, and none passes one with a higher priority.
func SortConstrained(uids []string, priority func(uid string) int32, constraint func(uid string) Constraint) {
	slices.SortStableFunc(uids, func(a, b string) int {
		x, y := constraint(a), constraint(b)
		return cmp.Or(
			cmp.Compare(priority(b), priority(a)),
			cmp.Compare(x.Nodes, y.Nodes),
			cmp.Compare(y.Share, x.Share),
		)
	})
}
