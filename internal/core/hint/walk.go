package hint

import (
	"math/bits"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// maxRows bounds the amounts of one request.
const maxRows = 16

// row is one amount that a mask has to hold.
type row struct {
	stock *stock
	need  int64
	free  []int64 // by node
}

// of counts what m holds.
func (r *row) of(m topo.NodeSet) int64 {
	var sum int64
	for ; m != 0; m &= m - 1 {
		sum += r.free[m.First()]
	}
	return sum
}

// fits reports whether m holds every amount.
func fits(rows []row, m topo.NodeSet) bool {
	for i := range rows {
		if rows[i].of(m) < rows[i].need {
			return false
		}
	}
	return true
}

// walk looks for the best mask of one size that holds every amount. Masks are built from the highest node down, lowest
// choice first, which is the ascending order of numbers; a branch ends as soon as even the largest nodes below could
// not fill it.
type walk struct {
	w    *Scratch
	rule *Rule // of ranked walks
	rows []row
	// ranked: the mean distance decides, so every mask of the size is looked at; else the first is the best.
	ranked bool

	nodes  [topo.MaxNodes]uint8 // to choose from, ascending
	n      int
	best   topo.NodeSet
	spread int64
	found  bool
}

// start looks at the masks of k nodes.
func (w *walk) start(nodes topo.NodeSet, k int) {
	w.n = 0
	for rest := nodes; rest != 0; rest &= rest - 1 {
		w.nodes[w.n] = uint8(rest.First())
		w.n++
	}
	if k > w.n {
		return
	}
	rows := len(w.rows)
	if w.n <= 2*halfNodes {
		w.w.buffer = grow(w.w.buffer, rows*2*halfTable)
		w.runTable(k, w.w.buffer)
		return
	}
	w.w.buffer = grow(w.w.buffer, (k+w.n+2)*rows)
	sums, peaks := w.w.buffer[:(k+1)*rows], w.w.buffer[(k+1)*rows:]
	for r := range w.rows {
		sums[k*rows+r] = 0
		peak := int64(0)
		for i := range w.n {
			peaks[i*rows+r] = peak
			peak = max(peak, w.rows[r].free[w.nodes[i]])
		}
		peaks[w.n*rows+r] = peak
	}
	w.descend(sums, peaks, k, w.n, 0)
}

// The sums of up to eight nodes are those of the lower four and those of the upper four.
const (
	halfNodes = 4
	halfTable = 1 << halfNodes
)

// runTable looks at every mask of k of at most eight nodes in two tables for each row.
func (w *walk) runTable(k int, table []int64) {
	const both = 2 * halfTable
	for r := range w.rows {
		q := &w.rows[r]
		own := table[r*both : (r+1)*both]
		own[0], own[halfTable] = -q.need, 0 // sums of what is left over
		for i, node := range w.nodes[:w.n] {
			half, bit := own[i/halfNodes*halfTable:], 1<<(i%halfNodes)
			for c := range bit {
				half[bit+c] = half[c] + q.free[node]
			}
		}
	}
	for c := uint(1)<<k - 1; c < 1<<w.n; c = nextOfSize(c) {
		lower, upper := c%halfTable, halfTable+c/halfTable
		short := int64(0) // negative if any row is
		for at := 0; at < len(table); at += both {
			own := (*[both]int64)(table[at:])
			short |= own[lower] + own[upper%both]
		}
		if short < 0 {
			continue
		}
		m := topo.NodeSet(0)
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
		node := int(w.nodes[i])
		enough := true
		for r := range w.rows {
			q := &w.rows[r]
			next[r] = have[r] + q.free[node]
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
		if w.offer(with); !w.ranked {
			return false
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
