package gang

import (
	"cmp"
	"slices"
)

// Packing is members of a group that ask for different amounts, and the nodes that they may get. It says in which order
// the members are tried, and searches for nodes where no order that was tried fits.
//
// A member may have a node only if the node is among the candidates of its class and has enough of each resource free.
// That is necessary, not sufficient: NUMA nodes, devices and quotas are known to the caller alone.
type Packing struct {
	Members []PackedMember
	Classes []PackedClass
	Free    [][]int64 // by node and resource; at least what each node can give
	Steps   int       // how often Search may compare what a member asks for with what a node has
	Places  int       // how many more members Search may place for real
}

// PackedMember is a member of a packing.
type PackedMember struct {
	UID   string
	Class int
}

// PackedClass is members of one gang that ask for the same.
type PackedClass struct {
	Asks  []int64 // by resource
	Nodes []int   // candidates: nodes that may take one member if no other member is there, ascending
}

// FitsIn reports whether so much of each resource is enough for a member.
func (c *PackedClass) FitsIn(free []int64) bool {
	for resource, asked := range c.Asks {
		if asked > free[resource] {
			return false
		}
	}
	return true
}

// The bounds of Search in one plan, some 20 ms of comparisons. Gangs with more members or more candidate nodes are not
// searched.
const (
	MostPackSteps   = 2_000_000
	MostPackPlaces  = 1_000
	MostPackNodes   = 250
	MostPackMembers = 250
)

// Orders returns the orders in which the members of a plan are tried, one after the other until one fits: the most
// constrained first, then the order of Members. A gang that chooses among its members begins with the order of Members,
// which has the highest priority first, and then tries the smallest first, by the resources in their order.
func (p *Packing) Orders(plan *Plan) (orders [][]string) {
	given := make([]int, len(p.Members))
	for i := range given {
		given[i] = i
	}
	all := [][]int{p.constrainedFirst(), given}
	if plan.Chooses() {
		smallest := slices.Clone(given)
		slices.SortStableFunc(smallest, func(a, b int) int {
			return slices.Compare(p.Classes[p.Members[a].Class].Asks, p.Classes[p.Members[b].Class].Asks)
		})
		all = [][]int{given, smallest, p.constrainedFirst()}
	}
	for i, order := range all {
		if slices.ContainsFunc(all[:i], func(earlier []int) bool { return slices.Equal(earlier, order) }) {
			continue
		}
		var uids []string
		for _, at := range order {
			uids = append(uids, p.Members[at].UID)
		}
		orders = append(orders, uids)
	}
	return orders
}

// dominant returns the resource of which a class asks for the largest share of what the nodes have, and that share.
func (p *Packing) dominant(class int) (resource int, share float64) {
	for i, asked := range p.Classes[class].Asks {
		total := 0.0
		for _, free := range p.Free {
			total += float64(free[i])
		}
		if asked > 0 && total > 0 && float64(asked)/total > share {
			resource, share = i, float64(asked)/total
		}
	}
	return resource, share
}

// constrainedFirst returns the members with the fewest candidate nodes first, by index. Of these, members come first
// that ask for the largest share of what the nodes have of one resource. Members of a class are neighbors.
func (p *Packing) constrainedFirst() []int {
	shares := make([]float64, len(p.Classes))
	for c := range p.Classes {
		_, shares[c] = p.dominant(c)
	}
	order := make([]int, len(p.Members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := p.Members[a].Class, p.Members[b].Class
		return cmp.Or(cmp.Compare(len(p.Classes[x].Nodes), len(p.Classes[y].Nodes)),
			cmp.Compare(shares[y], shares[x]), cmp.Compare(x, y))
	})
	return order
}

