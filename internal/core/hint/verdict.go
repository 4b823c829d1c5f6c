package hint

import "github.com/tenon-project/tenon/internal/core/topo"

// problem is one Request on one Summary, while Verdict works on it.
type problem struct {
	s    *Summary
	w    *Scratch
	rows [maxRows]row
	// Rows of resources come first, then those of memory types. Invariant: every row needs 1 or more.
	resources, n int
	// walked are the nodes that every resource's provider walks; hosts those of them where each has a unit.
	walked, hosts topo.NodeSet
	// memory is true if the memory manager offers some mask. Without one it makes no hints, and imposes nothing.
	memory bool
	// unused are the nodes without memory assignments: those of which a memory hint of several nodes consists, unless
	// the hint is a group.
	unused topo.NodeSet
}

// Verdict answers what Rule.Answer answers to the lists that the providers would make for the request, but that the
// mask of a hint that the policy refuses is 0. It allocates nothing if w has served a request of this size.
func (s *Summary) Verdict(q *Request, w *Scratch) Answer {
	rule := &s.c.rule
	if rule.Policy == None {
		return Answer{Admitted: true}
	}
	p := problem{s: s, w: w}
	p.load(q)
	m, found := p.preferred()
	switch {
	case found:
		return rule.finish(Hint{Mask: m, Preferred: true}, true)
	case rule.Policy != BestEffort:
		return Answer{}
	}
	best, found := p.reachable()
	return rule.finish(Hint{Mask: best}, found)
}

// OffersMemory reports whether the memory manager would offer any mask for amounts by type.
func (s *Summary) OffersMemory(bytes []int64) bool {
	p := problem{s: s}
	p.load(&Request{Memory: bytes})
	return p.memory
}

// load reads the request: which rows take part, and which nodes can be in an answer.
func (p *problem) load(q *Request) {
	c := p.s.c
	all := topo.FirstNodes(c.rule.Nodes)
	p.walked, p.hosts = all, all
	for _, a := range q.Asks {
		if a.Amount > 0 {
			stock := &c.resources[a.Resource]
			p.rows[p.n] = row{stock, a.Amount, p.s.free[a.Resource]}
			p.n++
			p.walked &= stock.walked
			p.hosts &= stock.hosts
		}
	}
	p.resources = p.n
	for t, need := range q.Memory {
		if need > 0 {
			p.rows[p.n] = row{&c.memory[t], need, p.s.memory[t]}
			p.n++
		}
	}
	p.unused = all &^ p.s.assigned
	if p.memory = p.n > p.resources && (p.holdsUnused() || p.memoryNodes() != 0); !p.memory {
		p.n = p.resources
	}
}

// offered yields the memory manager's masks but those of several unused nodes: single nodes and groups.
func (p *problem) offered(yield func(topo.NodeSet) bool) {
	for i := range p.s.group {
		if m := topo.NodeSet(1) << i; p.offers(m) && !yield(m) {
			return
		}
	}
	for _, g := range p.s.groups {
		if p.offers(g) && !yield(g) {
			return
		}
	}
}

// offers reports whether every resource has room on a mask.
func (p *problem) offers(m topo.NodeSet) bool {
	return m.Within(topo.FirstNodes(p.s.c.rule.Nodes)) && p.s.mayHold(m) && p.holdsMemory(m)
}

// holdsUnused reports whether all unused nodes together are a mask of several that the memory manager offers.
func (p *problem) holdsUnused() bool { return p.unused.Len() > 1 && p.holdsMemory(p.unused) }

// holdsMemory reports whether the rows of memory fit on a mask.
func (p *problem) holdsMemory(m topo.NodeSet) bool { return fits(p.rows[p.resources:p.n], m) }

// preferred returns the best mask that every provider prefers (C2 to C4 in doc.go).
func (p *problem) preferred() (topo.NodeSet, bool) {
	rule := &p.s.c.rule
	if p.n == 0 {
		return topo.FirstNodes(rule.Nodes), rule.Nodes > 0
	}
	k, same := p.size()
	switch {
	case !same || rule.Policy == SingleNUMANode && k > 1:
		return 0, false
	case k == 1:
		return p.oneNode()
	}
	return p.ofSize(k)
}

// size returns the one mask size that every provider prefers (C1 in doc.go); false if two sizes differ.
func (p *problem) size() (int, bool) {
	k := 0
	for i := range p.rows[:p.resources] {
		own := p.rows[i].stock.least(p.rows[i].need)
		if own == 0 || k > 0 && k != own { // 0: no node is walked
			return 0, false
		}
		k = own
	}
	if !p.memory {
		return k, true
	}
	types, low := p.rows[p.resources:p.n], 0
	for i := range types {
		low = max(low, types[i].stock.least(types[i].need))
	}
	if k > 0 && low > k {
		return 0, false
	}
	if len(types) > 1 {
		var empty [maxRows]row // with all that is allocatable
		n := copy(empty[:], types)
		for i := range empty[:n] {
			empty[i].free = empty[i].stock.byNode
		}
		low = p.w.leastOf(empty[:n], topo.FirstNodes(p.s.c.rule.Nodes), low)
	}
	return low, k == 0 || low == k
}

// leastOf returns the size, from low on, of the smallest set of nodes that holds every amount: the number of nodes if
// none does.
func (w *Scratch) leastOf(rows []row, nodes topo.NodeSet, low int) int {
	for k := max(low, 1); k < nodes.Len(); k++ {
		walk := walk{rows: rows, w: w}
		if walk.start(nodes, k); walk.found {
			return k
		}
	}
	return nodes.Len()
}

// oneNode returns the best mask of one node that holds everything.
func (p *problem) oneNode() (topo.NodeSet, bool) {
	rule := &p.s.c.rule
	best, found := topo.NodeSet(0), false
	for rest := p.hosts; rest != 0; rest &= rest - 1 {
		m := rest & -rest
		if !fits(p.rows[:p.resources], m) || p.memory && !p.offers(m) {
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
func (p *problem) ofSize(k int) (topo.NodeSet, bool) {
	rule := &p.s.c.rule
	w := walk{rule: rule, rows: p.rows[:p.n], ranked: rule.Distances != nil, w: p.w}
	nodes := p.hosts
	if p.memory { // groups are looked at one by one; all other masks consist of unused nodes
		for _, g := range p.s.groups {
			if g.Len() == k && g.Within(p.walked) && p.offers(g) && fits(p.rows[:p.resources], g) {
				w.offer(g)
			}
		}
		nodes &= p.unused
	}
	w.start(nodes, k)
	return w.best, w.found
}
