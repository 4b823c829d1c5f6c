package gang

import (
	"cmp"
	"slices"
	"time"
)

// Units returns what is evicted where these members are, of those that have not gone: each alone where its gang keeps
// its minimum and its PodGroup does not want it whole, else with all that its group has reserved or bound. A pod that
// is not known is a unit of its own.
func (s *State) Units(victims []string, gone func(uid string) bool) (units [][]string) {
	leaving := map[*gang][]string{}
	for _, uid := range victims {
		if m := s.members[uid]; m != nil {
			leaving[m.gang] = append(leaving[m.gang], uid)
		}
	}
	broken := map[*gang]bool{}
	for g, uids := range leaving {
		if _, joint := Divide(g.bond(), uids, len(g.holders(gone))-len(uids)); broken[g] || len(joint) == 0 {
			continue
		}
		all := []*gang{g}
		if g.group != nil {
			all = g.group.gangs
		}
		var unit []string
		for _, o := range all {
			broken[o] = true
			unit = append(unit, o.holders(gone)...)
		}
		slices.Sort(unit)
		units = append(units, unit)
	}
	for _, uid := range victims {
		if m := s.members[uid]; m == nil || !broken[m.gang] {
			units = append(units, []string{uid})
		}
	}
	slices.SortFunc(units, slices.Compare)
	return units
}

// Splits reports whether the group of one of these members has lost what a gang of it needs, and has others left.
func (s *State) Splits(uids []string, gone func(uid string) bool) bool {
	return slices.ContainsFunc(uids, func(uid string) bool {
		m := s.members[uid]
		if m == nil {
			return false
		}
		all := []*gang{m.gang}
		if m.gang.group != nil {
			all = m.gang.group.gangs
		}
		short, left := false, false
		for _, g := range all {
			has := len(g.holders(gone))
			left = left || has > 0
			short = short || has < g.settings.Min && has < len(g.holders(func(string) bool { return false }))
		}
		return short && left
	})
}

// holders returns the members that are reserved or bound, of those that have not gone.
func (g *gang) holders(gone func(uid string) bool) (uids []string) {
	for uid, m := range g.members {
		if m.phase != Pending && m.phase != Returning && !gone(uid) {
			uids = append(uids, uid)
		}
	}
	return uids
}

// Loss is what is lost with pods that are evicted.
type Loss struct {
	Violations int       // of disruption budgets
	Highest    int32     // of the priorities
	Units      int       // that are evicted, each whole
	Sum        int64     // of the priorities; each pod counts, whatever its priority
	Start      time.Time // of those with the highest priority, the earliest
}

// Compare orders losses, the smallest first: the fewest violations, the lowest of the highest priorities, the fewest
// units, the smallest sum, the latest start.
func (l Loss) Compare(o Loss) int {
	return cmp.Or(cmp.Compare(l.Violations, o.Violations), cmp.Compare(l.Highest, o.Highest),
		cmp.Compare(l.Units, o.Units), cmp.Compare(l.Sum, o.Sum), o.Start.Compare(l.Start))
}

// Add counts a pod of a unit.
func (l *Loss) Add(priority int32, start time.Time) {
	if l.Sum == 0 || priority > l.Highest || priority == l.Highest && start.Before(l.Start) {
		l.Highest, l.Start = priority, start
	}
	l.Sum += int64(priority) + 1<<31 + 1
}
