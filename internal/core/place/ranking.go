package place

import (
	"math/bits"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// ranking lists NUMA nodes, the largest first and the lowest of equals.
type ranking struct {
	nodes [topo.MaxCPUNodes]uint8
	n     int
}

// first returns the first k nodes that are in mask.
func (r *ranking) first(k int, mask cpualloc.NodeMask) cpualloc.NodeMask {
	var chosen cpualloc.NodeMask
	for _, i := range r.nodes[:r.n] {
		if k == 0 {
			break
		}
		if mask&(1<<i) != 0 {
			chosen |= 1 << i
			k--
		}
	}
	return chosen
}

// rank sorts the open nodes: O(N log N), once for a confinement.
func (c *confinement) rank() {
	if c.bySize.n > 0 {
		return
	}
	c.byLeft = c.ranked(func(n *ledger.NodeSummary) int64 { return n.PoolMilli })
	c.bySize = c.ranked(func(n *ledger.NodeSummary) int64 { return int64(n.PoolCPUs) })
}

func (c *confinement) ranked(size func(*ledger.NodeSummary) int64) ranking {
	const last = topo.MaxCPUNodes - 1
	var keys [topo.MaxCPUNodes]int64 // size, then last − node
	var r ranking
	for m := c.open; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(uint64(m))
		keys[r.n] = size(&c.nodes[i])*topo.MaxCPUNodes + int64(last-i)
		r.n++
	}
	slices.Sort(keys[:r.n])
	for i, key := range keys[:r.n] {
		r.nodes[r.n-1-i] = uint8(last - key%topo.MaxCPUNodes)
	}
	return r
}

// least is a number of NUMA nodes below which no set holds the pod: so many of the largest pools, and so many of those
// with most left, must do. One more than there are where not even all do.
func (c *confinement) least() int {
	var s sum
	for k := range c.bySize.n {
		s.cpus += c.nodes[c.bySize.nodes[k]].PoolCPUs
		s.milli += c.nodes[c.byLeft.nodes[k]].PoolMilli
		if c.holds(s) {
			return k + 1
		}
	}
	return c.bySize.n + 1
}

// most is the most that k of up to exactNodes open nodes, whose pools are large enough together, have left; it looks no
// further once that is enough. −1 when no pools are large enough. A set that holds the pod still does with one more
// node, so only sets of the largest size need to be asked.
func (c *confinement) most(k int, enough int64) int64 {
	s := search{nodes: c.nodes, order: c.bySize.nodes[:c.bySize.n], enough: enough, most: -1}
	for i, node := range s.order {
		s.size[i+1] = s.size[i] + c.nodes[node].PoolCPUs
	}
	s.take(0, k, c.cpus, 0)
	return s.most
}

// search walks sets of nodes, those with the largest pools first: once what follows is too small, so is all the rest.
type search struct {
	nodes []ledger.NodeSummary
	order []uint8
	// size is the sum of the first i pools.
	size         [exactNodes + 1]int
	enough, most int64
}

// take adds k of the nodes from place i on to a set that has milli left and wants pools of cpus more.
func (s *search) take(i, k, cpus int, milli int64) {
	if k == 0 {
		s.most = max(s.most, milli)
		return
	}
	for ; i+k <= len(s.order) && s.size[i+k]-s.size[i] >= cpus && s.most < s.enough; i++ {
		n := &s.nodes[s.order[i]]
		s.take(i+1, k-1, cpus-n.PoolCPUs, milli+n.PoolMilli)
	}
}
