package gang

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/why"
)

// Holder is a NonStrict group that holds reservations and has yet to start.
type Holder struct {
	Key      string   // of the group: its gangs, separated by commas
	Reserved []string // UIDs of the members that wait, sorted
	Plan     *Plan    // of what it lacks
}

// Holders returns the groups that hold reservations and wait for more, so many at most: by priority, the highest first,
// which is the lowest of their members', then by age and name.
func (s *State) Holders(most int) (all []Holder) {
	groups, ranks := []*group{}, map[*group]Rank{}
	for _, g := range s.groups {
		if g.holds() && !g.isStrict() {
			groups, ranks[g] = append(groups, g), g.rank()
		}
	}
	slices.SortFunc(groups, func(a, b *group) int { return ranks[a].Compare(ranks[b]) })
	for _, g := range groups[:min(most, len(groups))] {
		h := Holder{Key: g.key, Plan: s.plan(g)}
		for _, o := range g.gangs {
			for uid, m := range o.members {
				if m.phase == Waiting {
					h.Reserved = append(h.Reserved, uid)
				}
			}
		}
		slices.Sort(h.Reserved)
		all = append(all, h)
	}
	return all
}

// holds reports whether members are reserved and wait for others.
func (g *group) holds() bool {
	return slices.ContainsFunc(g.gangs, func(o *gang) bool { return o.count[Waiting] > 0 })
}

// Resolve chooses which of n holders, in their order, give back what they hold so that one of them starts; none where
// one can start as it is, or none could in any case. The first that could with all that the others hold is the winner;
// the last give back first, those before the winner after all others, and none that it does not need. fits reports
// whether a holder could start if others gave back; it is asked 4n times at most.
func Resolve(n int, fits func(holder int, without []int) bool) (winner int, released []int) {
	for h := range n {
		if fits(h, nil) {
			return h, nil
		}
	}
	for h := range n {
		var others []int
		for o := n - 1; o > h; o-- {
			others = append(others, o)
		}
		for o := h - 1; o >= 0; o-- {
			others = append(others, o)
		}
		if !fits(h, others) {
			continue
		}
		for i := range others {
			if fits(h, others[:i+1]) {
				others = others[:i+1]
				break
			}
		}
		for i := 0; i < len(others)-1; {
			without := slices.Delete(slices.Clone(others), i, i+1)
			if fits(h, without) {
				others = without
			} else {
				i++
			}
		}
		return h, others
	}
	return -1, nil
}

// release is groups that gave back what they held so that another one can start.
type release struct {
	winner *group
	behind []*group
	woken  bool // all is given back, and the winner may be tried
}

// Release ends the reservations of groups, so that the winner can start. Their members are not tried before that has
// started, or holds nothing any more.
func (s *State) Release(winner string, behind []string) (effects Effects) {
	w := s.groups[winner]
	if w == nil || !w.holds() {
		return effects
	}
	r := &release{winner: w}
	for _, key := range behind {
		if g := s.groups[key]; g != nil && g != w && g.after == nil {
			g.after = w
			r.behind = append(r.behind, g)
			effects.add(g.end(Refusal{Code: why.GangDeadlockReleased, Gang: w.gangs[0].id}))
			for _, o := range g.gangs {
				s.opened(o)
			}
		}
	}
	s.releases = append(s.releases, r)
	return s.finish(effects)
}

// follow opens the gangs that a release concerns: the winner when all is given back, the others when it has started or
// holds nothing.
func (s *State) follow() (effects Effects) {
	s.releases = slices.DeleteFunc(s.releases, func(r *release) bool {
		switch {
		case s.groups[r.winner.key] != r.winner || !r.winner.holds():
			for _, g := range r.behind {
				g.after = nil
				for _, o := range g.gangs {
					effects.Opened = append(effects.Opened, s.opened(o)...)
				}
			}
			return true
		case !r.woken && !slices.ContainsFunc(r.behind, (*group).returns):
			r.woken = true
			effects.Opened = append(effects.Opened, s.open(r.winner)...)
		}
		return false
	})
	return effects
}
