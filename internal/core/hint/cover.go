package hint

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// walkBudget bounds the masks that one walk looks at: every walk of up to WalkNodes nodes ends within it, and beyond
// those of few or of nearly all nodes.
const walkBudget = 1_000_000

// cover returns the largest capacity of k walked nodes, for every k, of units that may belong to several nodes; -1 for
// a k that the budget does not reach.
func cover(places []Place, walked topo.NodeSet) []int64 {
	n := walked.Len()
	most := slices.Repeat([]int64{-1}, n+1)
	most[0], most[n] = 0, reach(places, walked)
	left := walkBudget
	for k := 1; k < n; k++ {
		if most[k-1] == most[n] {
			most[k] = most[n]
			continue
		}
		best := int64(0)
		for m := range walked.Subsets(k) {
			if left--; left < 0 {
				return most
			}
			if best = max(best, reach(places, m)); best == most[n] {
				break
			}
		}
		most[k] = best
	}
	return most
}

// reach sums the capacity of the places that m has a node of.
func reach(places []Place, m topo.NodeSet) int64 {
	var sum int64
	for _, p := range places {
		if p.Nodes&m != 0 {
			sum += p.Capacity
		}
	}
	return sum
}
