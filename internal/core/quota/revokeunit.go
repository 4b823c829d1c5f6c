package quota

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/internal/core/gang"
)

// Obstacle is why revocation does not choose a pod.
type Obstacle string

// The obstacles.
const (
	NonPreemptible  Obstacle = "NonPreemptible"
	OfReservation   Obstacle = "Reservation"     // it stands for a Reservation, which nothing evicts
	BudgetExhausted Obstacle = "BudgetExhausted" // a PodDisruptionBudget allows no further disruption
	SeveralBudgets  Obstacle = "SeveralBudgets"  // the Eviction API refuses pods that more than one budget counts
	GangElsewhere   Obstacle = "GangElsewhere"   // its gang would fall below min, and has members in other quotas
	GangKept        Obstacle = "GangKept"        // its gang would fall below min, and another member cannot be evicted
	GangAboveLimit  Obstacle = "GangAboveLimit"  // its gang can only go whole, and has more pods than Limits allow
)

// unit is pods that are evicted together: one pod, or the members without which a gang would be below its minimum.
type unit struct {
	pods []*Holder // in the order of compareHolders
	// above is the gang's members above its minimum, each a unit of its own. They are evicted with this unit, so that
	// no member remains.
	above []*unit
	rest  *unit    // the unit whose above contains this one; nil for none
	why   Obstacle // why the unit is not chosen; empty if nothing prevents it
	taken bool     // the unit is chosen
}

// selection chooses victims among the units of one quota. Invariant: the After of each level is its Used without the
// pods of the chosen units, and charged has these pods' budgets.
type selection struct {
	levels  []Level
	units   []*unit // in the order of their last pods, the first victim first
	charged gang.Charges
}

// compareHolders orders victims as gang.Victim does, then by UID.
func compareHolders(a, b *Holder) int {
	victim := func(h *Holder) gang.Victim { return gang.Victim{Priority: h.Priority, Start: h.Start} }
	return cmp.Or(victim(a).Compare(victim(b)), cmp.Compare(a.UID, b.UID))
}

// choose chooses the victims of a quota. It takes the units that lower a level above its goal, the lowest priority
// first, then spares the units that are not needed, the highest priority first. A spared unit can leave a budget to a
// unit that lacked it, so both steps are repeated until the first takes nothing; each repetition leaves less above the
// goals than the one before.
func (r *Revoker) choose(levels []Level, holders []Holder) *selection {
	s := &selection{levels: levels, charged: gang.Charges{}}
	gangs := map[*Gang][]*Holder{}
	for i := range holders {
		switch h := &holders[i]; {
		case h.Leaving:
			for i := range levels {
				levels[i].Used -= h.uses(levels[i].Dimension)
			}
		case h.Gang != nil:
			gangs[h.Gang] = append(gangs[h.Gang], h)
		default:
			s.units = append(s.units, &unit{pods: []*Holder{h}, why: h.obstacle()})
		}
	}
	for g := range gangs {
		group := g.Group
		if group == nil {
			group = []*Gang{g}
		}
		if i := slices.IndexFunc(group, func(o *Gang) bool { return len(gangs[o]) > 0 }); group[i] == g {
			s.units = append(s.units, r.unitsOf(group, gangs)...)
		}
	}
	slices.SortFunc(s.units, func(a, b *unit) int {
		return compareHolders(a.pods[len(a.pods)-1], b.pods[len(b.pods)-1])
	})
	for i := range levels {
		levels[i].After = levels[i].Used
	}
	for s.takeUnits() {
		s.spareUnits()
	}
	return s
}

// unitsOf returns the units of gangs that start together: each member above a gang's minimum is one, and all others are
// one unit. Members that no obstacle keeps come first, so that they are the ones above the minimum.
func (r *Revoker) unitsOf(group []*Gang, holders map[*Gang][]*Holder) []*unit {
	rest, all, elsewhere, kept := &unit{}, 0, false, false
	for _, g := range group {
		members := holders[g]
		slices.SortFunc(members, compareHolders)
		slices.SortStableFunc(members, func(a, b *Holder) int {
			return cmp.Compare(min(len(a.obstacle()), 1), min(len(b.obstacle()), 1))
		})
		kept = kept || slices.ContainsFunc(members, func(h *Holder) bool { return h.obstacle() != "" })
		alone, joint := gang.Divide(g.Bond, members, g.Bound-len(members))
		for _, h := range alone {
			rest.above = append(rest.above, &unit{pods: []*Holder{h}, rest: rest, why: h.obstacle()})
		}
		rest.pods = append(rest.pods, joint...)
		all += len(members)
		elsewhere = elsewhere || g.Bound > len(members)
	}
	slices.SortFunc(rest.pods, compareHolders)
	switch {
	case len(rest.pods) == 0:
		return rest.above
	case elsewhere:
		rest.why = GangElsewhere
	case kept:
		rest.why = GangKept
	case exceeds(all, r.limits.PerQuota) || exceeds(all, r.limits.PerMinute):
		rest.why = GangAboveLimit
	}
	return append(slices.Clone(rest.above), rest)
}

