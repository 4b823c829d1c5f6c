package hint

import (
	"math/bits"
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// reachable returns the best mask that is not preferred, of those that combinations of the providers' hints come to
// (C5 in doc.go). It returns false if all of them are empty.
func (p *problem) reachable() (topo.NodeSet, bool) {
	active, key := topo.FirstNodes(p.s.c.rule.Nodes), ranking{rule: &p.s.c.rule}
	var hinted uint32 // rows of resources that have any hint, as bits
	for i := range p.rows[:p.resources] {
		r := &p.rows[i]
		walked := r.stock.walked
		if r.amount(walked) < r.need {
			continue // The resource fits nowhere: its hint is any nodes, not preferred.
		}
		hinted |= 1 << i
		active &= walked
		key.best = max(key.best, fewestNodes(r.free, walked, r.need))
	}
	if p.memory {
		active &= p.memoryNodes()
		key.best = max(key.best, p.narrowestMemory())
	}
	if hinted == 0 && !p.memory {
		return active, active != 0
	}
	// Each list is intersected with what the lists before it can come to.
	f := p.w.newFold(active)
	for ; hinted != 0; hinted &= hinted - 1 {
		p.w.addRow(f, &p.rows[bits.TrailingZeros32(hinted)])
		f.intersectList()
	}
	if p.memory { // the kubelet attaches the list once for each type
		for range p.rows[p.resources:p.n] {
			p.addMemory(f)
			f.intersectList()
		}
	}
	return f.best(key)
}

// fewestNodes returns the size of the smallest set of nodes whose free units reach need: those with the most.
func fewestNodes(free []int64, nodes topo.NodeSet, need int64) int {
	var buf [topo.MaxNodes]int64
	own := buf[:0]
	for rest := nodes; rest != 0; rest &= rest - 1 {
		own = append(own, free[rest.First()])
	}
	slices.Sort(own)
	k := 0
	for i := len(own) - 1; i >= 0 && need > 0; i-- {
		need -= own[i]
		k++
	}
	return max(k, 1)
}

// memoryNodes returns the nodes that are in any mask of the memory manager.
func (p *problem) memoryNodes() topo.NodeSet {
	var nodes topo.NodeSet
	for m := range p.offered {
		nodes |= m
	}
	if p.holdsUnused() {
		nodes |= p.unused
	}
	return nodes
}

// narrowestMemory returns the size of the memory manager's smallest mask.
func (p *problem) narrowestMemory() int {
	k := topo.MaxNodes
	for m := range p.offered {
		k = min(k, m.Len())
	}
	rows := p.rows[p.resources:p.n]
	if k == 1 || !p.holdsUnused() {
		return k
	}
	low := 2
	for i := range rows {
		low = max(low, fewestNodes(rows[i].free, p.unused, rows[i].need))
	}
	if len(rows) > 1 {
		low = p.w.leastOf(rows, p.unused, low)
	}
	return min(k, low)
}

// addRow adds the masks of one resource to the fold's list, cut to the active nodes. Of the masks with equal cuts the
// one with all nodes that are not active decides, because that one has the most.
func (w *Scratch) addRow(f *fold, r *row) {
	w.sumMasks(f, r.free, r.stock.walked&^f.active)
	for c, sum := range w.sums {
		if sum >= r.need {
			f.list[c] = 1
		}
	}
}

// sumMasks fills w.sums, by mask of active nodes, with what the mask has together with the nodes of outer.
func (w *Scratch) sumMasks(f *fold, free []int64, outer topo.NodeSet) {
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

// addMemory adds the memory manager's masks to the fold's list, cut to the active nodes: the groups that it offers, and
// sets of unused nodes that hold each type. A single unused node is among the offered ones already.
func (p *problem) addMemory(f *fold) {
	for m := range p.offered {
		f.addMask(m)
	}
	w, outer := p.w, p.unused&^f.active
	w.short = grow(w.short, 1<<f.active.Len())
	clear(w.short)
	for i := range p.rows[p.resources:p.n] {
		r := &p.rows[p.resources+i]
		w.sumMasks(f, r.free, outer)
		for c, n := range w.sums {
			if n < r.need {
				w.short[c] = true
			}
		}
	}
	unused := f.closeUp(p.unused & f.active)
	for c := 1; c < len(w.short); c++ {
		if !w.short[c] && uint32(c)&^unused == 0 && bits.OnesCount(uint(c))+outer.Len() > 1 {
			f.list[c] = 1
		}
	}
}
