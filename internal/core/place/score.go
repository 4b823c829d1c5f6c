package place

import (
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Usage is the node's load as the scheduler accounts it, r included.
type Usage struct {
	MilliCPU, AllocatableMilliCPU int64
	Memory, AllocatableMemory     int64
}

// Score ranks a node that Fits: 0–100, fewer NUMA nodes first, then the strategy. A node that honours the pod's
// preference only by breaking it (SpreadByPCPUs on FullPCPUsOnly, CPUs that are not isolated, NUMA nodes that pods of
// the other kind use) scores 0, and so does one whose kubelet may still meet many pods in another order. One whose
// kubelet chooses and is not known has a tenth. It allocates nothing, unless the kubelet chooses the CPUs and must be
// predicted.
//
// One NUMA node scores 50–100, two 25–49, three 12–24 and so on: each number of NUMA nodes has a range of its own.
// Inside it fewer sockets rank first, then smaller distances, then the strategy, as far as whole points distinguish
// them: the one that the node's label numa-allocate-strategy names, else s.
func Score(v *ledger.View, r *Request, u Usage, s cpualloc.Strategy) int64 {
	r = r.at(v)
	if risky(v, r) || r.Isolated == PreferIsolated && r.CPUs > 0 {
		return 0
	}
	var j joint
	nodes, ok := j.targetNodes(v, r)
	if !ok {
		return 0
	}
	span := max(nodes.Len(), 1)
	if r.NUMAExclusive != ShareNUMANodes && max(v.Facts().Topology, r.Topology) >= hint.BestEffort &&
		nodes&v.Summary().Mixed(span) != 0 {
		return 0
	}
	low, high := int64(100)>>min(span, 62), int64(100)
	if span > 1 {
		high = max(int64(100)>>min(span-1, 62)-1, 0)
	}
	if f := v.Facts(); f.StrategyByLabel && f.Strategy != cpualloc.DistributeEvenly {
		s = f.Strategy // the node's own, where its label says one that ranks nodes
	}
	within := u.rank(s)
	if span > 1 {
		within = j.proximity(nodes, within)
	}
	score := low + within*(high-low)/100
	if r.followed(v.Facts()) && v.Facts().Model.Trust == kubelet.Doubted {
		score /= 10
	}
	return max(score, 1)
}

// targetNodes returns the NUMA nodes on which r will be placed, 0 where none are chosen for it; false where it does not
// fit, or only by breaking what it prefers.
func (j *joint) targetNodes(v *ledger.View, r *Request) (nodes topo.NodeSet, ok bool) {
	if r.followed(v.Facts()) {
		j.begin(v, r)
		placement, reason := predict(v, r)
		if !reason.OK() {
			return 0, false
		}
		// Where its kubelet has no model the pod counts as on the first NUMA node.
		return max(touched(v.Machine(), placement)&v.Machine().NodesWithCPUs(), 1), true
	}
	if r.CPUs > 0 {
		var o order
		if reason := o.checkCPUs(v, r); o.Broken || !reason.OK() {
			return 0, false
		}
		j.askExclusive(v, r, &o)
		j.allowForDevices(v, r)
		j.excludeMixed()
		return j.choose(), true
	}
	if j.askPool(v, r) {
		j.allowForDevices(v, r)
		j.excludeMixed()
		nodes = j.choose()
	}
	return nodes, true
}

// span returns the number of NUMA nodes that hold r, which fits.
func span(v *ledger.View, r *Request) int {
	var j joint
	nodes, _ := j.targetNodes(v, r)
	return nodes.Len()
}

// proximity ranks a set of several NUMA nodes 0–100, rank being what the strategy makes of the machine: on one socket
// 50–100, on two 25–50 and so on; within that the upper quarter is for nodes that are as close as those of one package,
// the next for those as far as the kernel assumes where the firmware does not say, and so on; within that the
// strategy.
func (j *joint) proximity(nodes topo.NodeSet, rank int64) int64 {
	sockets := min(j.machine.SocketsOf(nodes), 6)
	k := int64(nodes.Len())
	mean := j.machine.DistanceWithin(nodes) / (k * (k - 1))
	band := min(max(mean-10, 0)/8, 3) // SLIT: 10 is the node itself; 12 to 17 one package, 20 to 25 the other socket
	low, high := int64(10_000)>>sockets, int64(10_000)>>(sockets-1)
	quarter := (high - low) / 4
	return (low + (3-band)*quarter + rank*quarter/100) / 100
}

// rank is the mean of CPU and memory, from 0 to 100.
func (u Usage) rank(s cpualloc.Strategy) int64 {
	return (share(u.MilliCPU, u.AllocatableMilliCPU, s) + share(u.Memory, u.AllocatableMemory, s)) / 2
}

// share returns the percent of all that is used, or that is free if the emptiest nodes are the best.
func share(used, all int64, s cpualloc.Strategy) int64 {
	if all <= 0 {
		return 0
	}
	used = min(max(used, 0), all)
	if s == cpualloc.LeastAllocated {
		used = all - used
	}
	return 100 * used / all
}
