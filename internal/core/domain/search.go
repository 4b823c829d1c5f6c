package domain

import (
	"cmp"
	"encoding/binary"
	"iter"
	"slices"
)

// mostPreferred bounds the domains that are tried of each layer that is preferred.
const mostPreferred = 16

// Domains returns the domains in which the members may be tried, in order, and how many domains keep all rules that
// must hold. A domain without enough room is left out; if all are, the roomiest is returned, so that its shortage can
// be reported. If members are held, only their domain keeps the rules that must hold. Domains of the innermost layer
// come first, and of one layer the domain with the least room, so that large domains remain whole. If the members need
// several domains of a layer, they get the fewest.
func (r *Request) Domains(sites []Site, demand Demand) (domains iter.Seq[Domain], all int) {
	s := &search{Request: r, sites: sites, demand: demand, rooms: make([]int, len(sites))}
	for i := range sites {
		s.rooms[i] = s.room(sites[i].Free)
	}
	allowed := s.allowed()
	// The sequence is computed as it is read: most callers stop at one of the first domains.
	return func(yield func(Domain) bool) {
		seen := map[string]bool{} // keys of the domains that were yielded: several rules can have the same domain
		for set := range s.order(allowed) {
			parts := s.parts(&set)
			if key := keyOf(parts); parts != nil && !seen[key] {
				seen[key] = true
				if !yield(Domain{set.name, set.rule, parts}) {
					return
				}
			}
		}
	}, len(allowed)
}

// keyOf returns what identifies parts: their sites and numbers of members.
func keyOf(parts []Part) string {
	var key []byte
	for _, p := range parts {
		key = binary.AppendUvarint(binary.AppendUvarint(key, uint64(p.Members)), uint64(len(p.Sites)))
		for _, i := range p.Sites {
			key = binary.AppendUvarint(key, uint64(i))
		}
	}
	return string(key)
}

// search looks for the domains of one request.
type search struct {
	*Request
	sites  []Site
	demand Demand
	rooms  []int // by site: how many of the smallest members fit on the node, at most all members
}

// nodeSet is the nodes of one domain with what they have together.
type nodeSet struct {
	name  string
	rule  Rule  // whose domain it is; zero for the whole cluster
	sites []int // indexes of the nodes
	room  int   // the sum of the nodes' rooms: no more members than this fit
	short int   // how many members exceed room; while parts divides a domain, the members that the set gets
	held  int   // members of Request.Held on the nodes
	// reserved is the number of Reservations on the nodes that members may use.
	reserved int
	link     int64   // Site.Link of a single node; 0 for several
	free     []int64 // the sum of the nodes' free amounts, by dimension
}

// room returns how many of the smallest members an amount suffices for.
func (s *search) room(free []int64) int {
	room := int64(len(s.Members))
	for d, each := range s.demand.Each {
		if each > 0 {
			room = min(room, free[d]/each)
		}
	}
	return int(room)
}

// newSet returns the set of some nodes.
func (s *search) newSet(name string, rule Rule, sites []int) nodeSet {
	set := nodeSet{name: name, rule: rule, sites: sites, free: make([]int64, len(s.demand.All))}
	for _, i := range sites {
		site := &s.sites[i]
		set.room += s.rooms[i]
		set.held += site.Held
		set.reserved += site.Reserved
		for d := range set.free {
			if set.free[d] += site.Free[d]; set.free[d] < 0 { // the sum exceeds an int64
				set.free[d] = Unlimited
			}
		}
	}
	if set.short = max(len(s.Members)-set.room, 0); len(sites) == 1 {
		set.link = s.sites[sites[0]].Link
	}
	return set
}

// mayFit reports whether a set may have room for as many members as must be placed. It is a necessary condition: false
// only if no placement of Request.Min members exists.
func (s *search) mayFit(set *nodeSet) bool {
	for d, all := range s.demand.All {
		if set.free[d] < all {
			return false
		}
	}
	return set.room >= s.Min
}

