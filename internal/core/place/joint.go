package place

import (
	"math/bits"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// joint is everything that a pod asks of NUMA nodes at once, a row for each resource. A set of NUMA nodes holds the pod
// when in every row its nodes have together what the row asks: no resource is blind to another. That is the kubelet's
// merge in Own mode: its hints are the sets that hold a resource, and it takes one that all of them name.
//
// What a row has on a NUMA node is never negative, so a set that holds the pod still does with one node more.
type joint struct {
	machine  *topo.Machine
	nodes    []ledger.NodeSummary
	strategy cpualloc.Strategy
	open     cpualloc.NodeMask // NUMA nodes that may take part

	// cpus and milli are the rows of CPU: those that the bind policy counts, or the size of shared pools and what of them
	// is not promised. The rows of memory follow them.
	needs       [2]int64
	cpus, milli [topo.MaxCPUNodes]int64
	leading     int // rows of CPU in use, 1 or 2
	memory      [ledger.MaxMemoryTypes]memoryRow
	types       int // of memory, in use
}

type memoryRow struct {
	*ledger.MemorySummary
	need int64
}

// exclusive makes j the question of an order for exclusive CPUs.
func (j *joint) exclusive(v *ledger.View, r *Request, o *order) {
	j.begin(v)
	j.leading, j.needs[0] = 1, int64(o.req.Count)
	for i := range j.nodes {
		j.cpus[i] = int64(o.offer(v.Summary(), i, fromUsable))
		j.open |= 1 << i
	}
	j.ask(v, r, o.Topology)
}

// pool makes j the question of a confinement.
func (j *joint) pool(v *ledger.View, r *Request, c *confinement) {
	j.begin(v)
	j.leading, j.needs, j.open = 2, [2]int64{int64(c.cpus), c.milli}, c.open
	for m := c.open; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(uint64(m))
		j.cpus[i], j.milli[i] = int64(j.nodes[i].PoolCPUs), j.nodes[i].PoolMilli
	}
	j.ask(v, r, c.policy)
}

func (j *joint) begin(v *ledger.View) {
	j.machine, j.nodes, j.strategy = v.Machine(), v.Summary().Nodes, v.Facts().Strategy
}

// ask adds the rows of memory. Without a policy memory takes no part, nor does a type that the machine does not tell of.
// BestEffort never refuses: there a type of which the NUMA nodes have not enough is left out, and so stays unbound.
func (j *joint) ask(v *ledger.View, r *Request, policy ledger.TopologyPolicy) {
	if policy == ledger.NoTopology {
		return
	}
	s := v.Summary()
	for i := range r.Memory {
		known := s.MemoryOf(r.Memory[i].Type)
		if known == nil || j.types == len(j.memory) {
			continue
		}
		row := memoryRow{known, r.Memory[i].Bytes}
		if policy == ledger.BestEffort && row.sum(j.open) < row.need {
			continue
		}
		j.memory[j.types] = row
		j.types++
	}
}

func (m *memoryRow) sum(nodes cpualloc.NodeMask) int64 { return sumOver(m.Free, nodes) }

func sumOver(have []int64, nodes cpualloc.NodeMask) int64 {
	total := int64(0)
	for ; nodes != 0; nodes &= nodes - 1 {
		total += have[bits.TrailingZeros64(uint64(nodes))]
	}
	return total
}

// least is the number of NUMA nodes that the type needs on an empty machine: all of them where not even they do.
func (m *memoryRow) least() int {
	for k, sum := range m.Capacity {
		if sum >= m.need {
			return k + 1
		}
	}
	return len(m.Capacity)
}

func (m *memoryRow) resource() why.Resource {
	if m.Type == ledger.OrdinaryMemory {
		return why.Memory
	}
	return why.Hugepages
}

// reach is how far a set of NUMA nodes comes: the rows that it holds, in order, and what it has of the first other one.
type reach struct {
	nodes cpualloc.NodeMask
	rows  int
	have  int64
}

func (r reach) fartherThan(o reach) bool {
	return r.rows > o.rows || r.rows == o.rows && r.have > o.have
}

func (j *joint) rows() int { return j.leading + j.types }

func (j *joint) reach(nodes cpualloc.NodeMask) reach {
	r := reach{nodes: nodes}
	if r.have = sumOver(j.cpus[:], nodes); r.have < j.needs[0] {
		return r
	}
	r.rows++
	if j.leading > 1 {
		if r.have = sumOver(j.milli[:], nodes); r.have < j.needs[1] {
			return r
		}
		r.rows++
	}
	for i := range j.types {
		if r.have = j.memory[i].sum(nodes); r.have < j.memory[i].need {
			return r
		}
		r.rows++
	}
	return r
}

func (j *joint) holds(nodes cpualloc.NodeMask) bool { return j.reach(nodes).rows == j.rows() }

