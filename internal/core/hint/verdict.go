package hint

import "github.com/tenon-project/tenon/internal/core/topo"

// problem is one request put to one state.
type problem struct {
	s    *Summary
	rows [maxRows]row
	// Rows of resources come first, then those of memory types. Invariant: every row needs 1 or more.
	resources, n int
	// walked are the nodes that every resource's provider walks; hosts those of them where each has a unit.
	walked, hosts topo.NodeSet
	must          topo.NodeSet // of all resources
	q             *Request
	// memory: the memory manager offers some mask. Without one it does not care.
	memory bool
	unused topo.NodeSet // nodes that a memory hint of several nodes may have, unless it is a group
}

// Verdict answers what Rule.Answer answers to the lists that the providers would make for the request, but for two
// things: the mask of a hint that the policy refuses is 0, and Certainty may be Unknown or ByLists. It allocates
// nothing if a preferred hint decides, or w has served a request of this size; w may be nil.
func (s *Summary) Verdict(q *Request, w *Scratch) Answer {
	rule := &s.c.rule
	if rule.Policy == None {
		return Answer{Admitted: true}
	}
	p := problem{s: s, q: q}
	if !p.load(w) {
		return Answer{Certainty: ByLists}
	}
	m, found, known := p.preferred()
	switch {
	case found:
		return rule.finish(Hint{Mask: m, Preferred: true}, true, Exact)
	case rule.Policy != BestEffort && known:
		return Answer{}
	case rule.Policy != BestEffort:
		return Answer{Certainty: Unknown}
	}
	if w == nil {
		w = new(Scratch)
	}
	best, found, c := p.reachable(w)
	if !known {
		c = Unknown
	}
	return rule.finish(Hint{Mask: best}, found, c)
}

// load reads the request; false if it cannot be answered by counting.
func (p *problem) load(w *Scratch) bool {
	c := p.s.c
	p.walked = topo.FirstNodes(c.rule.Nodes)
	p.hosts = p.walked
	if w != nil {
		w.units = w.units[:0]
	}
	for i := range p.q.Asks {
		a := &p.q.Asks[i]
		if a.Amount <= 0 {
			continue
		}
		if uint(a.Resource) >= uint(len(c.resources)) || p.n == maxRows || c.resources[a.Resource].bySocket {
			return false
		}
		res, f := &c.resources[a.Resource], &p.s.free[a.Resource]
		r := row{stock: &res.stock, need: a.Amount, free: f.byNode}
		if !res.additive {
			r.places, r.left = res.places, f.byPlace
		}
		if a.Reuse != nil {
			p.reuse(&r, res, f, a.Reuse, w)
		}
		p.rows[p.n] = r
		p.n++
		p.walked &= res.walked
		p.hosts &= res.hosts
		p.must |= r.must
	}
	p.resources = p.n
	for t, need := range p.q.Memory {
		if need <= 0 {
			continue
		}
		if t >= len(c.memory) { // no node has any of it, so no mask is offered at all
			p.n = p.resources
			return true
		}
		if p.n == maxRows {
			return false
		}
		p.rows[p.n] = row{stock: &c.memory[t], need: need, free: p.s.memory[t]}
		p.n++
	}
	p.unused = topo.FirstNodes(c.rule.Nodes) &^ p.s.assigned
	p.memory = p.n > p.resources && p.offersMemory()
	if !p.memory {
		p.n = p.resources
	}
	return true
}

// reuse adds the units that the pod can use again to a row.
func (p *problem) reuse(r *row, res *resource, f *freeUnits, again []int64, w *Scratch) {
	var units []int64
	if w != nil {
		units = w.units
	}
	from := len(units)
	for i, place := range res.places {
		n := f.byPlace[i]
		if i < len(again) && again[i] > 0 {
			n = min(n+min(again[i], maxAmount), place.Capacity)
			if res.additive {
				r.must |= place.Nodes
			}
		}
		units = append(units, n)
	}
	left := units[from:]
	at := len(units)
	for range f.byNode {
		units = append(units, 0)
	}
	byNode := units[at:]
	for i, place := range res.places {
		for rest := place.Nodes; rest != 0; rest &= rest - 1 {
			byNode[rest.First()] += left[i]
		}
	}
	r.free = byNode
	if !res.additive {
		r.left, r.hold = left, again[:min(len(again), len(left))]
	}
	if w != nil {
		w.units = units
	}
}

// offersMemory reports whether the memory manager offers any mask.
func (p *problem) offersMemory() bool {
	if p.unused.Len() > 1 && p.holdsMemory(p.unused) {
		return true
	}
	for i := range p.s.group {
		if p.offers(1 << i) {
			return true
		}
	}
	for _, g := range p.s.groups {
		if p.offers(g) {
			return true
		}
	}
	for _, b := range p.q.Blocks {
		if p.offers(b.Nodes) {
			return true
		}
	}
	return false
}

// offers reports whether m is one of the memory manager's masks.
func (p *problem) offers(m topo.NodeSet) bool {
	return m != 0 && m.Within(topo.FirstNodes(p.s.c.rule.Nodes)) && p.s.mayHold(m) && p.holdsMemory(m)
}

