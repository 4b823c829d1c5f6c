package gang

import (
	"slices"
	"time"

	"github.com/tenon-project/tenon/internal/core/why"
)

// group is the gangs that start together. A round is one attempt of each of its pending members. It begins when the one
// before it ends, and ends when each member was tried or has left, or when the group cannot start any more.
type group struct {
	// key is the names of the gangs, ascending, separated by commas. It does not change: a gang that lists others moves
	// to another group.
	key   string
	gangs []*gang // by name
	// cycle numbers the rounds from 1. Invariant: no member has a greater one.
	cycle int
	// deadline is when members that wait are released. The first reservation of the group sets it; zero while none
	// waits.
	deadline time.Time
	// failure is why the last round failed. It is none where the gate ended the round, or it succeeded.
	failure Refusal
	// asked is set when a member was refused because reservations of the group had yet to end. When the last of them
	// has, the group is opened.
	asked bool
	// after is the group for whose sake this one released what it held. The gate is closed until that group has
	// started or is gone; nil otherwise.
	after *group
	// claim is what the last plan found out about room. nil where it did not fail for lack of room.
	claim *claim
	// failed is set once a plan of the group has failed in this process. Before that, nominated members have nodes that
	// an earlier scheduler kept.
	failed bool
	// last is how the last attempt ended, for reports alone.
	last Attempt
	// skip is the choices of domains that the last plans have tried in vain, one after the other. Zero where the last
	// plan tried all, and after a start.
	skip Portion

	// evicts is when bound members are to be evicted; zero unless Evictions found an interrupted start.
	evicts time.Time
	// failing is when a plan failed first since the group started last; zero where none has.
	failing time.Time
	// again is when the group is opened, whatever happens; zero for no such time.
	again time.Time
	// resumes is when a group is opened whose waiting time was over. Until then failure says so; zero otherwise.
	resumes time.Time
}

// restAfterTimeout is after how long a gang is tried again whose waiting time was over: as long as the queue lets a pod
// wait at most that does not fit. Others may have what it gave back.
const restAfterTimeout = 10 * time.Second

// Refusal is why a member may not be tried, or why the last round of its group failed. The zero value is none.
type Refusal struct {
	Code why.Code
	Gang string // that the code is about
	Need int    // members of Gang that must run
	// Have is how many members of Gang exist with GangNotReady, those without a scheduling gate with GangGated; with
	// the other codes, how many were placed or run.
	Have int
	// Text is what cannot be read, the layer that is not defined, or the gates of the members that are held back.
	Text  string
	Gated int // members of Gang that gates hold back, with GangGated

	Pod   string      // namespace/name of the member that failed
	Cause why.Finding // why it did
	Tried Tried       // domains

	// Start is until when nodes are kept, and then the gang starts; zero where that is not known.
	Start time.Time

	// PartBound members of the group were bound when the scheduler stopped, of PartLeast that had to be; 0 of a group
	// whose start was not interrupted.
	PartBound, PartLeast int
}

// Condition returns the reason of the condition PodScheduled of a pod that waits for this. All members of a gang that
// lacks room are Unschedulable, so that a cluster autoscaler adds nodes for all of them together. Those behind a member
// that no new node helps wait for their gang.
func (r Refusal) Condition() string {
	if own := r.Code.Condition(); own != why.Unschedulable || r.Cause.Code.Condition() == why.Unschedulable {
		return own
	}
	return why.WaitingForGang
}

// set moves a member to a phase. It is the only way to change one: the counts of the gang follow.
func (g *gang) set(m *member, p Phase) {
	g.leave(m)
	g.enter(m, p)
}

// enter counts a member in a phase. A pending member is untried until stamp records an attempt of the group's round.
func (g *gang) enter(m *member, p Phase) {
	m.phase = p
	g.count[p]++
	if p == Gated {
		if g.gates == nil {
			g.gates = map[string]int{}
		}
		g.gates[m.pod.Gate]++
	}
	if p == Pending && (g.group == nil || m.cycle < g.group.cycle) {
		g.untried++
	}
}

// leave takes a member out of the counts, by what enter counted of it.
func (g *gang) leave(m *member) {
	g.count[m.phase]--
	if m.phase == Gated {
		if g.gates[m.pod.Gate]--; g.gates[m.pod.Gate] == 0 {
			delete(g.gates, m.pod.Gate)
		}
	}
	if m.phase == Pending && (g.group == nil || m.cycle < g.group.cycle) {
		g.untried--
	}
}

