package gang

import (
	"cmp"
	"slices"
	"time"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Plan is members of a group that are looked at together, before any of them is reserved: a round of a Strict group, or
// what a NonStrict one lacks.
type Plan struct {
	Members []string // by UID: what is to be tried, in this order

	// DomainRequests are the members that go where rules allow; those of gangs with the same rules go to the same
	// place.
	DomainRequests []*domain.Request
	Skip           Portion // that plans before this one have tried

	gang    map[string]*tally // by member
	tallies []*tally
}

// tally is what is known of a gang while its group is planned.
type tally struct {
	least           int // members that must run
	before, pending int // members that run or were placed before the plan, and that it is to try
	placed, left    int // members that run or were placed, and that have yet to be tried; Try sets and counts them
}

// MostPlans bounds the choices of domains in which a group is planned at once. The next plan goes on behind them.
const MostPlans = 1000

// Portion is choices of domains that plans of a group have tried one after the other. Zero where the last one tried
// all.
type Portion struct {
	Choices int
	Since   uint64 // what the caller had counted of the cluster's events before the first of these plans
}

// Attempt is how the last plan of a group ended, or of a NonStrict one the attempt on a member.
type Attempt struct {
	At             time.Time
	Gang           string // the first that lacks members; empty where all had their minimum
	Placed, Needed int    // members of that gang that run or were placed; of all gangs where none lacks any
}

// attempted notes how an attempt ended.
func (g *group) attempted(now time.Time) {
	g.last = Attempt{At: now}
	for _, o := range g.gangs {
		placed := o.count[Waiting] + o.running()
		if !o.isSatisfied() {
			g.last = Attempt{now, o.id, placed, o.settings.Min}
			return
		}
		g.last.Placed += placed
		g.last.Needed += o.settings.Min
	}
}

// Failure is the member for which a plan failed.
type Failure struct {
	UID      string
	Have     int // members of its gang that run or were placed
	Cause    why.Finding
	Preempts bool // its group will fit when pods have ended that are evicted for it
	Outlook  Outlook
	Start    time.Time // the promised one; zero for none
	Again    time.Time // when its group is to be tried again, whatever happens; zero for no such time
	Skip     Portion   // tried, where choices are left: the group is tried again at once
	Tried    Tried
}

// Tried is the domains in which a plan failed. Zero for one that was not bound to any.
type Tried struct {
	Rule          domain.Rule
	Domains, Many int    // that were tried, and that there are
	More          bool   // others are left that may have the room
	Best          string // where most members were placed
}

// Begin returns the plan of a member's group, or why the member may not be tried. There is neither for a pod that is
// tried alone: one that is not known, or of a gang that has started, or of a NonStrict group.
func (s *State) Begin(uid string) (*Plan, Refusal) {
	m := s.members[uid]
	if m == nil || m.phase != Pending {
		return nil, Refusal{}
	}
	refused := s.Try(uid)
	if refused.Code != why.None || m.gang.isOpen() || !m.gang.group.isStrict() {
		return nil, refused
	}
	return s.plan(m.gang.group), Refusal{}
}

// Rest returns the plan of what a NonStrict group lacks, when each pending member but this one was tried in the round;
// nil before, and for another group.
func (s *State) Rest(uid string) *Plan {
	m := s.members[uid]
	if m == nil || m.phase != Pending || s.gate(m.gang).Code != why.None || m.gang.isOpen() ||
		m.gang.group.isStrict() {
		return nil
	}
	left := 0
	for _, g := range m.gang.group.gangs {
		left += g.untried
	}
	if m.cycle < m.gang.group.cycle {
		left--
	}
	if left > 0 {
		return nil
	}
	return s.plan(m.gang.group)
}

// plan returns a plan of the pending members; those of a NonStrict group that wait are placed.
func (s *State) plan(planned *group) *Plan {
	p := &Plan{gang: map[string]*tally{}, Skip: planned.skip}
	var members []*member
	for _, g := range planned.gangs {
		if g.isOpen() {
			continue // its members start alone
		}
		t := &tally{least: g.settings.Min, before: g.placed(), pending: g.count[Pending]}
		t.placed, t.left = t.before, t.pending
		p.tallies = append(p.tallies, t)
		for uid, m := range g.members {
			if m.phase == Pending {
				members = append(members, m)
				p.gang[uid] = t
			}
		}
	}
	p.Members = inOrder(members)
	p.DomainRequests = s.domainRequests(planned, p)
	return p
}

// placed returns how many members count before a plan: those that run, and of a NonStrict group also those that wait.
func (g *gang) placed() int {
	if g.group.isStrict() {
		return g.running()
	}
	return g.running() + g.count[Waiting]
}

// inOrder returns the UIDs of members in the order in which they are tried.
func inOrder(members []*member) (uids []string) {
	slices.SortFunc(members, func(a, b *member) int {
		return cmp.Or(cmp.Compare(b.pod.Priority, a.pod.Priority), cmp.Compare(a.pod.Index, b.pod.Index),
			a.pod.Created.Compare(b.pod.Created),
			cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name),
			cmp.Compare(a.pod.UID, b.pod.UID))
	})
	for _, m := range members {
		uids = append(uids, m.pod.UID)
	}
	return uids
}

