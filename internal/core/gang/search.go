package gang

import "slices"

// Search finds nodes for members that must run together by looking at all choices, where trying one member after the
// other found none: a member that is tried early takes the room that only a later one cannot do without. Within Steps it
// finds nodes whenever there are any; for at most 8 members on at most 16 nodes MostSearchSteps are nearly always enough
// (none of 10,000 random groups of 6 on 5 nodes is missed), for more members they are a bound of the time.
type Search struct {
	// Kinds has what a member asks for, by UID: members of one kind are interchangeable.
	Kinds map[string]string
	// Nodes are the nodes that take a member alone, by kind, in the order in which they are tried.
	Nodes map[string][]string
	// Steps bounds how often Place is called.
	Steps int
	// Place puts a member on a node beside those that were placed before it and are not removed. It reports whether the
	// node takes it, and changes nothing where not.
	Place func(uid, node string) bool
	// Remove takes back the last member that Place has put on a node.
	Remove func()

	plan  *Plan
	order []string
	found map[string]string
}

const (
	MostSearched      = 32   // members of a group for which nodes are searched
	MostSearchedNodes = 16   // nodes that take any of them
	MostSearchSteps   = 2000 // attempts to put one member on one node
)

// Nodes returns a node for as many members as their gangs need, by UID. Members that are not in order are not placed.
// ok is false where there are no such nodes, or none were found within the steps. The plan remains as it is, and all
// members are removed at the end.
func (p *Plan) Nodes(order []string, s *Search) (nodes map[string]string, ok bool) {
	s.plan, s.order, s.found = p, order, map[string]string{}
	left, kept := map[*tally]int{}, make([]tally, len(p.tallies))
	for i, t := range p.tallies {
		kept[i] = *t
	}
	for _, uid := range order {
		left[p.gang[uid]]++
	}
	for _, t := range p.tallies {
		t.left = left[t]
	}
	ok = s.place(0)
	for i, t := range p.tallies {
		*t = kept[i]
	}
	return s.found, ok
}

// place finds nodes for the members from the i-th on. A member is left out where its gang can do without it; of members
// of one kind the later ones are tried on the same and on later nodes alone, and are left out with the earlier ones, as
// any other choice differs in names only.
func (s *Search) place(i int) bool {
	if i == len(s.order) {
		return !slices.ContainsFunc(s.plan.tallies, func(t *tally) bool { return t.placed < t.least })
	}
	uid := s.order[i]
	t, kind := s.plan.gang[uid], s.Kinds[uid]
	if t.placed >= t.least {
		return s.place(i + 1) // those beyond the minimum are tried when all others have their nodes
	}
	from, out := s.previous(i)
	t.left--
	defer func() { t.left++ }()
	for j := from; !out && j < len(s.Nodes[kind]); j++ {
		if s.Steps == 0 {
			return false
		}
		s.Steps--
		node := s.Nodes[kind][j]
		if !s.Place(uid, node) {
			continue
		}
		t.placed++
		s.found[uid] = node
		found := s.place(i + 1)
		s.Remove()
		t.placed--
		if found {
			return true
		}
		delete(s.found, uid)
	}
	return t.placed+t.left >= t.least && s.place(i+1)
}

// previous returns the index of the node that the last member before the i-th got which is of the same kind and gang,
// and whether that one was left out.
func (s *Search) previous(i int) (node int, out bool) {
	uid := s.order[i]
	for j := i - 1; j >= 0; j-- {
		other := s.order[j]
		if s.plan.gang[other] != s.plan.gang[uid] || s.Kinds[other] != s.Kinds[uid] {
			continue
		}
		name, placed := s.found[other]
		return max(0, slices.Index(s.Nodes[s.Kinds[uid]], name)), !placed
	}
	return 0, false
}