// Search looks for a node for each member, or for as many as the gangs of the plan need. place reserves a member on a
// node beside those that were placed before, and reports whether it fits; undo takes back the last one that did.
// allowed restricts members to nodes. Search returns the members that have a node, in the order in which they were
// placed, and the nodes by UID; nil if it found none.
//
// All assignments are tried that the numbers allow, depth first, the most constrained members first. Members of a class
// are interchangeable, so that these get nodes in ascending order. Members are placed for real when all have a node;
// if one does not fit there, the search goes on at that member, and remembers that a member of its class does not fit
// on that node beside members of these classes. If Search returns nil with Steps and Places left, there is no
// assignment, provided that a node takes a member or not by itself: whatever members are on other nodes.
func (p *Packing) Search(plan *Plan, allowed func(uid string, node int) bool, place func(uid string, node int) bool,
	undo func(),
) (order []string, nodes map[string]int) {
	s := &packSearch{
		Packing: p, order: p.constrainedFirst(), place: place, undo: undo, refused: map[string]bool{},
		spare: map[*tally]int{},
	}
	for _, t := range plan.tallies {
		s.spare[t] = t.before - t.least
	}
	for _, m := range p.Members {
		t := plan.gang[m.UID]
		s.spare[t]++
		s.tallies = append(s.tallies, t)
	}
	if !s.prepare(allowed) {
		return nil, nil
	}
	s.assign(0)
	if !s.found {
		return nil, nil
	}
	order, nodes = []string{}, map[string]int{}
	for i, at := range s.assigned {
		if uid := p.Members[s.order[i]].UID; at < len(s.nodes) {
			order, nodes[uid] = append(order, uid), s.nodes[at]
		}
	}
	return order, nodes
}

// packSearch is a search under way.
type packSearch struct {
	*Packing
	order   []int    // members
	tallies []*tally // by member
	nodes   []int    // the candidates of all members
	free    [][]int64
	// may has the indexes in nodes of a class's candidates, those first that have the least of its dominant resource.
	may   [][]int
	spare map[*tally]int // members that each gang can still do without
	// assigned has the index in nodes of each member in order; len(nodes) is for a member that the gang does without.
	assigned []int
	chosen   []int           // of each member in order, its index in may; len(may) for none
	placed   int             // how many of assigned are placed for real
	refused  map[string]bool // by key: what did not fit for real
	place    func(uid string, node int) bool
	undo     func()
	found    bool
}

// prepare chooses the candidate nodes, and reports whether a search is worth it.
func (s *packSearch) prepare(allowed func(uid string, node int) bool) bool {
	first := make([]int, len(s.Classes))
	for i, m := range slices.Backward(s.Members) {
		first[m.Class] = i
	}
	candidates := map[int]bool{}
	for c := range s.Classes {
		for _, node := range s.Classes[c].Nodes {
			if allowed(s.Members[first[c]].UID, node) {
				candidates[node] = true
			}
		}
	}
	if len(s.Members) > MostPackMembers || len(candidates) > MostPackNodes {
		return false
	}
	for node := range candidates {
		s.nodes = append(s.nodes, node)
	}
	slices.Sort(s.nodes)
	for _, node := range s.nodes {
		s.free = append(s.free, slices.Clone(s.Free[node]))
	}
	for c := range s.Classes {
		var may []int
		for at, node := range s.nodes {
			_, candidate := slices.BinarySearch(s.Classes[c].Nodes, node)
			if candidate && allowed(s.Members[first[c]].UID, node) {
				may = append(may, at)
			}
		}
		resource, _ := s.dominant(c)
		slices.SortStableFunc(may, func(a, b int) int { return cmp.Compare(s.free[a][resource], s.free[b][resource]) })
		s.may = append(s.may, may)
	}
	return s.sumsSuffice()
}

// sumsSuffice reports whether the gangs have enough members, and the nodes as much together as these ask for, unless
// some can be spared.
func (s *packSearch) sumsSuffice() bool {
	spares := 0
	for _, spare := range s.spare {
		if spare < 0 {
			return false
		}
		spares += spare
	}
	if spares > 0 {
		return true
	}
	for resource := range s.Classes[0].Asks {
		total, asked := 0.0, 0.0
		for _, free := range s.free {
			total += float64(free[resource])
		}
		for _, m := range s.Members {
			asked += float64(s.Classes[m.Class].Asks[resource])
		}
		if asked > total {
			return false
		}
	}
	return true
}