// holdsMemory reports whether m has the memory of every type, blocks that can be used again included.
func (p *problem) holdsMemory(m topo.NodeSet) bool {
	at := p.resources
	for t, need := range p.q.Memory {
		if need <= 0 {
			continue
		}
		r := &p.rows[at]
		at++
		capacity, free := int64(0), int64(0)
		for rest := m; rest != 0; rest &= rest - 1 {
			i := rest.First()
			capacity += r.stock.byNode[i]
			free += r.free[i]
		}
		for _, b := range p.q.Blocks {
			if b.Type == t && b.Nodes == m {
				free += clamp(b.Bytes, maxAmount)
			}
		}
		if capacity < need || free < need {
			return false
		}
	}
	return true
}

// preferred finds the best mask that every provider prefers. known = false: the budget ended before one was found.
func (p *problem) preferred() (m topo.NodeSet, found, known bool) {
	rule := &p.s.c.rule
	if p.n == 0 {
		return topo.FirstNodes(rule.Nodes), rule.Nodes > 0, true
	}
	k, same, known := p.size()
	switch {
	case !same || rule.Policy == SingleNUMANode && (k > 1 || !known): // what one node can do is always known
		return 0, false, true
	case !known:
		return 0, false, false
	case k == 1:
		m, found = p.oneNode()
		return m, found, true
	}
	return p.ofSize(k)
}

// size returns the one mask size that every provider prefers; same = false: two differ.
func (p *problem) size() (k int, same, known bool) {
	known = true
	for i := range p.rows[:p.resources] {
		r := &p.rows[i]
		own, ok := r.stock.least(r.need)
		switch {
		case own == 0 && ok: // no node is walked
			return 0, false, true
		case !ok:
			known = false
		case k == 0:
			k = own
		case k != own:
			return 0, false, true
		}
	}
	if !p.memory {
		return k, true, known
	}
	low := 0
	for i := range p.rows[p.resources:p.n] {
		r := &p.rows[p.resources+i]
		own, _ := r.stock.least(r.need) // sums by node never take too long
		low = max(low, own)
	}
	if k > 0 && low > k {
		return 0, false, true
	}
	own, ok := low, true
	if p.n-p.resources > 1 {
		own, ok = p.memorySize(low)
	}
	if ok && k > 0 && own != k {
		return 0, false, true
	}
	return own, true, known && ok
}

// memorySize is the least number of nodes, from low on, that can have all types at once.
func (p *problem) memorySize(low int) (int, bool) {
	var rows [maxRows]row
	n := copy(rows[:], p.rows[p.resources:p.n])
	for i := range rows[:n] {
		rows[i].free = rows[i].stock.byNode
	}
	all := topo.FirstNodes(p.s.c.rule.Nodes)
	return leastOf(rows[:n], all, 0, low)
}

// leastOf returns the size, from low on, of the smallest mask that contains must and holds every amount: the number of
// nodes if none does; false if the budget ends before.
func leastOf(rows []row, nodes, must topo.NodeSet, low int) (int, bool) {
	left := walkBudget
	for k := max(low, 1); k < nodes.Len(); k++ {
		w := walk{rows: rows, left: left}
		w.start(nodes, must, k)
		if w.found {
			return k, true
		}
		if left = w.left; left < 0 {
			return 0, false
		}
	}
	return nodes.Len(), true
}

// oneNode finds the best single node.
func (p *problem) oneNode() (topo.NodeSet, bool) {
	rule := &p.s.c.rule
	best, found := topo.NodeSet(0), false
	for rest := p.hosts; rest != 0; rest &= rest - 1 {
		m := rest & -rest
		if !p.must.Within(m) || !fits(p.rows[:p.resources], m) || p.memory && !p.offers(m) {
			continue
		}
		if !found || rule.closer(m, best) {
			best, found = m, true
		}
		if rule.Distances == nil {
			break
		}
	}
	return best, found
}

// ofSize finds the best mask of k nodes, two or more.
func (p *problem) ofSize(k int) (m topo.NodeSet, found, known bool) {
	rule := &p.s.c.rule
	w := walk{rule: rule, rows: p.rows[:p.n], ranked: rule.Distances != nil, left: walkBudget}
	nodes := p.hosts
	if p.memory {
		// Groups, and nodes of which blocks can be used again, are looked at one by one; all others consist of unused
		// nodes.
		for _, g := range p.s.groups {
			p.propose(&w, g, k)
		}
		for _, b := range p.q.Blocks {
			p.propose(&w, b.Nodes, k)
		}
		nodes &= p.unused
	}
	w.start(nodes, p.must, k)
	return w.best, w.found && w.left >= 0, w.left >= 0
}

// propose offers m to the walk if all providers do.
func (p *problem) propose(w *walk, m topo.NodeSet, k int) {
	if m.Len() == k && m.Within(p.walked) && p.must.Within(m) && p.offers(m) && fits(p.rows[:p.resources], m) {
		w.offer(m)
	}
}
