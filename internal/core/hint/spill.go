package hint

import (
	"math/bits"
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// reachable returns the best mask, not preferred, of those that the providers' hints come to; false: all are empty. It
// lists the masks of each provider as places in a vector and folds them. Unknown: they are of more than WalkNodes
// nodes.
func (p *problem) reachable(w *Scratch) (topo.NodeSet, bool, Certainty) {
	active, key := topo.FirstNodes(p.s.c.rule.Nodes), ranking{rule: &p.s.c.rule}
	least := func(k int, _ bool) { key.best = max(key.best, k) } // known for all walks of WalkNodes nodes
	var offered uint32                                           // rows of resources with a hint at all
	for i := range p.rows[:p.resources] {
		r := &p.rows[i]
		walked := r.stock.walked
		if r.of(walked) < r.need || !r.must.Within(walked) || !r.reaches(walked) {
			continue // impossible: any nodes, not preferred
		}
		offered |= 1 << i
		active &= walked
		least(p.narrowest(r))
	}
	if p.memory {
		active &= p.memoryNodes()
		least(p.narrowestMemory())
	}
	if active.Len() > WalkNodes {
		return 0, false, Unknown
	}
	f := w.folded(active)
	for ; offered != 0; offered &= offered - 1 {
		w.addRow(f, &p.rows[bits.TrailingZeros32(offered)])
		f.meet()
	}
	if p.memory { // the kubelet attaches the list once for each type
		for range p.rows[p.resources:p.n] {
			p.addMemory(f, w)
			f.meet()
		}
	}
	m, found := f.pick(key)
	return m, found, Exact
}

// narrowest is the size of the smallest mask that serves one resource that some mask serves.
func (p *problem) narrowest(r *row) (int, bool) {
	if r.places != nil {
		return leastOf([]row{*r}, r.stock.walked, 0, 1)
	}
	return fewest(r.free, r.stock.walked, r.must, r.need), true
}

// fewest counts the nodes that reach need: must and then the largest.
func fewest(free []int64, nodes, must topo.NodeSet, need int64) int {
	k := must.Len()
	for rest := must; rest != 0; rest &= rest - 1 {
		need -= free[rest.First()]
	}
	var buf [topo.MaxNodes]int64
	others := buf[:0]
	for rest := nodes &^ must; rest != 0; rest &= rest - 1 {
		others = append(others, free[rest.First()])
	}
	slices.Sort(others)
	for i := len(others) - 1; i >= 0 && need > 0; i-- {
		need -= others[i]
		k++
	}
	return max(k, 1)
}

// memoryNodes are the nodes of all memory hints.
func (p *problem) memoryNodes() topo.NodeSet {
	var m topo.NodeSet
	for i := range p.s.group {
		if p.offers(1 << i) {
			m |= 1 << i
		}
	}
	for _, g := range p.s.groups {
		if p.offers(g) {
			m |= g
		}
	}
	for _, b := range p.q.Blocks {
		if p.offers(b.Nodes) {
			m |= b.Nodes
		}
	}
	if p.unused.Len() > 1 && p.holdsMemory(p.unused) {
		m |= p.unused
	}
	return m
}

// narrowestMemory is the size of the smallest memory hint.
func (p *problem) narrowestMemory() (int, bool) {
	for i := range p.s.group {
		if p.offers(1 << i) {
			return 1, true
		}
	}
	k, known := topo.MaxNodes+1, true
	if rows := p.rows[p.resources:p.n]; p.unused.Len() > 1 && fits(rows, p.unused) {
		low := 2
		for i := range rows {
			low = max(low, fewest(rows[i].free, p.unused, 0, rows[i].need))
		}
		k = low
		if len(rows) > 1 {
			k, known = leastOf(rows, p.unused, 0, low)
		}
	}
	for _, g := range p.s.groups {
		if g.Len() < k && p.offers(g) {
			k = g.Len()
		}
	}
	for _, b := range p.q.Blocks {
		if b.Nodes.Len() < k && p.offers(b.Nodes) {
			k = b.Nodes.Len()
		}
	}
	return k, known
}

// addRow adds the masks of one resource, cut to the active nodes: of those with equal cuts the largest counts, which
// has all nodes that are not active.
func (w *Scratch) addRow(f *fold, r *row) {
	outer := r.stock.walked &^ f.active
	size := 1 << f.active.Len()
	if r.places != nil {
		for c := 1; c < size; c++ {
			if m := f.spreadOut(uint32(c)) | outer; r.of(m) >= r.need && r.reaches(m) {
				f.addClosed(uint32(c))
			}
		}
		return
	}
	must := f.closeUp(r.must & f.active)
	w.sum(f, r.free, outer)
	for c := 1; c < size; c++ {
		if w.sums[c] >= r.need && must&^uint32(c) == 0 {
			f.addClosed(uint32(c))
		}
	}
}

// sum fills w.sums with what each mask of active nodes has together with outer.
func (w *Scratch) sum(f *fold, free []int64, outer topo.NodeSet) {
	w.sums = grow(w.sums, 1<<f.active.Len())
	w.sums[0] = 0
	for ; outer != 0; outer &= outer - 1 {
		w.sums[0] += free[outer.First()]
	}
	half := 1
	for rest := f.active; rest != 0; rest &= rest - 1 {
		own := free[rest.First()]
		for c := range half {
			w.sums[half+c] = w.sums[c] + own
		}
		half <<= 1
	}
}

// addMemory adds the memory manager's masks, cut to the active nodes.
func (p *problem) addMemory(f *fold, w *Scratch) {
	for rest := f.active; rest != 0; rest &= rest - 1 {
		if m := rest & -rest; p.offers(m) {
			f.add(m)
		}
	}
	for _, g := range p.s.groups {
		if p.offers(g) {
			f.add(g)
		}
	}
	for _, b := range p.q.Blocks {
		if p.offers(b.Nodes) {
			f.add(b.Nodes)
		}
	}
	outer := p.unused &^ f.active
	size := 1 << f.active.Len()
	w.short = grow(w.short, size)
	clear(w.short)
	for i := range p.rows[p.resources:p.n] {
		r := &p.rows[p.resources+i]
		w.sum(f, r.free, outer)
		for c, n := range w.sums {
			if n < r.need {
				w.short[c] = true
			}
		}
	}
	unused := f.closeUp(p.unused & f.active)
	for c := 1; c < size; c++ {
		if !w.short[c] && uint32(c)&^unused == 0 && bits.OnesCount(uint(c))+outer.Len() > 1 {
			f.addClosed(uint32(c))
		}
	}
}