// assign gives nodes to the members from i on. If that fails, it returns the member whose node must change.
func (s *packSearch) assign(i int) (resume int) {
	if i == len(s.order) {
		return s.placeAll()
	}
	if !s.canHold(i) || s.Steps < 0 {
		return i - 1
	}
	member := s.order[i]
	class, gang := s.Members[member].Class, s.tallies[member]
	from := 0
	if i > 0 && s.Members[s.order[i-1]].Class == class {
		from = s.chosen[i-1]
	}
	for choice := from; choice <= len(s.may[class]); choice++ {
		s.Steps--
		at, skips := len(s.nodes), choice == len(s.may[class])
		if !skips {
			at = s.may[class][choice]
		}
		if s.Steps < 0 || skips && s.spare[gang] == 0 || !skips && !s.fits(class, at) {
			continue
		}
		s.change(class, gang, at, -1)
		s.assigned, s.chosen = append(s.assigned, at), append(s.chosen, choice)
		if resume = s.assign(i + 1); s.found {
			return resume
		}
		s.unplace(i)
		s.assigned, s.chosen = s.assigned[:i], s.chosen[:i]
		s.change(class, gang, at, 1)
		if resume < i {
			return resume
		}
	}
	return i - 1
}

// change takes what a member asks for from its node, or returns it.
func (s *packSearch) change(class int, gang *tally, at int, sign int64) {
	if at == len(s.nodes) {
		s.spare[gang] += int(sign)
		return
	}
	for resource, asked := range s.Classes[class].Asks {
		s.free[at][resource] += sign * asked
	}
}

// fits reports whether a member of a class may be on a node beside those that are assigned to it.
func (s *packSearch) fits(class, at int) bool {
	if !s.Classes[class].FitsIn(s.free[at]) {
		return false
	}
	return len(s.refused) == 0 || !s.refused[s.key(class, at, len(s.assigned))]
}

// canHold reports whether the nodes have enough for the members of each class from i on, if these were alone.
func (s *packSearch) canHold(i int) bool {
	for i < len(s.order) {
		member := s.order[i]
		class, left := s.Members[member].Class, 0
		for ; i < len(s.order) && s.Members[s.order[i]].Class == class; i++ {
			left++
		}
		left -= s.spare[s.tallies[member]]
		for _, at := range s.may[class] {
			if s.Steps--; left <= 0 {
				break
			}
			holds := int64(left)
			for resource, asked := range s.Classes[class].Asks {
				if asked > 0 {
					holds = min(holds, s.free[at][resource]/asked)
				}
			}
			left -= int(holds)
		}
		if left > 0 {
			return false
		}
	}
	return true
}

// key is a class, a node, and the classes of those of the first n members that are assigned to the node.
func (s *packSearch) key(class, at, n int) string {
	key := []byte{byte(class), byte(at)}
	for i, on := range s.assigned[:n] {
		if on == at {
			key = append(key, byte(s.Members[s.order[i]].Class))
		}
	}
	return string(key)
}

// placeAll places all members for real that are not placed. If one does not fit, it returns that member.
func (s *packSearch) placeAll() (resume int) {
	for ; s.placed < len(s.order); s.placed++ {
		at, m := s.assigned[s.placed], s.Members[s.order[s.placed]]
		if at == len(s.nodes) {
			continue
		}
		if s.Places--; s.Places < 0 {
			return -1
		}
		if !s.place(m.UID, s.nodes[at]) {
			s.refused[s.key(m.Class, at, s.placed)] = true
			return s.placed
		}
	}
	s.found = true
	return len(s.order)
}

// unplace undoes the members from i on that were placed.
func (s *packSearch) unplace(i int) {
	for s.placed > i {
		if s.placed--; s.assigned[s.placed] < len(s.nodes) {
			s.undo()
		}
	}
}
