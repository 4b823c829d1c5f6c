package place

import (
	"math/bits"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// exactNodes is the number of NUMA nodes up to which every set of them is looked at; beyond, the sets with the largest
// pools, of one socket first.
const exactNodes = 8

// confinement asks for NUMA nodes whose shared pools together hold an LS pod.
type confinement struct {
	machine *topo.Machine
	policy  ledger.TopologyPolicy
	nodes   []ledger.NodeSummary
	// cpus is what the pools must have, milli what of them must not be promised yet; need is cpus as the user wrote it.
	cpus        int
	need, milli int64
	strategy    cpualloc.Strategy
	// spread is the number of NUMA nodes that the topology policy allows.
	spread int
	// open are the NUMA nodes that may take part: not promised beyond their pool.
	open cpualloc.NodeMask
	// byLeft and bySize are the open nodes, those with most left and those with the largest pools first; rank fills them.
	byLeft, bySize ranking
}

// confines reports whether somebody on the node keeps pods of the shared pool to NUMA nodes: the agent, in the mode in
// which it writes cpusets. Elsewhere such pods run on what the kubelet leaves, whatever its topology policy or the node's
// label say: neither makes anybody confine them.
func confines(f *ledger.Facts) bool { return f.Mode == ledger.Own }

// unconfined refuses a pod of the shared pool that itself asks to be confined where nobody does that. What a kubelet gives
// the pod may still be aligned: then it is judged by that.
func (r *Request) unconfined(f *ledger.Facts) why.Reason {
	if f.Machine == nil || confines(f) || r.followed(f) || !r.wantsPool() || !r.ConstrainedBurst && r.Topology < ledger.Restricted {
		return why.Reason{}
	}
	return why.Reason{Code: why.PoolNotConfined, Resource: why.CPU}
}

// confine returns the confinement that v's node puts on r; false when r may use the whole shared pool. Without a
// topology nothing is confined: the pod does not bind.
func confine(v *ledger.View, r *Request) (confinement, bool) {
	f, s := v.Facts(), v.Summary()
	policy := max(f.Topology, r.Topology)
	if !confines(f) || !r.wantsPool() || !r.ConstrainedBurst && policy < ledger.Restricted ||
		f.Machine == nil || len(s.Nodes) > topo.MaxCPUNodes {
		return confinement{}, false
	}
	need := r.poolNeed()
	c := confinement{
		machine: f.Machine, policy: policy, nodes: s.Nodes, need: need, cpus: int((need + 999) / 1000), milli: r.RequestMilli, strategy: f.Strategy,
		spread: len(s.Nodes),
	}
	switch policy {
	case ledger.SingleNUMANode:
		c.spread = 1
	case ledger.Restricted:
		for k, sum := range s.Capacity {
			if sum >= c.cpus {
				c.spread = k + 1
				break
			}
		}
	}
	for i := range c.nodes {
		if c.nodes[i].PoolCPUs > 0 && c.nodes[i].PoolMilli >= 0 {
			c.open |= 1 << i
		}
	}
	return c, true
}

// judgeMemory decides whether r's memory can be had beside its shared pools, which are known to fit.
func (c *confinement) judgeMemory(v *ledger.View, r *Request) why.Reason {
	if c.policy < ledger.Restricted || len(r.Memory) == 0 {
		return why.Reason{}
	}
	var j joint
	j.pool(v, r, c)
	return j.judge(c.policy, c.spread)
}

// take returns the best set of NUMA nodes, and where on it the memory that takes part goes.
func (c *confinement) take(v *ledger.View, r *Request) (cpualloc.NodeMask, []ledger.Memory) {
	var j joint
	j.pool(v, r, c)
	if j.types == 0 {
		return c.choose(), nil
	}
	nodes := j.choose(c.spread)
	return nodes, j.place(nodes, nodes)
}

// sum is what a set of NUMA nodes offers.
type sum struct {
	cpus  int
	milli int64
}

func (c *confinement) sum(mask cpualloc.NodeMask) sum {
	var s sum
	for ; mask != 0; mask &= mask - 1 {
		n := &c.nodes[bits.TrailingZeros64(uint64(mask))]
		s.cpus += n.PoolCPUs
		s.milli += n.PoolMilli
	}
	return s
}

func (c *confinement) holds(s sum) bool { return s.cpus >= c.cpus && s.milli >= c.milli }

// judge tells whether some set of NUMA nodes will do. It allocates nothing.
func (c *confinement) judge() why.Reason {
	all := c.sum(c.open)
	if !c.holds(all) {
		return c.short(all, why.Reason{Code: why.SharedPoolTooSmall})
	}
	if c.spread >= bits.OnesCount64(uint64(c.open)) || c.exists() {
		return why.Reason{}
	}
	return c.misaligned()
}

// short fills in the amounts: the pool's size where that is too small, else what of it is not promised.
func (c *confinement) short(s sum, r why.Reason) why.Reason {
	r.Resource, r.Unit = why.CPU, why.MilliCPU
	if s.cpus < c.cpus {
		r.Asked, r.Free = c.need, 1000*int64(s.cpus)
	} else {
		r.Asked, r.Free = c.milli, s.milli
	}
	return r
}

// exists reports whether choose finds a set.
func (c *confinement) exists() bool {
	k := c.spread
	if k > 1 {
		c.rank()
		if c.least() > k {
			return false
		}
		if c.bySize.n <= exactNodes {
			return c.most(k, c.milli) >= c.milli
		}
		k = c.least()
	}
	found := false
	for ; k <= c.spread && !found; k++ {
		c.sets(k, func(mask cpualloc.NodeMask) bool {
			found = c.holds(c.sum(mask))
			return !found
		})
	}
	return found
}

// misaligned is the refusal of the topology policy, with what the closest set of the allowed size offers: the one with
// most left of those whose pools are large enough, else the one with the largest pools.
func (c *confinement) misaligned() why.Reason {
	closest := c.bySize.first(c.spread, c.open)
	best := c.sum(closest)
	switch {
	case c.spread > 1 && best.cpus < c.cpus:
	case c.spread > 1 && c.bySize.n <= exactNodes:
		best.milli = c.most(c.spread, c.milli)
	default:
		closest, best = 0, sum{}
		c.sets(c.spread, func(mask cpualloc.NodeMask) bool {
			s := c.sum(mask)
			fits, bestFits := s.cpus >= c.cpus, best.cpus >= c.cpus
			if closest == 0 || fits && !bestFits || fits && s.milli > best.milli || !bestFits && s.cpus > best.cpus {
				closest, best = mask, s
			}
			return true
		})
	}
	r := c.short(best, why.Reason{Code: why.TopologyPolicy, Extra: int64(c.spread)})
	if c.spread == 1 {
		node := c.machine.CPUNodes()[bits.TrailingZeros64(uint64(closest))]
		r.Where = why.Where{Scope: why.NUMA, Index: int32(c.machine.NUMAID(node))}
	}
	return r
}

// choose returns the best set: fewest NUMA nodes, then fewest sockets, then the smallest distances, then the strategy
// (MostAllocated and DistributeEvenly leave the larger pools whole, LeastAllocated takes them), then the lowest ids.
// 0 = none.
func (c *confinement) choose() cpualloc.NodeMask {
	for k := 1; k <= c.spread; k++ {
		if k == 2 {
			c.rank()
			k = max(k, c.least())
		}
		var chosen cpualloc.NodeMask
		var best rank
		c.sets(k, func(mask cpualloc.NodeMask) bool {
			s := c.sum(mask)
			if !c.holds(s) {
				return true
			}
			if r := c.rankOf(mask, s); chosen == 0 || r.betterThan(best) || r == best && lower(mask, chosen) {
				chosen, best = mask, r
			}
			return true
		})
		if chosen != 0 {
			return chosen
		}
	}
	return 0
}

func (c *confinement) rankOf(mask cpualloc.NodeMask, s sum) rank {
	r := rank{sockets: socketsOf(c.nodes, mask), distance: distanceOf(c.machine, mask), strategy: s.milli}
	if c.strategy == cpualloc.LeastAllocated {
		r.strategy = -r.strategy
	}
	return r
}

// sets yields sets of k open NUMA nodes until yield returns false, those of the lowest ids first: all of them up to
// exactNodes open nodes, and always for k = 1; else, of each socket and of the machine, the k nodes with most left and
// the k with the largest pools. The k with most left of the machine are among them, so a confinement by request alone
// never misses a set that fits.
func (c *confinement) sets(k int, yield func(cpualloc.NodeMask) bool) {
	var open [topo.MaxCPUNodes]uint8
	n := 0
	for m := c.open; m != 0; m &= m - 1 {
		open[n] = uint8(bits.TrailingZeros64(uint64(m)))
		n++
	}
	switch {
	case k > n:
		return
	case k == 1:
		for _, i := range open[:n] {
			if !yield(1 << i) {
				return
			}
		}
	case n <= exactNodes:
		for combination := uint64(1)<<k - 1; combination < 1<<n; combination = next(combination) {
			var mask cpualloc.NodeMask
			for m := combination; m != 0; m &= m - 1 {
				mask |= 1 << open[bits.TrailingZeros64(m)]
			}
			if !yield(mask) {
				return
			}
		}
	default:
		for left := c.open; left != 0; {
			socket := onSocket(c.nodes, left, c.nodes[bits.TrailingZeros64(uint64(left))].Socket)
			left &^= socket
			if !c.greedy(k, socket, yield) {
				return
			}
		}
		c.greedy(k, c.open, yield)
	}
}

// greedy yields the k nodes of mask with most left and the k with the largest pools, where there are k; false when
// yield returned it.
func (c *confinement) greedy(k int, mask cpualloc.NodeMask, yield func(cpualloc.NodeMask) bool) bool {
	return bits.OnesCount64(uint64(mask)) < k || yield(c.byLeft.first(k, mask)) && yield(c.bySize.first(k, mask))
}
