package cpualloc

import (
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Feasible reports, from counts alone, whether Allocate would grant req, with the same reason when not. counts are
// those of m's NUMA nodes, as CountNodes returns them. It costs O(NUMA nodes) and allocates nothing. Exclusive,
// Strategy and PreferL3 never decide whether a request fits.
//
// A request fits when the NUMA nodes it may use (one of them under SingleNUMANode) hold Count CPUs of the kind that its
// policy asks for: CPUs on whole free cores for required FullPCPUs, where Count must also be a multiple of threads;
// cores with a free CPU for required SpreadByPCPUs; else any free CPUs.
//
// Reasons: InvalidTopology for machines that are TooWide or above MaxThreads (Extra: the number of nodes or threads);
// SMTAlignment (Extra: threads); TopologyPolicy when the machine would do but the NUMA nodes that the request is
// confined to do not; InsufficientExclusiveCPU. Where is the best NUMA node under SingleNUMANode.
func Feasible(counts []NodeCount, m *topo.Machine, req Request) why.Reason {
	threads := m.ThreadsPerCore()
	switch {
	case req.Count <= 0:
		return why.Reason{}
	case m.TooWide():
		return why.Reason{Code: why.InvalidTopology, Resource: why.CPU, Extra: int64(len(m.CPUNodes()))}
	case threads > MaxThreads:
		return why.Reason{Code: why.InvalidTopology, Resource: why.CPU, Extra: int64(threads)}
	case req.Required && req.Bind == FullPCPUs && req.Count%threads != 0:
		return why.Reason{
			Code: why.SMTAlignment, Resource: why.CPU, Unit: why.CPUs, Asked: int64(req.Count), Extra: int64(threads),
		}
	}
	mask := req.mask()
	total, open, best, bestNode := 0, 0, -1, topo.NUMA(0)
	for n := range m.NodesWithCPUs().All() {
		offer := counts[n].Offers(&req)
		total += offer
		if !mask.Has(n) {
			continue
		}
		open += offer
		if offer > best {
			best, bestNode = offer, n
		}
	}
	free := open
	if req.SingleNUMANode {
		free = max(best, 0)
	}
	if free >= req.Count {
		return why.Reason{}
	}
	r := why.Reason{
		Code: why.InsufficientExclusiveCPU, Resource: why.CPU, Unit: why.CPUs,
		Asked: int64(req.Count), Free: int64(free),
	}
	if req.Required && req.Bind == SpreadByPCPUs {
		r.Unit = why.Cores
	}
	if total >= req.Count {
		r.Code = why.TopologyPolicy
	}
	if req.SingleNUMANode && best >= 0 {
		r.Where = why.Where{Scope: why.NUMA, Index: int32(m.NUMAID(bestNode))}
	}
	return r
}

// Offers is how much of Request.Count the node can hold.
func (c *NodeCount) Offers(req *Request) int {
	switch {
	case !req.Required:
		return c.Free
	case req.Bind == FullPCPUs:
		return c.FreeWhole
	}
	return c.FreeCores
}

// mask returns the nodes that the request allows; no restriction means all.
func (r *Request) mask() topo.NodeSet {
	if r.Nodes == 0 {
		return topo.FirstNodes(maxNodes)
	}
	return r.Nodes
}
