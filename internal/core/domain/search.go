package domain

import (
	"cmp"
	"encoding/binary"
	"iter"
	"math"
	"slices"
)

// Request is members that go where the same rules allow.
type Request struct {
	Members []string // by UID: to be placed
	Held    []string // by UID: those that have a node already, or are reserved on one
	Min     int      // of Members: so many must be placed
	Rules   []Rule   // from the innermost layer to the outermost
	// Joint asks that all devices are on one node, well linked, where that is possible.
	Joint bool
	// Ranked asks that members that follow each other are in one domain of the innermost layer, as far as possible.
	Ranked bool
}

// Bound returns the first rule that must hold; the zero value without one.
func (g *Request) Bound() Rule {
	if i := slices.IndexFunc(g.Rules, func(r Rule) bool { return r.Must }); i >= 0 {
		return g.Rules[i]
	}
	return Rule{}
}

// Site is a node on which members may be placed.
type Site struct {
	Name string
	In   []string // its domain by rule; empty where it is in none
	Free []int64  // by dimension, not below 0; Unlimited where the node does not count it
	Held int      // members that are there
	Link int64    // of two domains that prefer equally, the one with more is tried first
}

// Unlimited is an amount that no demand exceeds.
const Unlimited = math.MaxInt64

// Demand is what members ask for at least, by dimension: a necessary condition, which costs nothing to look at.
type Demand struct {
	Each []int64 // the smallest request of a member
	All  []int64 // the sum of the Min smallest requests
}

// Domain is where members may be placed.
type Domain struct {
	Name  string
	Rule  Rule // zero for the whole cluster
	Parts []Part
}

// Part is sites of a domain. Members go to the first part that lacks some of its own; where any number may be in each,
// to the one of the member before, else to the next one that has room.
type Part struct {
	Sites   []int // in ascending order
	Members int   // exactly so many; 0 for any number
}

// field is sites with what they have together.
type field struct {
	name  string
	rule  Rule
	sites []int
	room  int // members, at most
	short int // members beyond room; of a domain that gets a multiple, those that it gets
	held  int
	link  int64 // of one site
	free  []int64
}

// chooser looks for domains.
type chooser struct {
	*Request
	sites  []Site
	demand Demand
	rooms  []int // members by site, at most
}

// mostPreferred bounds the domains of each layer that are tried although members may be in several.
const mostPreferred = 16

// Domains returns the domains in which members may be tried, in order, and how many there are that keep all rules that
// must hold. Domains that cannot have enough room are left out; where none can, the roomiest remains, so that it can be
// said what it lacks. Where members are held, theirs is the only one. The innermost layer comes first, and of it the
// domain with the least room, so that large ones remain whole; where several domains are needed, the fewest.
func (g *Request) Domains(sites []Site, demand Demand) (domains iter.Seq[Domain], all int) {
	c := &chooser{Request: g, sites: sites, demand: demand, rooms: make([]int, len(sites))}
	for i := range sites {
		c.rooms[i] = c.room(sites[i].Free)
	}
	fields := c.outer()
	return func(yield func(Domain) bool) {
		seen := map[string]bool{}
		for f := range c.order(fields) {
			parts := c.parts(&f)
			if key := keyOf(parts); parts != nil && !seen[key] {
				seen[key] = true
				if !yield(Domain{f.name, f.rule, parts}) {
					return
				}
			}
		}
	}, len(fields)
}

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

// room is how many of the smallest members an amount serves.
func (c *chooser) room(free []int64) int {
	room := int64(len(c.Members))
	for d, each := range c.demand.Each {
		if each > 0 {
			room = min(room, free[d]/each)
		}
	}
	return int(room)
}

// gather makes a field of sites.
func (c *chooser) gather(name string, rule Rule, sites []int) field {
	f := field{name: name, rule: rule, sites: sites, free: make([]int64, len(c.demand.All))}
	for _, i := range sites {
		s := &c.sites[i]
		f.room += c.rooms[i]
		f.held += s.Held
		for d := range f.free {
			if f.free[d] += s.Free[d]; f.free[d] < 0 { // beyond what can be counted
				f.free[d] = Unlimited
			}
		}
	}
	if f.short = max(len(c.Members)-f.room, 0); len(sites) == 1 {
		f.link = c.sites[sites[0]].Link
	}
	return f
}

// isHopeful reports whether a field may have room for all that must be placed.
func (c *chooser) isHopeful(f *field) bool {
	for d, all := range c.demand.All {
		if f.free[d] < all {
			return false
		}
	}
	return f.room >= c.Min
}

// outer are the domains that keep all rules that must hold.
func (c *chooser) outer() []field {
	within := map[string][]int{}
	rule := c.Bound()
	for i := range c.sites {
		key, inside := "", true
		for r, g := range c.Rules {
			if !g.Must {
				continue
			}
			in := c.sites[i].In[r]
			if inside = inside && in != ""; key == "" {
				key = in
			} else {
				key += "," + in
			}
		}
		if inside {
			within[key] = append(within[key], i)
		}
	}
	var fields []field
	for key, sites := range within {
		fields = append(fields, c.gather(key, rule, sites))
	}
	if rule == (Rule{}) {
		return fields
	}
	slices.SortFunc(fields, func(a, b field) int {
		return cmp.Or(cmp.Compare(b.held, a.held), cmp.Compare(a.name, b.name))
	})
	if len(fields) > 0 && fields[0].held > 0 {
		fields = fields[:1]
	}
	return fields
}

