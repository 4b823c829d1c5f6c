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

// amount returns the free units of a mask.
func (r *row) amount(m topo.NodeSet) int64 {
	var sum int64
	for ; m != 0; m &= m - 1 {
		sum += r.free[m.First()]
	}
	return sum
}

// fits reports whether a mask holds every row.
func fits(rows []row, m topo.NodeSet) bool {
	for i := range rows {
		if rows[i].amount(m) < rows[i].need {
			return false
		}
	}
	return true
}

// walk looks for the best mask of one size that holds every amount.
type walk struct {
	w    *Scratch
	rule *Rule // of ranked walks
	rows []row
	// ranked: the mean distance decides, so every mask of the size is looked at; else the first is the best.
	ranked bool

	best   topo.NodeSet
	spread int64
	found  bool
}

// start looks at the masks of k of at most WalkNodes nodes, in the ascending order of numbers. What a mask holds is the
// sum of what it has of the lower and of the upper half of the nodes, which are in a table for each row.
func (w *walk) start(nodes topo.NodeSet, k int) {
	n := nodes.Len()
	if k > n {
		return
	}
	half := (n + 1) / 2
	size := 1 << half
	w.w.table = grow(w.w.table, 2*size*len(w.rows))
	table := w.w.table
	for r := range w.rows {
		q, own := &w.rows[r], table[2*size*r:][:2*size]
		own[0], own[size] = -q.need, 0 // sums of what is left over
		for i, rest := 0, nodes; rest != 0; i, rest = i+1, rest&(rest-1) {
			sums, bit, free := own[i/half*size:], 1<<(i%half), q.free[rest.First()]
			for c := range bit {
				sums[bit+c] = sums[c] + free
			}
		}
	}
	for c := uint(1)<<k - 1; c < 1<<n; c = nextOfSize(c) {
		lower, upper := int(c)%size, size+int(c)/size
		short := int64(0) // negative if any row is
		for at := 0; at < len(table); at += 2 * size {
			short |= table[at+lower] + table[at+upper]
		}
		if short < 0 {
			continue
		}
		if w.offer(spreadOut(nodes, uint32(c))); !w.ranked {
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
