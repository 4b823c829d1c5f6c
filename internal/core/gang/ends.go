package gang

import (
	"maps"
	"slices"
	"time"
)

// Ends is when the pods with a node end by their declared run times, as it is known at a moment, by UID.
type Ends map[string]End

// End is the end of a pod.
type End struct {
	Node string
	At   time.Time // zero for unknown
}

// Times are the ends that are known, in no order.
func (e Ends) Times() (times []time.Time) {
	for _, end := range e {
		if !end.At.IsZero() {
			times = append(times, end.At)
		}
	}
	return times
}

// Over returns the UIDs of the pods that have ended by a time.
func (e Ends) Over(at time.Time) map[string]bool {
	over := map[string]bool{}
	for uid, end := range e {
		if !end.At.IsZero() && !end.At.After(at) {
			over[uid] = true
		}
	}
	return over
}

// OverOn returns the UIDs of the pods that have ended by a time on some nodes, by node.
func (e Ends) OverOn(nodes []string, at time.Time) map[string][]string {
	over := map[string][]string{}
	for _, uid := range slices.Sorted(maps.Keys(e.Over(at))) {
		if node := e[uid].Node; slices.Contains(nodes, node) {
			over[node] = append(over[node], uid)
		}
	}
	return over
}

// sooner returns how many pods left before their end, or end sooner than was known before.
func (e Ends) sooner(was Ends, now time.Time) (n int) {
	for uid, old := range was {
		end, runs := e[uid]
		switch {
		case !runs && (old.At.IsZero() || old.At.After(now)),
			runs && !end.At.IsZero() && (old.At.IsZero() || end.At.Before(old.At)):
			n++
		}
	}
	return n
}

// delay reports whether a pod on one of the nodes does not end by a start, and was not there before or would have.
func (e Ends) delay(was Ends, nodes []string, start time.Time) bool {
	late := func(end End) bool { return end.At.IsZero() || end.At.After(start) }
	for uid, end := range e {
		if old, ran := was[uid]; late(end) && !(ran && late(old)) && slices.Contains(nodes, end.Node) {
			return true
		}
	}
	return false
}

// mostVain bounds the searches in vain that count: after 2 to the power of it changes, a start is looked for anew.
const mostVain = 6

// Search is a search for the start of a unit that holds room.
type Search struct {
	// Ends are what it knew. Others are how many events had been counted that may change a start, but those of pods.
	Ends   Ends
	Others uint64
	// Vain is how many searches up to this one found no earlier start than the one before, one after the other.
	Vain int
}

// IsDue reports whether a unit that holds nodes until a start looks for one anew: a pod delays it, or as many changes
// as may bring it forward were seen since as there are 2 to the power of its vain searches, 64 at most. So pods that
// end as they declared cost no search, and n others cost about n/64 in the long run.
func (s Search) IsDue(ends Ends, others uint64, nodes []string, start, now time.Time) bool {
	return ends.delay(s.Ends, nodes, start) ||
		others-s.Others+uint64(ends.sooner(s.Ends, now)) >= 1<<min(s.Vain, mostVain)
}

// Room is what a node has free of some resources, and what the pods that leave it give back.
type Room struct {
	Free   []int64
	Leaves []Leave // in any order
}

// Leave is a pod that leaves.
type Leave struct {
	At   time.Time
	Room []int64
}

// FirstRoom returns the first time at which nodes have room for so many copies of what a member asks for at least, as
// far as their amounts show: the unit does not start before. The zero time is now. ok is false where they never have.
func FirstRoom(nodes []Room, each []int64, copies int) (at time.Time, ok bool) {
	type step struct {
		at    time.Time
		gains int
	}
	most := int64(copies)
	holds := func(free []int64) int {
		n := most
		for i, asked := range each {
			if asked > 0 {
				n = min(n, max(free[i], 0)/asked)
			}
		}
		return int(n)
	}
	var steps []step
	for _, node := range nodes {
		free, had := slices.Clone(node.Free), holds(node.Free)
		copies -= had
		slices.SortFunc(node.Leaves, func(a, b Leave) int { return a.At.Compare(b.At) })
		for _, l := range node.Leaves {
			for i, amount := range l.Room {
				free[i] += amount
			}
			if n := holds(free); n > had {
				steps, had = append(steps, step{l.At, n - had}), n
			}
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return a.at.Compare(b.at) })
	for _, s := range steps {
		if copies <= 0 {
			break
		}
		at, copies = s.at, copies-s.gains
	}
	return at, copies <= 0
}