// stamp notes that a member was tried in the round.
func (g *gang) stamp(m *member) {
	g.leave(m)
	m.cycle = g.group.cycle
	g.enter(m, m.phase)
}

// Place records that a member was reserved. One that may not be tried any more is given back.
func (s *State) Place(uid string, now time.Time) (effects Effects) {
	if g := s.reserve(uid, now, &effects); g != nil {
		effects.add(g.advanceRound())
		effects.Opened = s.opened(s.members[uid].gang) // what is allowed closes those that count waiting members alone
		return s.finish(effects)
	}
	return effects
}

// reserve lets a pending member wait, and returns its group. One that may not be tried any more is given back.
func (s *State) reserve(uid string, now time.Time, effects *Effects) *group {
	m := s.members[uid]
	if m == nil || m.phase != Pending {
		return nil
	}
	if s.Gate(uid).Code != why.None {
		m.gang.set(m, Returning)
		effects.Release = append(effects.Release, uid)
		return nil
	}
	m.gang.stamp(m)
	m.gang.set(m, Waiting)
	g := m.gang.group
	if g.deadline.IsZero() {
		g.deadline = now.Add(g.wait())
	}
	return g
}

// Fail records that a member was tried and does not fit, or was refused for another reason.
func (s *State) Fail(uid string, cause why.Finding, now time.Time) Effects {
	m := s.members[uid]
	if m == nil || m.phase != Pending || m.gang.group == nil {
		return Effects{}
	}
	g := m.gang
	g.stamp(m)
	if !g.group.isStrict() {
		if g.group.resumes.IsZero() {
			g.group.failure = Refusal{} // each member has its own reason
		}
		g.group.attempted(now)
	}
	return m.failed(cause)
}

// Lose records that the reservation of a member has ended. cause is why, where that was not asked for.
func (s *State) Lose(uid string, cause why.Finding) Effects {
	m := s.members[uid]
	if m == nil || m.phase == Pending || m.phase >= Bound {
		return Effects{}
	}
	returned := m.phase == Returning
	m.gang.set(m, Pending)
	effects := Effects{Opened: s.opened(m.gang)}
	switch group := m.gang.group; {
	case group == nil:
	case !returned:
		effects.add(m.failed(cause))
		if !group.isStrict() && s.gate(m.gang).Code == why.None { // others wait for it still
			effects.Opened = append(effects.Opened, m.gang.id)
		}
	default:
		effects.add(group.advanceRound())
		if group.asked && !group.returns() {
			group.asked = false
			effects.Opened = append(effects.Opened, s.open(group)...)
		}
	}
	return s.finish(effects)
}

// returns reports whether reservations of the group have yet to end.
func (g *group) returns() bool {
	return slices.ContainsFunc(g.gangs, func(o *gang) bool { return o.count[Returning] > 0 })
}

// failed ends the round where the gang of a member that does not fit cannot reach its minimum.
func (m *member) failed(cause why.Finding) Effects {
	g := m.gang
	if g.group.isStrict() && !g.canComplete() {
		failure := g.short(why.GangSiblingFailed)
		failure.Pod, failure.Cause = m.pod.Namespace+"/"+m.pod.Name, cause
		return g.group.end(failure)
	}
	return g.group.advanceRound()
}

// Deadline returns when Expire is due next; false while nothing waits.
func (s *State) Deadline() (next time.Time, waits bool) {
	for _, g := range s.groups {
		for _, at := range []time.Time{g.deadline, g.resumes, g.again} {
			if !at.IsZero() && (!waits || at.Before(next)) {
				next, waits = at, true
			}
		}
	}
	return next, waits
}

// FailedSince returns when a plan of a member's group failed first, now where none has.
func (s *State) FailedSince(uid string, now time.Time) time.Time {
	if m := s.members[uid]; m != nil && m.gang.group != nil && !m.gang.group.failing.IsZero() {
		return m.gang.group.failing
	}
	return now
}

