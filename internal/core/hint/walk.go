package hint

import (
	"math/bits"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// maxRows bounds the amounts that one walk checks. Requests with more are answered by lists.
const maxRows = 16

// row is one amount that a mask has to hold.
type row struct {
	stock *stock
	need  int64
	must  topo.NodeSet // a mask has to contain it
	// free by node; where units belong to several nodes this is the most that a node adds.
	free []int64
	// places and left, by place, are set where units belong to several nodes; hold are the places that a mask must
	// reach.
	places []Place
	left   []int64
	hold   []int64
}

// of counts what m holds.
func (r *row) of(m topo.NodeSet) int64 {
	var sum int64
	if r.places == nil {
		for ; m != 0; m &= m - 1 {
			sum += r.free[m.First()]
		}
		return sum
	}
	for i, p := range r.places {
		if p.Nodes&m != 0 {
			sum += r.left[i]
		}
	}
	return sum
}

// adds counts what node adds to m.
func (r *row) adds(node int, m topo.NodeSet) int64 {
	if r.places == nil {
		return r.free[node]
	}
	var sum int64
	for i, p := range r.places {
		if p.Nodes.Has(topo.NUMA(node)) && p.Nodes&m == 0 {
			sum += r.left[i]
		}
	}
	return sum
}

// reaches reports whether m has a node of every place that must be reached.
func (r *row) reaches(m topo.NodeSet) bool {
	if r.places == nil {
		return true
	}
	for i, n := range r.hold {
		if n > 0 && r.places[i].Nodes != 0 && r.places[i].Nodes&m == 0 {
			return false
		}
	}
	return true
}

// fits reports whether m holds every amount.
func fits(rows []row, m topo.NodeSet) bool {
	for i := range rows {
		if r := &rows[i]; r.of(m) < r.need || !r.reaches(m) {
			return false
		}
	}
	return true
}

// walk looks for the best mask of one size that holds every amount. Masks are built from the highest node down, lowest
// choice first, which is the ascending order of numbers; a branch ends as soon as even the largest nodes below could
// not fill it.
type walk struct {
	rule *Rule // of ranked walks
	rows []row
	// ranked: the mean distance decides, so every mask of the size is looked at; else the first is the best.
	ranked bool
	left   int // of the budget

	nodes  [topo.MaxNodes]uint8 // to choose from, ascending
	n      int
	best   topo.NodeSet
	spread int64
	found  bool
}

// start looks at the masks of size k within nodes that contain must.
func (w *walk) start(nodes, must topo.NodeSet, k int) {
	const small = 160
	if (2*nodes.Len()+2)*len(w.rows) <= small {
		var buf [small]int64
		w.run(nodes, must, k, buf[:])
		return
	}
	w.startLarge(nodes, must, k)
}

//go:noinline
func (w *walk) startLarge(nodes, must topo.NodeSet, k int) {
	var buf [(2*topo.MaxNodes + 2) * maxRows]int64
	w.run(nodes, must, k, buf[:])
}

// run is start with a buffer of (2·nodes + 2)·rows numbers.
func (w *walk) run(nodes, must topo.NodeSet, k int, buf []int64) {
	k -= must.Len()
	if k < 0 || !must.Within(nodes) {
		return
	}
	w.n = 0
	for rest := nodes &^ must; rest != 0; rest &= rest - 1 {
		w.nodes[w.n] = uint8(rest.First())
		w.n++
	}
	if k > w.n {
		return
	}
	if k == 0 {
		if fits(w.rows, must) {
			w.offer(must)
		}
		return
	}
	if w.n <= 2*halfNodes && len(w.rows)*halfTable*2 <= len(buf) && w.additive() {
		w.runTable(must, k, buf)
		return
	}
	rows := len(w.rows)
	sums, peaks := buf[:(k+1)*rows], buf[(k+1)*rows:(k+1)*rows+(w.n+1)*rows]
	for r := range w.rows {
		sums[k*rows+r] = w.rows[r].of(must)
		peak := int64(0)
		for i := range w.n {
			peaks[i*rows+r] = peak
			peak = max(peak, w.rows[r].free[w.nodes[i]])
		}
		peaks[w.n*rows+r] = peak
	}
	w.descend(sums, peaks, k, w.n, must)
}

// The sums of up to eight nodes are those of the lower four and those of the upper four.
const (
	halfNodes = 4
	halfTable = 1 << halfNodes
)

func (w *walk) additive() bool {
	for i := range w.rows {
		if w.rows[i].places != nil {
			return false
		}
	}
	return true
}

// runTable looks at every mask of k of at most eight nodes in two tables for each row.
func (w *walk) runTable(must topo.NodeSet, k int, table []int64) {
	const both = 2 * halfTable
	table = table[:len(w.rows)*both]
	for r := range w.rows {
		q := &w.rows[r]
		own := table[r*both : (r+1)*both]
		own[0], own[halfTable] = q.of(must)-q.need, 0 // sums of what is left over
		for i, node := range w.nodes[:w.n] {
			half, bit := own[i/halfNodes*halfTable:], 1<<(i%halfNodes)
			for c := range bit {
				half[bit+c] = half[c] + q.free[node]
			}
		}
	}
	for c := uint(1)<<k - 1; c < 1<<w.n; c = nextOfSize(c) {
		w.left--
		lower, upper := c%halfTable, halfTable+c/halfTable
		short := int64(0) // negative if any row is
		for at := 0; at < len(table); at += both {
			own := (*[both]int64)(table[at:])
			short |= own[lower] + own[upper%both]
		}
		if short < 0 {
			continue
		}
		m := must
		for rest := c; rest != 0; rest &= rest - 1 {
			m |= 1 << w.nodes[bits.TrailingZeros(rest)]
		}
		w.offer(m)
		if !w.ranked {
			return
		}
	}
}

// nextOfSize returns the next larger number with as many bits, of a number above 0.
func nextOfSize(c uint) uint {
	low := c & -c
	up := c + low
	return up | (c^up)>>2>>bits.TrailingZeros(c)
}

// descend chooses left more nodes among the first so many; false ends the walk. sums[depth][row] is what the chosen
// nodes hold, peaks[i][row] the largest amount of one of the nodes before i.
func (w *walk) descend(sums, peaks []int64, left, among int, m topo.NodeSet) bool {
	rows := len(w.rows)
	have, next := sums[left*rows:(left+1)*rows], sums[(left-1)*rows:left*rows]
	for i := left - 1; i < among; i++ {
		if w.left--; w.left < 0 {
			return false
		}
		node := int(w.nodes[i])
		enough := true
		for r := range w.rows {
			q := &w.rows[r]
			next[r] = have[r] + q.adds(node, m)
			if next[r]+int64(left-1)*peaks[i*rows+r] < q.need {
				enough = false
				break
			}
		}
		if !enough {
			continue
		}
		with := m | 1<<node
		if left > 1 {
			if !w.descend(sums, peaks, left-1, i, with) {
				return false
			}
			continue
		}
		reached := true
		for r := range w.rows {
			reached = reached && w.rows[r].reaches(with)
		}
		if reached {
			w.offer(with)
			if !w.ranked {
				return false
			}
		}
	}
	return true
}

// offer keeps m if it is the best so far. Masks of one walk have one size.
func (w *walk) offer(m topo.NodeSet) {
	var spread int64
	if w.ranked {
		spread = w.rule.spread(m)
	}
	if !w.found || spread < w.spread || spread == w.spread && m < w.best {
		w.best, w.spread, w.found = m, spread, true
	}
}
