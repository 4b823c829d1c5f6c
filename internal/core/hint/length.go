package hint

import (
	"iter"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// Lengths yields how many hints each list has that the providers would make for the request, without making it. A list
// that imposes nothing has none.
func (s *Summary) Lengths(q *Request) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		p := problem{s: s}
		p.load(q)
		for i := range p.rows[:p.resources] {
			if !yield(countSets(p.rows[i:i+1], p.rows[i].stock.walked)) {
				return
			}
		}
		if p.memory {
			length := p.countMemory()
			for range p.rows[p.resources:p.n] { // the kubelet attaches the list once for each type
				if !yield(length) {
					return
				}
			}
		}
	}
}

// countMemory counts the masks that the memory manager offers.
func (p *problem) countMemory() uint64 {
	types := p.rows[p.resources:p.n]
	count := countSets(types, p.unused)
	for grouped := p.unused & p.s.grouped; grouped != 0; grouped &= grouped - 1 {
		if fits(types, grouped&-grouped) { // one node of a group is not offered
			count--
		}
	}
	for m := range p.offered {
		if !m.Within(p.unused) {
			count++
		}
	}
	return count
}

// countSets counts the sets of nodes that hold every amount. It looks at each node with and without it, until what is
// left of the amounts fits on any or on none of the nodes that follow. It changes the rows, and restores them.
func countSets(rows []row, nodes topo.NodeSet) uint64 {
	done := true
	for i := range rows {
		if rows[i].need > 0 && rows[i].amount(nodes) < rows[i].need {
			return 0
		}
		done = done && rows[i].need <= 0
	}
	if done {
		return 1 << nodes.Len()
	}
	first, rest := nodes.First(), nodes&(nodes-1)
	count := countSets(rows, rest)
	for i := range rows {
		rows[i].need -= rows[i].free[first]
	}
	count += countSets(rows, rest)
	for i := range rows {
		rows[i].need += rows[i].free[first]
	}
	return count
}
