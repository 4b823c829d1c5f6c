package gang

import (
	"slices"
	"time"
)

// start is what is known of whether a set of a gang's pods has started whole: its minimum was reserved once. The State
// that allowed it remembers that. Another one, after a restart, sees only which pods are bound: these may be a part of
// the minimum, if the scheduler stopped between two Bindings. doc.go has the rule.
type start struct {
	// proved: the minimum was reserved, or the PodGroup says so, or nothing contradicted it when a member was removed.
	// It ends with the last pod of the set.
	proved bool
	// partial: some members are bound, fewer than the minimum, and one of the others existed when the first of them was
	// bound. Set by noteStart.
	partial bool
	// sticky: the start was partial when a member was deleted or ended. It remains so, whatever pods come instead,
	// until it is proved or no member is bound.
	sticky     bool
	firstBound time.Time // the earliest time that a bound member says; zero while none says any
	leaving    int       // bound members that are being deleted; counted while the start is partial
}

// hasStarted reports whether the minimum was reserved once. Bound members prove it unless their start was interrupted.
func (g *gang) hasStarted() bool { return g.start.proved || g.count[Bound] > 0 && !g.isInterrupted() }

// isInterrupted reports whether the scheduler stopped while the members of a Strict group were being bound. The others
// follow together or not at all.
func (g *gang) isInterrupted() bool {
	return g.start.partial && (g.group == nil || g.group.isStrict())
}

// noteStart follows a change of the members or the minimum of a gang. The work is constant where it is proved that the
// gang has started or no member is bound, and in the number of its members at most.
func (g *gang) noteStart() {
	b := &g.start
	b.partial, b.leaving = false, 0
	switch bound := g.count[Bound]; {
	case bound == 0:
		b.firstBound, b.sticky = time.Time{}, false
	case b.proved, bound >= g.settings.Min:
	case b.sticky, len(g.members) >= g.settings.Min: // else the others could never follow
		b.partial = b.sticky
		for _, m := range g.members {
			if m.phase != Bound {
				b.partial = b.partial || b.firstBound.IsZero() || !m.pod.Created.After(b.firstBound)
			} else if m.pod.Leaving {
				b.leaving++
			}
		}
	}
}

// noteBound records a bound member.
func (b *start) noteBound(p *Pod) {
	if b.firstBound.IsZero() || !p.Bound.IsZero() && p.Bound.Before(b.firstBound) {
		b.firstBound = p.Bound
	}
}

// Evictions returns the members, sorted, that are to be evicted now: those that are bound of gangs whose start was
// interrupted and that allow it. The waiting time of their group begins with the first call that finds them. Members
// that are bound nevertheless are returned again after restAfterTimeout. The caller calls it every second.
func (s *State) Evictions(now time.Time) (uids []string) {
	for _, g := range s.groups {
		var bound []string
		for _, o := range g.gangs {
			if o.isInterrupted() && o.settings.Interrupted == EvictBound {
				for uid, m := range o.members {
					if m.phase == Bound && !m.pod.Leaving {
						bound = append(bound, uid)
					}
				}
			}
		}
		switch {
		case len(bound) == 0:
			g.evicts = time.Time{}
		case g.evicts.IsZero():
			g.evicts = now.Add(g.wait())
		case !now.Before(g.evicts):
			g.evicts = now.Add(restAfterTimeout)
			uids = append(uids, bound...)
		}
	}
	slices.Sort(uids)
	return uids
}

// boundInPart returns how many members of a group are bound whose start was interrupted, and how many must be; 0 for
// another group.
func (g *group) boundInPart() (bound, least int) {
	interrupted := false
	for _, o := range g.gangs {
		interrupted = interrupted || o.isInterrupted()
		bound += o.count[Bound]
		least += o.settings.Min
	}
	if !interrupted {
		return 0, 0
	}
	return bound, least
}