// allowed returns the domains that keep all rules that must hold: the nodes that share their domain by each of these
// rules. Without such a rule it is the whole cluster. If members are held, it is the domain with most of them.
func (s *search) allowed() []nodeSet {
	byKey := map[string][]int{} // sites by their domains of the rules that must hold
	rule := s.Bound()
	for i := range s.sites {
		key, inside := "", true
		for r, g := range s.Rules {
			if !g.Must {
				continue
			}
			in := s.sites[i].In[r]
			if inside = inside && in != ""; key == "" {
				key = in
			} else {
				key += "," + in
			}
		}
		if inside {
			byKey[key] = append(byKey[key], i)
		}
	}
	var sets []nodeSet
	for key, sites := range byKey {
		sets = append(sets, s.newSet(key, rule, sites))
	}
	if rule == (Rule{}) {
		return sets
	}
	slices.SortFunc(sets, func(a, b nodeSet) int {
		return cmp.Or(cmp.Compare(b.held, a.held), cmp.Compare(a.name, b.name))
	})
	if len(sets) > 0 && sets[0].held > 0 {
		sets = sets[:1]
	}
	return sets
}

// split returns the domains of a rule within a set, in no order.
func (s *search) split(set *nodeSet, rule int) []nodeSet {
	byDomain := map[string][]int{}
	for _, i := range set.sites {
		if in := s.sites[i].In[rule]; in != "" {
			byDomain[in] = append(byDomain[in], i)
		}
	}
	sets := make([]nodeSet, 0, len(byDomain))
	for name, sites := range byDomain {
		sets = append(sets, s.newSet(name, s.Rules[rule], sites))
	}
	return sets
}

// compareTight orders sets as they are tried: those with held members, those with more Reservations for the members,
// the better linked, those with room for more of the members, those with the least room, then by number of nodes and
// name.
func compareTight(a, b nodeSet) int {
	return cmp.Or(cmp.Compare(b.held, a.held), cmp.Compare(b.reserved, a.reserved), cmp.Compare(b.link, a.link),
		cmp.Compare(a.short, b.short), cmp.Compare(a.room, b.room), cmp.Compare(len(a.sites), len(b.sites)),
		cmp.Compare(a.name, b.name))
}

// compareRoomy orders sets as they are added up: those with held members, those with the most room, then by number of
// nodes and name.
func compareRoomy(a, b nodeSet) int {
	return cmp.Or(cmp.Compare(b.held, a.held), cmp.Compare(b.room, a.room), cmp.Compare(len(a.sites), len(b.sites)),
		cmp.Compare(a.name, b.name))
}

// order yields sets in the order in which they are to be tried: for each rule that is preferred, from the innermost
// layer on, its domains within the allowed ones; then the allowed domains themselves. Before a set of one layer comes
// the smallest number of domains of the next inner layer that may suffice in it; where that layer's domains do not
// suffice together, those of the layer within it count.
func (s *search) order(allowed []nodeSet) iter.Seq[nodeSet] {
	return func(yield func(nodeSet) bool) {
		candidates := slices.Clone(allowed)
		candidates = slices.DeleteFunc(candidates, func(set nodeSet) bool { return !s.mayFit(&set) })
		var inner []int // indexes of the preferred rules of inner layers, the next one last
		for r, rule := range s.Rules {
			if rule.Must {
				continue
			}
			var preferred []nodeSet
			for i := range candidates {
				preferred = append(preferred, s.split(&candidates[i], r)...)
			}
			preferred = slices.DeleteFunc(preferred, func(set nodeSet) bool { return !s.mayFit(&set) })
			slices.SortFunc(preferred, compareTight)
			for _, set := range preferred[:min(len(preferred), mostPreferred)] {
				if !s.yieldFewestFirst(&set, inner, yield) {
					return
				}
			}
			inner = append(inner, r)
		}
		slices.SortFunc(candidates, compareTight)
		for i := range candidates {
			if !s.yieldFewestFirst(&candidates[i], inner, yield) {
				return
			}
		}
		if len(candidates) == 0 && len(allowed) > 0 {
			yield(slices.MinFunc(allowed, compareRoomy))
		}
	}
}