// takeUnits chooses units until no level is above its goal, and reports whether it chose any.
func (s *selection) takeUnits() (chosen bool) {
	for _, u := range s.units {
		if u.taken || u.why != "" && u.why != BudgetExhausted || !s.lowers(u) {
			continue
		}
		all := []*unit{u}
		for _, a := range u.above {
			if !a.taken {
				all = append(all, a)
			}
		}
		for _, u := range all {
			s.set(u, true)
		}
		if !s.charged.Exceed() {
			u.why, chosen = "", true
			continue
		}
		u.why = BudgetExhausted
		for _, u := range all {
			s.set(u, false)
		}
	}
	return chosen
}

// set chooses a unit, or spares one that was chosen.
func (s *selection) set(u *unit, taken bool) {
	sign := 1
	if u.taken = taken; !taken {
		sign = -1
	}
	for i := range s.levels {
		s.levels[i].After -= int64(sign) * u.uses(s.levels[i].Dimension)
	}
	for _, h := range u.pods {
		if taken {
			s.charged.Add(h.Budgets)
		} else {
			s.charged.Remove(h.Budgets)
		}
	}
}

// lowers reports whether evicting a unit lowers a level that is still above its goal.
func (s *selection) lowers(u *unit) bool {
	return slices.ContainsFunc(s.levels, func(l Level) bool { return l.After > l.Goal && u.uses(l.Dimension) > 0 })
}

// spareUnits spares each chosen unit without which no level exceeds its goal, or, for a level that does not reach its
// goal, what it reaches with all chosen units.
func (s *selection) spareUnits() {
	reached := slices.Clone(s.levels)
	for _, u := range slices.Backward(s.units) {
		if !u.taken || u.isLocked() {
			continue
		}
		s.set(u, false)
		for i, l := range s.levels {
			if l.After > max(l.Goal, reached[i].After) {
				s.set(u, true)
				break
			}
		}
	}
}

// isLocked reports whether a unit is chosen because the rest of its gang is.
func (u *unit) isLocked() bool { return u.rest != nil && u.rest.taken }

// victims returns the chosen units, a gang that goes whole as one.
func (s *selection) victims() [][]*Holder {
	var victims [][]*Holder
	for _, u := range s.units {
		if !u.taken || u.isLocked() {
			continue
		}
		var pods []*Holder
		for _, a := range u.above {
			pods = append(pods, a.pods...)
		}
		victims = append(victims, append(pods, u.pods...))
	}
	return victims
}

// kept returns the pods that are not chosen and use a dimension that remains above its goal.
func (s *selection) kept() []Kept {
	var kept []Kept
	for _, u := range s.units {
		if !u.taken && s.lowers(u) {
			for _, h := range u.pods {
				kept = append(kept, Kept{h, cmp.Or(h.obstacle(), u.why)})
			}
		}
	}
	return kept
}

// obstacle returns why a pod cannot be evicted; empty if it can.
func (h *Holder) obstacle() Obstacle {
	switch {
	case h.Room:
		return OfReservation
	case h.NonPreemptible:
		return NonPreemptible
	case len(h.Budgets) > 1:
		return SeveralBudgets
	}
	return ""
}

// uses returns what a pod uses in one dimension.
func (h *Holder) uses(d Dimension) int64 {
	for _, a := range h.Uses {
		if a.Dimension == d {
			return a.N
		}
	}
	return 0
}

// uses returns what all pods of a unit use in one dimension.
func (u *unit) uses(d Dimension) int64 {
	total := int64(0)
	for _, h := range u.pods {
		total += h.uses(d)
	}
	return total
}