// Expire gives back what has waited for too long, and opens the gangs that are to be tried again now.
func (s *State) Expire(now time.Time) (effects Effects) {
	for _, g := range s.groups {
		if !g.again.IsZero() && !now.Before(g.again) {
			g.again = time.Time{}
			effects.Opened = append(effects.Opened, s.open(g)...)
		}
		if !g.resumes.IsZero() && !now.Before(g.resumes) {
			g.resumes, g.failure = time.Time{}, Refusal{}
			effects.Opened = append(effects.Opened, s.open(g)...)
		}
		if !g.deadline.IsZero() && !now.Before(g.deadline) {
			g.resumes = now.Add(restAfterTimeout)
			effects.add(g.end(g.lacking(why.GangTimeout)))
		}
	}
	return s.finish(effects)
}

// lacking returns a refusal that names the first gang whose minimum is not reached.
func (g *group) lacking(code why.Code) Refusal {
	first := g.gangs[0]
	for _, o := range slices.Backward(g.gangs) {
		if !o.isSatisfied() {
			first = o
		}
	}
	return first.short(code)
}

// short returns a refusal that counts the members that wait or run.
func (g *gang) short(code why.Code) Refusal {
	return Refusal{Code: code, Gang: g.id, Need: g.settings.Min, Have: g.count[Waiting] + g.running()}
}

// isStrict reports whether a failure ends all reservations.
func (g *group) isStrict() bool {
	return slices.ContainsFunc(g.gangs, func(g *gang) bool { return g.settings.Mode != NonStrict })
}

// wait returns how long reservations wait for the rest: the shortest time of the gangs.
func (g *group) wait() time.Duration {
	shortest := g.gangs[0].settings.Wait
	for _, o := range g.gangs {
		shortest = min(shortest, o.settings.Wait)
	}
	return shortest
}

// advanceRound allows what may be bound, ends a round that cannot succeed any more, and begins the next one when all
// were tried.
func (g *group) advanceRound() Effects {
	effects := Effects{Allow: g.allow(g.isSatisfied())}
	if !g.holds() {
		g.over()
		return effects
	}
	for _, o := range g.gangs {
		switch {
		case o.refusal().Code != why.None, g.isStrict() && o.isShort():
			effects.add(g.end(Refusal{})) // the gate says why
			return effects
		case g.isStrict() && !o.canComplete():
			effects.add(g.end(o.short(why.GangSiblingFailed)))
			return effects
		}
	}
	g.over()
	return effects
}

// allow returns the waiting members that may be bound: all where the group is ready, else those of gangs that have
// started.
func (g *group) allow(ready bool) (uids []string) {
	for _, o := range g.gangs {
		if !ready && !o.isOpen() || o.count[Waiting] == 0 {
			continue
		}
		o.start.proved = true
		for uid, m := range o.members {
			if m.phase == Waiting {
				o.set(m, Allowed)
				uids = append(uids, uid)
			}
		}
	}
	if ready && len(uids) > 0 {
		g.deadline, g.resumes, g.failure = time.Time{}, time.Time{}, Refusal{}
		for _, o := range g.gangs {
			o.start.proved = true
		}
	}
	slices.Sort(uids)
	return uids
}

// over begins the next round when each member was tried in this one or has left.
func (g *group) over() {
	tried := false
	for _, o := range g.gangs {
		if o.untried > 0 {
			return
		}
		for _, m := range o.members {
			tried = tried || m.cycle == g.cycle
		}
	}
	if tried {
		g.next()
	}
}

// next begins a round: each pending member is untried again.
func (g *group) next() {
	g.cycle++
	for _, o := range g.gangs {
		o.untried = o.count[Pending]
	}
}

// end ends a round without success: what is reserved is given back, and who was not tried counts as tried.
func (g *group) end(why Refusal) Effects {
	effects := g.releaseMembers()
	g.failure = why
	g.failure.PartBound, g.failure.PartLeast = g.boundInPart()
	for _, o := range g.gangs {
		for _, m := range o.members {
			if m.phase == Pending {
				o.stamp(m)
			}
		}
	}
	g.next()
	return effects
}

// releaseMembers ends the reservations of all members that wait. They are Returning until Lose records the end.
func (g *group) releaseMembers() (effects Effects) {
	g.deadline = time.Time{}
	for _, o := range g.gangs {
		for uid, m := range o.members {
			if m.phase == Waiting {
				o.set(m, Returning)
				effects.Release = append(effects.Release, uid)
			}
		}
	}
	slices.Sort(effects.Release)
	return effects
}
