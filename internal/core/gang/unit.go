package gang

import (
	"cmp"
	"slices"
	"time"
)

// Bond is what holds the pods of a gang together. The zero value is of a gang of which nothing is known.
type Bond struct {
	Least int  // members that must run; 0 where nothing is known of the gang
	Plain bool // its pods are scheduled one by one, whatever they say
	Whole bool // its pods are evicted together
	// NonStrict members are reserved one by one, as they fit: all gangs of the group have that mode.
	NonStrict bool
	Group     string // the same for gangs that start together; empty where one that it lists does not list the same
}

// Bond returns what holds the pods of a gang together; the zero value for one that does not exist.
func (s *State) Bond(id string) Bond {
	if g := s.gangs[id]; g != nil {
		return g.bond()
	}
	return Bond{}
}

// bond returns what binds the members to each other, for the accounts of quotas and evictions.
func (g *gang) bond() Bond {
	b := Bond{Least: g.settings.Min, Plain: g.isPlain(), Whole: g.isWhole()}
	if g.group != nil {
		b.Group, b.NonStrict = g.group.key, !g.group.isStrict()
	}
	return b
}

// Spares returns how many of the members that hold resources may be evicted one by one, so that the gang keeps its
// minimum. A gang that is evicted whole spares none, and so does one of which nothing is known.
func (b Bond) Spares(holding int) int {
	switch {
	case b.Whole, b.Least == 0 && !b.Plain:
		return 0
	case b.Plain:
		return holding
	}
	return max(holding-b.Least, 0)
}

// Lacks returns how many members must start together, beside those that hold resources.
func (b Bond) Lacks(holding int) int {
	if b.Plain {
		return 0
	}
	return max(b.Least-holding, 0)
}

// AtOnce returns how many members must be admitted at once, beside those that hold resources: all that the gang lacks,
// and of a NonStrict one none.
func (b Bond) AtOnce(holding int) int {
	if b.NonStrict {
		return 0
	}
	return b.Lacks(holding)
}

// Divide divides members of one gang that hold resources, of which there are further ones elsewhere. Each of alone, the
// first of the members, may be evicted by itself. Each of joint may be evicted only with all members of all gangs that
// start with its own.
func Divide[T any](b Bond, members []T, elsewhere int) (alone, joint []T) {
	n := min(b.Spares(len(members)+elsewhere), len(members))
	return members[:n], members[n:]
}

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
		if m.phase != Pending && m.phase != Returning && m.phase != Gated && !gone(uid) {
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
	Start      time.Time // of those with the highest priority, the earliest; zero where none has started
}

// Compare orders losses, the smallest first: the fewest violations, the lowest of the highest priorities, the fewest
// units, the smallest sum, the latest start.
func (l Loss) Compare(o Loss) int {
	return cmp.Or(cmp.Compare(l.Violations, o.Violations), cmp.Compare(l.Highest, o.Highest),
		cmp.Compare(l.Units, o.Units), cmp.Compare(l.Sum, o.Sum), compareStarts(o.Start, l.Start))
}

// Add counts a pod of a unit.
func (l *Loss) Add(v Victim) {
	if l.Sum == 0 || (Victim{l.Highest, l.Start}).Compare(v) < 0 {
		l.Highest, l.Start = v.Priority, v.Start
	}
	l.Sum += int64(v.Priority) + 1<<31 + 1
}

// Budget is a PodDisruptionBudget while victims are chosen. Two budgets are the same one only if their pointers are
// equal.
type Budget struct {
	Name string // for messages
	// Allowed is how many of the pods that the budget counts may be evicted now.
	Allowed int
}

// Charges is how many victims have been chosen of the pods that each budget counts. nil charges no budget, for reading.
type Charges map[*Budget]int

// Add charges a victim to the budgets that count it, and reports whether one of them does not allow the eviction.
func (c Charges) Add(budgets []*Budget) (violates bool) {
	for _, b := range budgets {
		c[b]++
		violates = violates || c[b] > max(b.Allowed, 0)
	}
	return violates
}

// Remove takes back what Add charged for a victim that is spared.
func (c Charges) Remove(budgets []*Budget) {
	for _, b := range budgets {
		c[b]--
	}
}

// Exceed reports whether more victims are chosen than one of the budgets allows.
func (c Charges) Exceed() bool {
	for b, n := range c {
		if n > max(b.Allowed, 0) {
			return true
		}
	}
	return false
}
