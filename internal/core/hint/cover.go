package hint

import "slices"

// walkBudget bounds the masks that one walk looks at: every walk of up to WalkNodes nodes ends within it, and beyond
// those of few or of nearly all nodes.
const walkBudget = 1_000_000

// cover returns the largest capacity of k walked nodes, for every k, of units that may belong to several nodes; -1 for
// a k that the budget does not reach.
func cover(places []Place, walked Mask) []int64 {
	n := walked.Len()
	most := slices.Repeat([]int64{-1}, n+1)
	most[0], most[n] = 0, reach(places, walked)
	left := walkBudget
	for k := 1; k < n; k++ {
		if most[k-1] == most[n] {
			most[k] = most[n]
			continue
		}
		combos := combinations{nodes: nodesOf(walked)}
		best := int64(0)
		for m, ok := combos.first(k); ok && best < most[n]; m, ok = combos.next() {
			if left--; left < 0 {
				return most
			}
			best = max(best, reach(places, m))
		}
		most[k] = best
	}
	return most
}

// reach sums the capacity of the places that m has a node of.
func reach(places []Place, m Mask) int64 {
	var sum int64
	for _, p := range places {
		if p.Nodes&m != 0 {
			sum += p.Capacity
		}
	}
	return sum
}

// combinations lists the masks of k out of some nodes in ascending order.
type combinations struct {
	nodes  []int // ascending
	chosen []int // indices into nodes, ascending
}

func (c *combinations) first(k int) (Mask, bool) {
	c.chosen = c.chosen[:0]
	for i := range k {
		c.chosen = append(c.chosen, i)
	}
	return c.sum(), k <= len(c.nodes)
}

func (c *combinations) next() (Mask, bool) {
	// The lowest chosen node that can move up does; those below it go back to the start.
	for i := range c.chosen {
		top := len(c.nodes)
		if i+1 < len(c.chosen) {
			top = c.chosen[i+1]
		}
		if c.chosen[i]+1 < top {
			c.chosen[i]++
			for j := range i {
				c.chosen[j] = j
			}
			return c.sum(), true
		}
	}
	return 0, false
}

func (c *combinations) sum() Mask {
	var m Mask
	for _, i := range c.chosen {
		if i < len(c.nodes) {
			m |= 1 << c.nodes[i]
		}
	}
	return m
}

func nodesOf(m Mask) []int {
	var nodes []int
	for ; m != 0; m &= m - 1 {
		nodes = append(nodes, m.First())
	}
	return nodes
}
