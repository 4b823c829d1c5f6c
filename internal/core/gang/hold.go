package gang

import (
	"cmp"
	"slices"
	"time"
)

// HoldOrder is which of the units that do not fit may hold room.
type HoldOrder string

// Orders of holds.
const (
	ByPriority HoldOrder = "Priority" // the highest priority first, of one priority the oldest
	ByAge      HoldOrder = "Age"      // the oldest first
)

// HoldRules are who may hold room, and who else may use it. A unit is a pod, or the gangs that start together.
//
// A unit that does not fit holds the room in which it will start first, by the ends that the pods there declare. Its
// promise is that start. With Backfill, units behind it may use the room if they have ended by then, or if they leave
// it enough beside what has not ended by then; else the room is empty until then. So if no pod outlives its declared
// run time, only units before the held one delay it.
//
// A unit that was overtaken too often also holds room of pods whose ends are not known. It has no promise.
type HoldRules struct {
	// Most is how many units may have a promise: 1 is EASY backfilling, more are conservative backfilling, 0 is none.
	Most  int
	Order HoldOrder
	// Backfill lets units use held room that end before the promised start, or that leave enough free at that time.
	Backfill bool
	// Below lets pods with a lower priority use held room: they lose nothing when the held unit evicts them.
	Below int32
}

// Hold is room that is kept for a unit.
type Hold struct {
	Rank Rank
	// Start is when the unit starts at the latest, if the declared run times are kept; zero for no promise.
	Start time.Time
	// Overtaken says that the unit holds room because it was overtaken too often, however many others have a promise.
	Overtaken bool
	// Since is when the unit began to hold room, on whatever nodes.
	Since time.Time
	// Renewed says that its pods were nominated to these nodes before: a scheduler that has just begun has it from the
	// one before.
	Renewed bool
	// Nodes has the nodes of its pods, by UID. Over has the UIDs of the pods on these nodes that have left them by
	// Start, as was known when it was found, by node. Only the holds of a State have them.
	Nodes map[string]string
	Over  map[string][]string
}

// Unit names what the room is kept for.
func (h Hold) Unit() string { return h.Rank.Unit() }

// HoldUser is a unit that asks for held room.
type HoldUser struct {
	Rank     Rank
	Ends     time.Time // if it starts now, by its declared run time; zero for unknown
	Priority int32     // the highest of its pods
	// Evictable says that the held unit may evict all its pods.
	Evictable bool
}

// SetHoldRules replaces who may hold room; after New no unit may.
func (s *State) SetHoldRules(r HoldRules) { s.holds = r }

// HoldRules returns who may hold room.
func (s *State) HoldRules() HoldRules { return s.holds }

// PublishHolds replaces the holds that others read: filters, forecasts and Events. The scheduling loop decides on its
// own list, of which this is a copy between two cycles: its holds have pods and searches that this package does not
// know, and change while a cycle runs, when readers must not see them.
func (s *State) PublishHolds(holds []Hold) { s.published = holds }

// Holds returns the published holds, without those of gangs for which no room is kept any more.
func (s *State) Holds() []Hold {
	return slices.DeleteFunc(slices.Clone(s.published), func(h Hold) bool {
		return h.Unit() != h.Rank.Name && !s.Reserves(h.Rank.Name)
	})
}

// Yields reports whether a unit may use held room.
func (r HoldRules) Yields(h Hold, u HoldUser) bool {
	switch {
	case u.Rank.Before(h.Rank), u.Evictable && r.Frees(h.Rank, u.Priority):
		return true
	case !r.Backfill || h.Start.IsZero() || u.Ends.IsZero():
		return false
	}
	return !u.Ends.After(h.Start)
}

// Moment is a time at which pods have started that hold a node.
type Moment struct {
	Start time.Time
	// Pods are the UIDs of those that have started by then, the earliest first.
	Pods []string
	// Over are the UIDs of pods that have left the node by then, as was known when these got their promises. If one
	// leaves later, it delays them, and what else uses the node does not.
	Over []string
}