// Single returns the plan of a pod that starts alone.
func Single(uid string) *Plan {
	t := &tally{least: 1, pending: 1, left: 1}
	return &Plan{Members: []string{uid}, gang: map[string]*tally{uid: t}, tallies: []*tally{t}}
}

// Chooses reports whether a gang has more members to try than it needs, so that others of them may fit.
func (p *Plan) Chooses() bool {
	return slices.ContainsFunc(p.tallies, func(t *tally) bool {
		return t.before < t.least && t.before+t.pending > t.least
	})
}

// Gather lets members be tried in the domains of labels of nodes. If they must, all of them are in one domain of each
// label; else they prefer it, and so do members whose gang has rules that do not hold for all of these members, or
// for others as well.
func (p *Plan) Gather(uids, labels []string, must bool) {
	add := func(r *domain.Request, must bool) {
		for _, label := range labels {
			r.Rules = append(slices.Clip(r.Rules), domain.Rule{Label: label, Must: must})
		}
	}
	rest := slices.Clone(uids) // members that no rule holds for
	for _, r := range p.DomainRequests {
		gathered := func(uid string) bool { return slices.Contains(uids, uid) }
		others := slices.DeleteFunc(slices.Clone(r.Members), gathered)
		if len(others) == len(r.Members) {
			continue
		}
		rest = slices.DeleteFunc(rest, func(uid string) bool { return slices.Contains(r.Members, uid) })
		add(r, must && len(others) == 0 && len(r.Members) == len(uids))
	}
	if len(rest) == 0 {
		return
	}
	least, among := 0, map[*tally]int{}
	for _, uid := range rest {
		among[p.gang[uid]]++
	}
	for t, n := range among { // its other members may start instead
		least += min(max(t.least-t.before-(t.pending-n), 0), n)
	}
	added := &domain.Request{Members: rest, Min: least}
	add(added, must && len(rest) == len(uids))
	p.DomainRequests = append(p.DomainRequests, added)
}

// Needed returns how many of the members must fit: of each gang what it lacks, but no more than are to be tried, as
// those that wait in a Strict group are not counted before.
func (p *Plan) Needed() (n int) {
	for _, t := range p.tallies {
		n += min(max(t.least-t.before, 0), t.pending)
	}
	return n
}

// Lacks reports whether the gang of a member needs more members than were placed.
func (p *Plan) Lacks(uid string) bool { return p.gang[uid].placed < p.gang[uid].least }

// note counts a member as tried, and reports whether its group can start as far as the member decides it: one that fits
// takes no room for the minimum from others.
func (p *Plan) note(uid string, fits bool) (possible bool) {
	t := p.gang[uid]
	if t.left--; fits {
		t.placed++
	}
	return fits || !slices.ContainsFunc(p.tallies, func(t *tally) bool { return t.placed+t.left < t.least })
}

