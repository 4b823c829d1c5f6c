package place

import (
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/why"
)

// confines reports whether pods of the shared pool are confined to NUMA nodes on the node: by the agent, in the mode in
// which it writes cpusets. Elsewhere such pods run on what the kubelet leaves, whatever its topology policy or the
// node's label say: neither of them confines pods.
func confines(f *ledger.Facts) bool { return f.Mode == ledger.Own }

// unconfined refuses a pod of the shared pool that itself asks to be confined where no agent does that. What a kubelet
// gives the pod may still be aligned: then that decides.
func (r *Request) unconfined(f *ledger.Facts) why.Reason {
	if f.Machine == nil || confines(f) || r.followed(f) || !r.wantsPool() || !r.ConstrainedBurst &&
		r.Topology < hint.Restricted {
		return why.Reason{}
	}
	return why.Reason{Code: why.PoolNotConfined, Resource: why.CPU}
}

// askPool fills j with the rows of a pod of the shared pool that is confined to NUMA nodes. It returns false for a pod
// that may use the whole shared pool, and on a node without topology.
func (j *joint) askPool(v *ledger.View, r *Request) bool {
	f, s := v.Facts(), v.Summary()
	j.policy = max(f.Topology, r.Topology)
	if !confines(f) || !r.wantsPool() || !r.ConstrainedBurst && j.policy < hint.Restricted ||
		f.Machine == nil || f.Machine.TooWide() {
		return false
	}
	j.begin(v, r)
	j.poolNeed = r.poolNeed()
	j.leading, j.needs = 2, [2]int64{(j.poolNeed + 999) / 1000, r.RequestMilli}
	switch j.spread = len(f.Machine.MostCPUs()); j.policy {
	case hint.SingleNUMANode:
		j.spread = 1
	case hint.Restricted:
		j.spread = leastOf(f.Machine.MostCPUs(), int(j.needs[0]))
	}
	nodes := s.Nodes
	for i := range nodes {
		if n := &nodes[i]; n.PoolCPUs > 0 {
			j.open |= 1 << i
			j.cpus[i], j.milli[i] = int64(n.PoolCPUs), n.PoolMilli
		}
	}
	j.askOthers(v, r)
	return true
}

// fitsPool reports whether some set of NUMA nodes is feasible for a pod of the shared pool. It allocates nothing.
func (j *joint) fitsPool() why.Reason {
	cpus, milli := sumOver(j.cpus[:], j.open), j.summary.Room(j.open)
	reason := why.Reason{Code: why.SharedPoolTooSmall, Resource: why.CPU, Unit: why.MilliCPU}
	switch {
	case cpus < j.needs[0]:
		reason.Asked, reason.Free = j.poolNeed, 1000*cpus
	case milli < j.needs[1]:
		reason.Asked, reason.Free = j.needs[1], milli
	default:
		return j.check()
	}
	return reason
}

// leastOf is the smallest number of NUMA nodes that have need, where sums holds at k-1 what k of them have: all of them
// where not even they do.
func leastOf[T int | int64](sums []T, need T) int {
	for k, sum := range sums {
		if sum >= need {
			return k + 1
		}
	}
	return len(sums)
}