// Moments returns when pods start that are nominated to a node, the first time first. A unit may use the node before,
// if at each of these times the pods that have started by then fit beside it. ok is false where one of them has no
// promise, or is of the unit itself: then all must fit at once.
func (r HoldRules) Moments(holds []Hold, unit string, nominated []string) (all []Moment, ok bool) {
	promises := map[string]Hold{}
	for _, h := range holds {
		if r.Backfill && !h.Start.IsZero() && h.Rank.Name != unit {
			for uid := range h.Nodes {
				promises[uid] = h
			}
		}
	}
	nominated = slices.Clone(nominated)
	slices.SortStableFunc(nominated, func(a, b string) int { return promises[a].Start.Compare(promises[b].Start) })
	var over []string
	for i, uid := range nominated {
		h, promised := promises[uid]
		if !promised {
			return nil, false
		}
		over = slices.Concat(over, h.Over[h.Nodes[uid]])
		slices.Sort(over)
		over = slices.Compact(over)
		m := Moment{h.Start, nominated[:i+1], over}
		if i > 0 && all[len(all)-1].Start.Equal(h.Start) {
			all[len(all)-1] = m
		} else {
			all = append(all, m)
		}
	}
	return all, len(all) > 0
}

// Frees reports whether the room of a pod of a priority counts as free for a unit that looks for a start: it evicts the
// pod.
func (r HoldRules) Frees(unit Rank, priority int32) bool {
	return priority < min(r.Below, unit.Priority)
}

// MayHold reports whether a unit that does not fit may have a promise beside those that have.
func (r HoldRules) MayHold(unit Rank, holds []Hold) bool {
	before := 0
	for _, h := range holds {
		if !h.Start.IsZero() && h.Rank.Name != unit.Name && r.compare(h.Rank, unit) < 0 {
			before++
		}
	}
	return before < r.Most
}

// Excess returns the holds that end because more units than may have a promise have one, the last in the order first.
// Those of units that were overtaken too often remain.
func (r HoldRules) Excess(holds []Hold) []Hold {
	promised := slices.DeleteFunc(slices.Clone(holds), func(h Hold) bool { return h.Overtaken || h.Start.IsZero() })
	slices.SortFunc(promised, func(a, b Hold) int { return r.compare(b.Rank, a.Rank) })
	return promised[:max(len(promised)-r.Most, 0)]
}

// compare is negative where a may have a promise before b.
func (r HoldRules) compare(a, b Rank) int {
	if r.Order == ByAge {
		return cmp.Or(a.Created.Compare(b.Created), a.Compare(b))
	}
	return a.Compare(b)
}

// EarliestStart returns the first of these times at which a unit fits, none of them before from, and where. fits is
// asked about a time with all pods gone that have ended by then. What fits at one time must fit at each later one;
// otherwise it is a time at which it fits, and not the first. ok is false where the unit fits at none. It asks about
// the first time, which is the answer where amounts alone decide, then about the last one, and then in growing steps
// from the first on: at most twice as often as the number of times before the answer has binary digits.
func EarliestStart[T any](times []time.Time, from time.Time, fits func(at time.Time) (T, bool)) (at time.Time,
	where T, ok bool,
) {
	times = slices.SortedFunc(slices.Values(times), time.Time.Compare)
	times = slices.CompactFunc(times, time.Time.Equal)
	low, _ := slices.BinarySearchFunc(times, from, time.Time.Compare)
	// Invariant: it fits at times[high], where that exists, and not at times[low-1].
	high := len(times)
	ask := func(i int) {
		if found, fit := fits(times[i]); fit {
			high, at, where, ok = i, times[i], found, true
		} else {
			low = i + 1
		}
	}
	if low < high {
		ask(low)
	}
	if low < high {
		ask(high - 1)
	}
	for gap := 1; low < high; gap *= 2 {
		ask(min(low+gap, (low+high)/2))
	}
	return at, where, ok
}
