package gang

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// Rank is where a pod, or a group of gangs, stands in the queue.
type Rank struct {
	Priority int32 // of a group the lowest of its members'
	Turn
	Name string // decides between equals: of the group or gang, or "pod/NAMESPACE/NAME" of a pod that starts alone
}

// Unit names what has the rank: "pod/NAMESPACE/NAME", or "gang/" and the gangs that start together. Gangs of a
// namespace "pod" remain gangs: the name of one has one slash, and that of several has commas.
func (r Rank) Unit() string {
	if strings.HasPrefix(r.Name, "pod/") && strings.Count(r.Name, "/") == 2 && !strings.Contains(r.Name, ",") {
		return r.Name
	}
	return "gang/" + r.Name
}

// Before reports whether r is to be served before o. Of two different ranks one is.
func (r Rank) Before(o Rank) bool { return r.Compare(o) < 0 }

// Compare is negative where r is to be served before o.
func (r Rank) Compare(o Rank) int {
	return cmp.Or(cmp.Compare(o.Priority, r.Priority), r.Turn.Compare(o.Turn), cmp.Compare(r.Name, o.Name))
}

// Outlook is what a failed plan found out about room.
type Outlook int

// Outlooks.
const (
	NoRoomNeeded Outlook = iota // it failed for another reason, or others are evicted for it
	Short                       // a member does not fit
	Hopeless                    // nor would it without the pods behind the group
	Reserved                    // without those it would: nodes are kept for its members
	Promised                    // it will when declared run times are over: nodes are kept for its members until then
)

// claim is what a group has a right to whose last plan failed for lack of room.
type claim struct {
	rank    Rank
	outlook Outlook // of the last plan, not NoRoomNeeded
	// overtaken is by how many behind it, since a plan failed first. They count while the outlook is Short, and the
	// count is kept while it is Promised.
	overtaken int
}

// LimitOvertakes lets a group that was overtaken so many times have a reservation; with 0, as after New, none gets one.
func (s *State) LimitOvertakes(maxOvertakes int) { s.maxOvertakes = maxOvertakes }

// RankOf returns the rank of a pod: that of its group where it starts with others. The name is namespace/name.
func (s *State) RankOf(uid string, priority int32, created time.Time, name string) Rank {
	m := s.members[uid]
	switch {
	case m == nil || m.gang.isPlain():
		return Rank{priority, Turn{Created: created}, "pod/" + name}
	case m.gang.isOpen():
		return Rank{priority, m.gang.turn(), "pod/" + name}
	case m.gang.group == nil || m.phase == Bound:
		return Rank{priority, m.gang.turn(), m.gang.id}
	}
	return m.gang.group.rank()
}

// rank returns the rank of a group: by the lowest priority of the members, and the gang that was created first. A
// group with a degraded gang goes first, as its members do in the queue: else nodes that are kept for an older group
// would not yield to the rest of a gang whose start was interrupted, and each of the two would wait for the other.
func (g *group) rank() Rank {
	r := Rank{Priority: math.MaxInt32, Name: g.key}
	for _, o := range g.gangs {
		r.Degraded = r.Degraded || o.isDegraded()
		if at := o.created(); r.Created.IsZero() || at.Before(r.Created) {
			r.Created = at
		}
		if !o.ranked {
			o.ranked, o.lowest = true, math.MaxInt32
			for _, m := range o.members {
				o.lowest = min(o.lowest, m.pod.Priority)
			}
		}
		r.Priority = min(r.Priority, o.lowest)
	}
	return r
}

// plans reports whether members of the group are still to start together.
func (g *group) plans() bool {
	return g.isStrict() && slices.ContainsFunc(g.gangs, func(o *gang) bool { return !o.isOpen() })
}

// Counts reports whether Overtake may change anything.
func (s *State) Counts() bool { return len(s.short) > 0 }

// Overtake counts pods, or a group, that get room now: against each group before them that lacks it. Those that were
// overtaken often enough are to be tried at once.
func (s *State) Overtake(rank Rank) (effects Effects) {
	for i := 0; i < len(s.short) && s.short[i].claim.rank.Before(rank); {
		g := s.short[i]
		g.claim.overtaken++
		if g.claim.overtaken < s.maxOvertakes {
			i++
			continue
		}
		s.short = slices.Delete(s.short, i, i+1)
		effects.Opened = append(effects.Opened, s.open(g)...)
	}
	return s.finish(effects)
}

// Overtaken reports whether the group of a member was overtaken so often that nodes are to be kept for it, or are kept
// already. nominated says that its members have nodes: where no plan of it has failed yet, a scheduler before this one
// kept them.
func (s *State) Overtaken(uid string, nominated bool) bool {
	m := s.members[uid]
	if m == nil || m.gang.group == nil || s.maxOvertakes == 0 {
		return false
	}
	switch g := m.gang.group; {
	case g.claim == nil:
		return nominated && !g.failed
	case g.claim.outlook == Reserved:
		return true
	default:
		return g.claim.overtaken >= s.maxOvertakes
	}
}

// Reserves reports whether nodes are kept for a group, by the name of its rank.
func (s *State) Reserves(name string) bool {
	g := s.groups[name]
	return g != nil && g.claim != nil && g.claim.outlook >= Reserved
}

// IsReserved reports whether nodes are kept for the group of a member.
func (s *State) IsReserved(uid string) bool {
	m := s.members[uid]
	return m != nil && m.gang.group != nil && s.Reserves(m.gang.group.key)
}

// claims notes what a failed plan of a group found out.
func (s *State) claims(g *group, found Outlook) {
	was := g.claim
	s.unclaim(g)
	g.failed = true
	if found == NoRoomNeeded || s.maxOvertakes == 0 && found != Promised {
		return
	}
	g.claim = &claim{rank: g.rank(), outlook: found}
	if keepsCount(found) && was != nil && keepsCount(was.outlook) {
		g.claim.overtaken = was.overtaken
	}
	if found == Short && g.claim.overtaken < s.maxOvertakes {
		at, _ := slices.BinarySearchFunc(s.short, g, compareClaims)
		s.short = slices.Insert(s.short, at, g)
	}
}

// keepsCount reports whether it is known by how many a group was overtaken while its plans find this.
func keepsCount(found Outlook) bool { return found == Short || found == Promised }

// unclaim ends what a group has a right to.
func (s *State) unclaim(g *group) {
	if g.claim == nil {
		return
	}
	if at, found := slices.BinarySearchFunc(s.short, g, compareClaims); found {
		s.short = slices.Delete(s.short, at, at+1)
	}
	g.claim = nil
}

// compareClaims orders groups by the rank of their claims.
func compareClaims(a, b *group) int { return a.claim.rank.Compare(b.claim.rank) }

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