// yieldFewestFirst yields the fewest domains that may suffice within a set, of the last rule of which some do, then the
// set.
func (s *search) yieldFewestFirst(set *nodeSet, rules []int, yield func(nodeSet) bool) bool {
	for _, rule := range slices.Backward(rules) {
		if few, found := s.fewest(set, rule); found {
			if !yield(few) {
				return false
			}
			break
		}
	}
	return yield(*set)
}

// fewest returns the union of as few domains of a rule within a set as may have the room: the roomiest, and as the last
// one the smallest with which the union suffices.
func (s *search) fewest(set *nodeSet, rule int) (few nodeSet, found bool) {
	domains := s.split(set, rule)
	slices.SortFunc(domains, compareRoomy)
	var sites []int
	for k := range domains {
		union := s.newSet(set.name, set.rule, append(slices.Clone(sites), domains[k].sites...))
		if !s.mayFit(&union) {
			sites = union.sites
			continue
		}
		for _, last := range slices.Backward(domains[k:]) {
			union := s.newSet(set.name, set.rule, append(slices.Clone(sites), last.sites...))
			if slices.Sort(union.sites); s.mayFit(&union) {
				return union, true
			}
		}
	}
	return nodeSet{}, false
}

// parts divides a set if a rule asks for multiples of members or members are ranked; else the set is one part. nil
// reports that the set lacks the room for multiples.
func (s *search) parts(set *nodeSet) []Part {
	rule := slices.IndexFunc(s.Rules, func(r Rule) bool { return r.Multiple > 1 })
	switch {
	case rule < 0 && !s.Ranked:
		return []Part{{Sites: set.sites}}
	case rule < 0:
		return s.rankedParts(set)
	}
	return s.multiples(set, rule)
}

// multiples divides a set into domains of a rule, so that each has a multiple of Rule.Multiple members, held ones
// included: first each domain gets what its held members lack of a multiple, then as many multiples as remain, the
// roomiest domain first; the last domain is the smallest that suffices. nil if fewer than Request.Min members get a
// place.
func (s *search) multiples(set *nodeSet, rule int) []Part {
	n, left, room := s.Rules[rule].Multiple, len(s.Members), 0
	domains := s.split(set, rule)
	slices.SortFunc(domains, compareRoomy)
	for i := range domains {
		d := &domains[i]
		if d.short = (n - d.held%n) % n; d.short > min(d.room, left) {
			d.short, d.room = 0, 0
		}
		left -= d.short
		d.room -= d.short
		d.room -= d.room % n
		room += d.room
	}
	slices.SortFunc(domains, compareRoomy)
	rest := min(room, left-left%n)
	if len(s.Members)-left+rest < s.Min {
		return nil
	}
	for i := 0; rest > 0; i++ {
		d := &domains[i]
		for k := range domains[i:] {
			if o := &domains[i+k]; o.room >= rest && o.room <= d.room {
				d = o
			}
		}
		d.short += min(d.room, rest)
		rest -= min(d.room, rest)
	}
	var parts []Part
	for _, d := range domains {
		if d.short > 0 {
			parts = append(parts, Part{d.sites, d.short})
		}
	}
	return parts
}

// rankedParts divides a set into the domains of the innermost layer, so that domains of one outer domain follow each
// other. Nodes outside of all domains come last.
func (s *search) rankedParts(set *nodeSet) (parts []Part) {
	sites := slices.Clone(set.sites)
	outermostFirst := func(a, b int) int {
		for r := len(s.Rules) - 1; r >= 0; r-- {
			x, y := s.sites[a].In[r], s.sites[b].In[r]
			if x == "" || y == "" {
				x, y = y, x
			}
			if x != y {
				return cmp.Compare(x, y)
			}
		}
		return cmp.Compare(a, b)
	}
	slices.SortFunc(sites, outermostFirst)
	for i, site := range sites {
		if i == 0 || !slices.Equal(s.sites[site].In, s.sites[sites[i-1]].In) {
			parts = append(parts, Part{})
		}
		last := &parts[len(parts)-1]
		last.Sites = append(last.Sites, site)
	}
	return parts
}