// judge tells whether the policy finds NUMA nodes for a pod whose CPU alone has been found in order: spread is how many
// the policy allows, which for Restricted is what the CPU needs on an empty machine.
func (j *joint) judge(policy ledger.TopologyPolicy, spread int) why.Reason {
	if j.types == 0 || policy == ledger.BestEffort {
		return why.Reason{}
	}
	for i := range j.types {
		if reason := j.memory[i].judge(j.open, policy, spread); !reason.OK() {
			return reason
		}
	}
	var best reach
	whole := j.sets(spread, func(nodes cpualloc.NodeMask) bool {
		if r := j.reach(nodes); best.nodes == 0 || r.fartherThan(best) {
			best = r
		}
		return best.rows < j.rows()
	})
	switch {
	case best.nodes != 0 && best.rows == j.rows():
		return why.Reason{}
	case !whole || best.rows < j.leading:
		return why.Reason{Code: why.TopologyUndecided, Resource: why.CPU, Extra: int64(spread)}
	}
	row := &j.memory[best.rows-j.leading]
	reason := row.short(why.TopologyPolicy, best.have)
	reason.Extra = int64(spread)
	if spread == 1 {
		node := j.machine.CPUNodes()[bits.TrailingZeros64(uint64(best.nodes))]
		reason.Where = why.Where{Scope: why.NUMA, Index: int32(j.machine.NUMAID(node))}
	}
	return reason
}

// judge looks at one type alone. Under Restricted no set is preferred by all resources when they need different numbers
// of NUMA nodes: such a pod never fits.
func (m *memoryRow) judge(open cpualloc.NodeMask, policy ledger.TopologyPolicy, spread int) why.Reason {
	possible := len(m.Capacity) > 0 && m.Capacity[len(m.Capacity)-1] >= m.need
	if k := m.least(); policy == ledger.Restricted && possible && k != spread {
		return why.Reason{Code: why.TopologyMismatch, Resource: m.resource(), Asked: int64(k), Free: int64(spread)}
	}
	if free := m.sum(open); free < m.need {
		return m.short(why.InsufficientMemory, free)
	}
	return why.Reason{}
}

func (m *memoryRow) short(code why.Code, have int64) why.Reason {
	return why.Reason{Code: code, Resource: m.resource(), Unit: why.Bytes, Asked: m.need, Free: have}
}

// rank orders sets of equally many NUMA nodes; smaller is better.
type rank struct {
	sockets  int
	distance int64
	strategy int64
}

func (r rank) betterThan(o rank) bool {
	switch {
	case r.sockets != o.sockets:
		return r.sockets < o.sockets
	case r.distance != o.distance:
		return r.distance < o.distance
	}
	return r.strategy < o.strategy
}

// rankOf ranks a set: fewest sockets, smallest distances, then the strategy: MostAllocated and DistributeEvenly leave
// the NUMA nodes with more free CPU whole, LeastAllocated takes them.
func (j *joint) rankOf(nodes cpualloc.NodeMask) rank {
	r := rank{sockets: socketsOf(j.nodes, nodes), distance: distanceOf(j.machine, nodes)}
	if r.strategy = sumOver(j.cpus[:], nodes); j.leading > 1 {
		r.strategy = sumOver(j.milli[:], nodes)
	}
	if j.strategy == cpualloc.LeastAllocated {
		r.strategy = -r.strategy
	}
	return r
}

// choose returns the best set of at most most NUMA nodes that holds the pod: fewest of them, then rank, then the lowest
// ids; 0 = none.
func (j *joint) choose(most int) cpualloc.NodeMask {
	for k := 1; k <= most; k++ {
		var chosen cpualloc.NodeMask
		var best rank
		j.sets(k, func(nodes cpualloc.NodeMask) bool {
			if !j.holds(nodes) {
				return true
			}
			if r := j.rankOf(nodes); chosen == 0 || r.betterThan(best) || r == best && lower(nodes, chosen) {
				chosen, best = nodes, r
			}
			return true
		})
		if chosen != 0 {
			return chosen
		}
	}
	return 0
}

// alone returns the single NUMA nodes that hold the pod.
func (j *joint) alone() cpualloc.NodeMask {
	var nodes cpualloc.NodeMask
	for m := j.open; m != 0; m &= m - 1 {
		if one := m & -m; j.holds(one) {
			nodes |= one
		}
	}
	return nodes
}

// lower orders sets of equal size by their lowest node that is not in both.
func lower(a, b cpualloc.NodeMask) bool { return a&((a^b)&-(a^b)) != 0 }

func socketsOf(all []ledger.NodeSummary, nodes cpualloc.NodeMask) int {
	n := 0
	var seen [topo.MaxCPUs / 64]uint64
	for ; nodes != 0; nodes &= nodes - 1 {
		socket := all[bits.TrailingZeros64(uint64(nodes))].Socket
		if seen[socket/64]&(1<<(socket%64)) == 0 {
			seen[socket/64] |= 1 << (socket % 64)
			n++
		}
	}
	return n
}

// distanceOf is the sum of the SLIT distances between all ordered pairs of different nodes.
func distanceOf(m *topo.Machine, nodes cpualloc.NodeMask) int64 {
	total := int64(0)
	for a := nodes; a != 0; a &= a - 1 {
		from := m.CPUNodes()[bits.TrailingZeros64(uint64(a))]
		for b := a & (a - 1); b != 0; b &= b - 1 {
			to := m.CPUNodes()[bits.TrailingZeros64(uint64(b))]
			total += int64(m.Distance(from, to) + m.Distance(to, from))
		}
	}
	return total
}