// split are the domains of a rule in a field.
func (c *chooser) split(f *field, rule int) []field {
	within := map[string][]int{}
	for _, i := range f.sites {
		if in := c.sites[i].In[rule]; in != "" {
			within[in] = append(within[in], i)
		}
	}
	fields := make([]field, 0, len(within))
	for name, sites := range within {
		fields = append(fields, c.gather(name, c.Rules[rule], sites))
	}
	return fields
}

// tight orders fields: those with members, the better linked, those with room for more of all members, those with less
// room, by size and name.
func tight(a, b field) int {
	return cmp.Or(cmp.Compare(b.held, a.held), cmp.Compare(b.link, a.link), cmp.Compare(a.short, b.short),
		cmp.Compare(a.room, b.room), cmp.Compare(len(a.sites), len(b.sites)), cmp.Compare(a.name, b.name))
}

// roomy orders fields: those with members, those with more room, by size and name.
func roomy(a, b field) int {
	return cmp.Or(cmp.Compare(b.held, a.held), cmp.Compare(b.room, a.room), cmp.Compare(len(a.sites), len(b.sites)),
		cmp.Compare(a.name, b.name))
}

// order yields fields as they are to be tried.
func (c *chooser) order(fields []field) iter.Seq[field] {
	return func(yield func(field) bool) {
		hopeful := slices.Clone(fields)
		hopeful = slices.DeleteFunc(hopeful, func(f field) bool { return !c.isHopeful(&f) })
		inner := -1 // the rule of a layer inside of the one that is looked at
		for r, g := range c.Rules {
			if g.Must {
				continue
			}
			var preferred []field
			for i := range hopeful {
				preferred = append(preferred, c.split(&hopeful[i], r)...)
			}
			preferred = slices.DeleteFunc(preferred, func(f field) bool { return !c.isHopeful(&f) })
			slices.SortFunc(preferred, tight)
			for _, f := range preferred[:min(len(preferred), mostPreferred)] {
				if !c.from(&f, inner, yield) {
					return
				}
			}
			inner = r
		}
		slices.SortFunc(hopeful, tight)
		for i := range hopeful {
			if !c.from(&hopeful[i], inner, yield) {
				return
			}
		}
		if len(hopeful) == 0 && len(fields) > 0 {
			yield(slices.MinFunc(fields, roomy))
		}
	}
}

// from yields the fewest domains of a rule that have the room in a field, then the field.
func (c *chooser) from(f *field, rule int, yield func(field) bool) bool {
	if rule >= 0 {
		if few, found := c.fewest(f, rule); found && !yield(few) {
			return false
		}
	}
	return yield(*f)
}

// fewest returns as few domains of a rule as may have the room, the last one no larger than it must be.
func (c *chooser) fewest(f *field, rule int) (few field, found bool) {
	parts := c.split(f, rule)
	slices.SortFunc(parts, roomy)
	var sites []int
	for k := range parts {
		all := c.gather(f.name, f.rule, append(slices.Clone(sites), parts[k].sites...))
		if !c.isHopeful(&all) {
			sites = all.sites
			continue
		}
		for _, last := range slices.Backward(parts[k:]) {
			all := c.gather(f.name, f.rule, append(slices.Clone(sites), last.sites...))
			if slices.Sort(all.sites); c.isHopeful(&all) {
				return all, true
			}
		}
	}
	return field{}, false
}

// parts divides a field where a rule asks for multiples; nil where it has not the room for them.
func (c *chooser) parts(f *field) []Part {
	rule := slices.IndexFunc(c.Rules, func(g Rule) bool { return g.Multiple > 1 })
	switch {
	case rule < 0 && !c.Ranked:
		return []Part{{Sites: f.sites}}
	case rule < 0:
		return c.ranks(f)
	}
	n, left, room := c.Rules[rule].Multiple, len(c.Members), 0
	domains := c.split(f, rule)
	slices.SortFunc(domains, roomy)
	for i := range domains { // what members that are there lack of a multiple comes first
		d := &domains[i]
		if d.short = (n - d.held%n) % n; d.short > min(d.room, left) {
			d.short, d.room = 0, 0
		}
		left -= d.short
		d.room -= d.short
		d.room -= d.room % n
		room += d.room
	}
	slices.SortFunc(domains, roomy)
	rest := min(room, left-left%n)
	if len(c.Members)-left+rest < c.Min {
		return nil
	}
	for i := 0; rest > 0; i++ {
		d := &domains[i]
		for k := range domains[i:] { // the last one is no larger than it must be
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

// ranks divides a field into the domains of the innermost layer, those of one outer domain next to each other. Sites in
// none come last.
func (c *chooser) ranks(f *field) (parts []Part) {
	sites := slices.Clone(f.sites)
	outermostFirst := func(a, b int) int {
		for r := len(c.Rules) - 1; r >= 0; r-- {
			x, y := c.sites[a].In[r], c.sites[b].In[r]
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
	for i, s := range sites {
		if i == 0 || !slices.Equal(c.sites[s].In, c.sites[sites[i-1]].In) {
			parts = append(parts, Part{})
		}
		last := &parts[len(parts)-1]
		last.Sites = append(last.Sites, s)
	}
	return parts
}

// Combinations yields a domain for each of several sets of members, every combination once.
func Combinations(domains []iter.Seq[Domain]) iter.Seq[[]Domain] {
	return func(yield func([]Domain) bool) { choose(domains, nil, yield) }
}

func choose(domains []iter.Seq[Domain], chosen []Domain, yield func([]Domain) bool) bool {
	if len(domains) == 0 {
		return yield(slices.Clone(chosen))
	}
	for d := range domains[0] {
		if !choose(domains[1:], append(chosen, d), yield) {
			return false
		}
	}
	return true
}