// Try looks for room for members in this order, those beyond the minimum of their gang after all others: they must not
// take the room that another gang of the group needs. Those that are not in order do not fit. It stops at the first
// that does not and without which the group cannot start, and returns it, with how many members of its gang run or
// were placed; else it returns "". Each call begins anew.
func (p *Plan) Try(order []string, fits func(uid string) bool) (failed string, have int) {
	for _, t := range p.tallies {
		t.placed, t.left = t.before, t.pending
	}
	tried := make(map[string]bool, len(order))
	for _, uid := range order {
		tried[uid] = true
	}
	for _, uid := range p.Members {
		if !tried[uid] && !p.note(uid, false) {
			return uid, p.gang[uid].placed
		}
	}
	var beyond []string
	for _, uid := range order {
		if !p.Lacks(uid) {
			beyond = append(beyond, uid)
		} else if !p.note(uid, fits(uid)) {
			return uid, p.gang[uid].placed
		}
	}
	for _, uid := range beyond {
		p.note(uid, fits(uid))
	}
	return "", 0
}

// Conclude ends the round of a Strict group in which the members of tried were tried, and those of placed were
// reserved.
// If all gangs have their minimum with them, they may be bound. Else they are released, and f says why; if the member
// that failed is gone, the group is to be tried again at once. In a NonStrict group, reserved members wait for the
// rest.
func (s *State) Conclude(tried, placed []string, f Failure, now time.Time) (effects Effects) {
	for _, uid := range placed {
		s.reserve(uid, now, &effects)
	}
	group := s.stampTried(tried)
	if group == nil {
		return s.finish(effects)
	}
	failed := s.members[f.UID]
	switch {
	case !group.isStrict() || group.isSatisfied():
		s.concludeStarted(group, len(placed) > 0, now, &effects)
	case failed == nil || failed.gang.group != group:
		effects.add(group.end(Refusal{}))
		effects.Opened = s.open(group)
	default:
		s.concludeFailed(group, failed, f, now, &effects)
	}
	for _, g := range group.gangs {
		effects.Opened = append(effects.Opened, s.opened(g)...)
	}
	return s.finish(effects)
}

// stampTried records that these members were tried in the round, and returns their group; nil if none is left.
func (s *State) stampTried(tried []string) (group *group) {
	for _, uid := range tried {
		m := s.members[uid]
		if m == nil || m.gang.group == nil {
			continue
		}
		group = m.gang.group
		if m.phase == Pending {
			m.gang.stamp(m)
		}
	}
	return group
}

// isSatisfied reports whether all gangs of the group have their minimum.
func (g *group) isSatisfied() bool {
	return !slices.ContainsFunc(g.gangs, func(o *gang) bool { return !o.isSatisfied() })
}

// concludeStarted ends a round after which members may be bound, or after which those of a NonStrict group wait.
// reserved reports whether members were reserved in it.
func (s *State) concludeStarted(g *group, reserved bool, now time.Time, effects *Effects) {
	g.attempted(now)
	effects.add(g.advanceRound())
	g.failing, g.again, g.skip = time.Time{}, time.Time{}, Portion{}
	if !g.isStrict() {
		return
	}
	effects.Opened = s.open(g) // members beyond the minimum that did not fit are tried alone from now on
	s.unclaim(g)
	if reserved {
		effects.add(s.Overtake(g.rank()))
	}
}

// concludeFailed ends a round that failed for a member: what is reserved is released, and the refusal of all pending
// members names that member and its cause. If the plan was for a portion of the domains, the group is opened again for
// the others, and keeps its claim.
func (s *State) concludeFailed(g *group, failed *member, f Failure, now time.Time, effects *Effects) {
	code, goesOn := why.GangSiblingFailed, f.Skip.Choices > 0
	switch {
	case f.Preempts:
		code = why.GangPreempting
	case f.Outlook >= Reserved, goesOn && s.Reserves(g.key):
		code = why.GangReserved
	}
	if goesOn {
		effects.Opened = s.open(g)
	} else {
		s.claims(g, f.Outlook)
	}
	if g.failing.IsZero() {
		g.failing = now
	}
	g.again, g.skip = f.Again, f.Skip
	have := max(f.Have, failed.gang.count[Waiting]+failed.gang.running()) // fit, or were reserved until now
	g.last = Attempt{At: now, Gang: failed.gang.id, Placed: have, Needed: failed.gang.settings.Min}
	effects.add(g.end(Refusal{
		Code: code, Start: f.Start, Gang: failed.gang.id, Need: failed.gang.settings.Min, Have: have,
		Pod: failed.pod.Namespace + "/" + failed.pod.Name, Cause: f.Cause, Tried: f.Tried,
	}))
}
