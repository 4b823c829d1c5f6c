package place

import (
	"math/bits"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// order is a request for exclusive CPUs that fits.
type order struct {
	Effect
	req cpualloc.Request
	// spread is the number of NUMA nodes that the topology policy allows the answer to touch.
	spread int
}

// judgeCPUs decides from the summary whether r's exclusive CPUs can be had: O(NUMA nodes), no allocation.
func judgeCPUs(v *ledger.View, r *Request) (order, why.Reason) {
	f, s := v.Facts(), v.Summary()
	if f.Machine == nil {
		if f.Fault.OK() {
			return order{}, why.Reason{Code: why.TopologyMissing, Resource: why.CPU}
		}
		return order{}, f.Fault
	}
	effect, reason := EffectOn(v, r)
	if !reason.OK() {
		return order{}, reason
	}
	o := order{Effect: effect, req: effect.request(r.CPUs, f)}
	o.spread = max(len(s.Nodes), 1)
	if !o.clearlyFits(s, f.Machine.ThreadsPerCore()) {
		plain := o.req
		plain.SingleNUMANode = false // align judges it, with a reason of its own
		if reason = cpualloc.Feasible(s.Usable, f.Machine.ThreadsPerCore(), plain); !reason.OK() {
			return o, o.shortage(s, reason)
		}
	}
	if left := s.PoolCPUs - v.Floor(); r.CPUs > left {
		return o, why.Reason{
			Code: why.SharedPoolFloor, Resource: why.CPU, Unit: why.CPUs, Asked: int64(r.CPUs), Free: int64(max(left, 0)),
			Extra: int64(v.Floor()),
		}
	}
	return o, o.align(s)
}

// judgeMemory decides whether r's memory can be had beside its exclusive CPUs, which are known to fit.
func (o *order) judgeMemory(v *ledger.View, r *Request) why.Reason {
	if o.Topology < ledger.Restricted || len(r.Memory) == 0 {
		return why.Reason{}
	}
	var j joint
	j.exclusive(v, r, o)
	return j.judge(o.Topology, o.spread)
}

// clearlyFits says in O(1), from the totals, what cpualloc.Feasible would say of an ordinary request that fits.
func (o *order) clearlyFits(s *ledger.Summary, threads int) bool {
	if len(s.Nodes) > topo.MaxCPUNodes || threads > cpualloc.MaxThreads {
		return false
	}
	switch {
	case !o.req.Required:
		return o.req.Count <= int(s.UsableTotal.Free)
	case o.req.Bind == cpualloc.FullPCPUs:
		return o.req.Count <= int(s.UsableTotal.FreeWhole) && o.req.Count%threads == 0
	}
	return o.req.Count <= int(s.UsableTotal.FreeCores)
}

// shortage refines the allocator's reason: CPUs that only LS pods' promises keep back, and the policy that was required.
func (o *order) shortage(s *ledger.Summary, reason why.Reason) why.Reason {
	if reason.Code != why.InsufficientExclusiveCPU {
		return reason
	}
	if s.Committed && o.most(s, len(s.Nodes), fromFree) >= o.req.Count {
		reason.Code = why.SharedPoolCommitted
		return reason
	}
	if o.req.Required {
		reason.Extra = int64(why.RequiredFullPCPUs)
		if o.req.Bind == cpualloc.SpreadByPCPUs {
			reason.Extra = int64(why.RequiredSpreadByPCPUs)
		}
	}
	return reason
}

// align applies the topology policy for CPUs alone: one NUMA node for SingleNUMANode; for Restricted as few as an empty
// machine would need.
func (o *order) align(s *ledger.Summary) why.Reason {
	switch o.Topology {
	case ledger.SingleNUMANode:
		o.spread = 1
	case ledger.Restricted:
		o.spread = o.fewest(s)
	default:
		return why.Reason{}
	}
	best := o.most(s, o.spread, fromUsable)
	if best >= o.req.Count {
		return why.Reason{}
	}
	reason := why.Reason{
		Code: why.TopologyPolicy, Resource: why.CPU, Unit: why.CPUs, Asked: int64(o.req.Count), Free: int64(best),
		Extra: int64(o.spread),
	}
	if s.Committed && o.most(s, o.spread, fromFree) >= o.req.Count {
		reason.Code, reason.Extra = why.SharedPoolCommitted, 0
	}
	if o.req.Required && o.req.Bind == cpualloc.SpreadByPCPUs {
		reason.Unit = why.Cores
	}
	if o.spread == 1 {
		reason.Where = why.Where{Scope: why.NUMA, Index: s.Usable[o.largest(s)].ID}
	}
	return reason
}

// fewest is the number of NUMA nodes that the request needs on an empty machine.
func (o *order) fewest(s *ledger.Summary) int {
	sums := s.Capacity
	if o.req.Required && o.req.Bind == cpualloc.SpreadByPCPUs {
		sums = s.CoreCapacity
	}
	for k, sum := range sums {
		if sum >= o.req.Count {
			return k + 1
		}
	}
	return len(sums)
}

// source says which figure of a NUMA node counts: what is free there, or what of it may be taken.
type source uint8

const (
	fromUsable source = iota
	fromFree
)

// offer is what NUMA node i holds of the request, as its bind policy counts.
func (o *order) offer(s *ledger.Summary, i int, from source) int {
	node, count := &s.Nodes[i], &s.Usable[i]
	switch {
	case !o.req.Required && from == fromFree:
		return node.Free
	case !o.req.Required:
		return int(count.Free)
	case o.req.Bind == cpualloc.FullPCPUs && from == fromFree:
		return node.FreeWhole
	case o.req.Bind == cpualloc.FullPCPUs:
		return int(count.FreeWhole)
	case from == fromFree:
		return node.FreeCores
	}
	return int(count.FreeCores)
}

// most is the largest sum of offers of k NUMA nodes.
func (o *order) most(s *ledger.Summary, k int, from source) int {
	sum := 0
	o.eachLargest(s, from, func(offer int) bool {
		sum += offer
		k--
		return k > 0
	})
	return sum
}

// eachLargest calls yield with the offers in descending order until it returns false: O(N log N).
func (o *order) eachLargest(s *ledger.Summary, from source, yield func(offer int) bool) {
	var all [topo.MaxCPUNodes]int
	offers := all[:min(len(s.Nodes), len(all))]
	for i := range offers {
		offers[i] = o.offer(s, i, from)
	}
	slices.Sort(offers)
	for _, offer := range slices.Backward(offers) {
		if !yield(offer) {
			return
		}
	}
}

// largest is the NUMA node with the largest usable offer, the lowest of equals.
func (o *order) largest(s *ledger.Summary) int {
	at := 0
	for i := range s.Nodes {
		if o.offer(s, i, fromUsable) > o.offer(s, at, fromUsable) {
			at = i
		}
	}
	return at
}

// take computes the CPUs, and where the memory that takes part goes. Preferred CPUs and an even spread are wishes: where
// they need more NUMA nodes than the topology policy allows, or others than have the memory, they are dropped, in that
// order.
func (o *order) take(v *ledger.View, r *Request) (cpualloc.Result, []ledger.Memory, why.Reason) {
	var j joint
	j.exclusive(v, r, o)
	state := v.State().Limited(o.req.Bind)
	if r.PreferCPUs != "" {
		// A malformed list names nothing: it comes from other parts of Tenon, and preferring is a wish.
		if cpus, _, err := state.Machine.ParseList(r.PreferCPUs); err == nil {
			state.Preferred = cpus.Intersect(state.Free)
		}
	}
	req := o.req
	result, reason := cpualloc.Allocate(state, req)
	if !state.Preferred.IsEmpty() && !o.allows(&j, &result, reason) {
		state.Preferred = cpuset.Set{}
		result, reason = cpualloc.Allocate(state, req)
	}
	if req.Strategy == cpualloc.DistributeEvenly && !o.allows(&j, &result, reason) {
		req.Strategy = cpualloc.MostAllocated
		result, reason = cpualloc.Allocate(state, req)
	}
	nodes := nodesOf(state.Machine, &result)
	if reason.OK() && !j.holds(nodes) {
		nodes = j.choose(o.spread)
		result, reason = cpualloc.Allocate(state, o.within(&j, nodes))
	}
	if reason.OK() && (nodes == 0 || result.NUMANodes > o.spread) {
		reason = why.Reason{
			Code: why.TopologyPolicy, Resource: why.CPU, Unit: why.CPUs, Asked: int64(o.req.Count), Extra: int64(o.spread),
		}
	}
	if !reason.OK() {
		return result, nil, reason
	}
	return result, j.place(nodesOf(state.Machine, &result), nodes), reason
}

// allows reports whether an answer keeps to the topology policy and has the memory on its NUMA nodes.
func (o *order) allows(j *joint, result *cpualloc.Result, reason why.Reason) bool {
	return reason.OK() && result.NUMANodes <= o.spread && j.holds(nodesOf(j.machine, result))
}

// within is the request on a set of NUMA nodes that holds the pod. Where one node is enough the allocator chooses among
// all that are: it knows more about cores than the rank of a set.
func (o *order) within(j *joint, nodes cpualloc.NodeMask) cpualloc.Request {
	req := o.req
	req.Nodes = nodes
	if bits.OnesCount64(uint64(nodes)) == 1 {
		req.Nodes, req.SingleNUMANode = j.alone(), true
	}
	return req
}

// nodesOf returns the NUMA nodes of an answer.
func nodesOf(m *topo.Machine, result *cpualloc.Result) cpualloc.NodeMask {
	var mask cpualloc.NodeMask
	for i, n := range m.CPUNodes() {
		cpus := m.NUMACPUs(n)
		if result.CPUs.Overlaps(&cpus) {
			mask |= 1 << i
		}
	}
	return mask
}

// ids returns the kernel's ids of the NUMA nodes in mask, ascending.
func ids(m *topo.Machine, mask cpualloc.NodeMask) []int {
	out := make([]int, 0, bits.OnesCount64(uint64(mask)))
	for ; mask != 0; mask &= mask - 1 {
		out = append(out, m.NUMAID(m.CPUNodes()[bits.TrailingZeros64(uint64(mask))]))
	}
	return out
}
