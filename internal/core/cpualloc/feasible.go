package cpualloc

import (
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Feasible reports, from counts alone, whether Allocate would grant req, with the same reason when not. counts are in
// the order of Machine.CPUNodes(), as CountNodes returns them; threads is Machine.ThreadsPerCore(). It costs O(NUMA
// nodes) and allocates nothing. Exclusive, Strategy, PreferL3 and State.Preferred never decide whether a request fits.
//
// A request fits when the NUMA nodes it may use (one of them under SingleNUMANode) hold Count CPUs of the kind that its
// policy asks for: CPUs on whole free cores for required FullPCPUs, where Count must also be a multiple of threads;
// cores with a free CPU for required SpreadByPCPUs; else any free CPUs.
//
// Reasons: InvalidTopology for machines above topo.MaxCPUNodes or MaxThreads (Extra: the number of nodes or threads);
// SMTAlignment (Extra: threads); TopologyPolicy when the machine would do but the NUMA nodes that the request is
// confined to do not; InsufficientExclusiveCPU. Where is the best NUMA node under SingleNUMANode.
func Feasible(counts []NodeCount, threads int, req Request) why.Reason {
	switch {
	case req.Count <= 0:
		return why.Reason{}
	case len(counts) > topo.MaxCPUNodes:
		return why.Reason{Code: why.InvalidTopology, Resource: why.CPU, Extra: int64(len(counts))}
	case threads > MaxThreads:
		return why.Reason{Code: why.InvalidTopology, Resource: why.CPU, Extra: int64(threads)}
	case req.Required && req.Bind == FullPCPUs && req.Count%threads != 0:
		return why.Reason{
			Code: why.SMTAlignment, Resource: why.CPU, Unit: why.CPUs, Asked: int64(req.Count),
			Extra: int64(threads),
		}
	}
	mask := req.mask()
	total, open, best, bestNode := int64(0), int64(0), int64(0), -1
	for i := range counts {
		offer := counts[i].offers(req)
		total += offer
		if mask&(1<<i) == 0 {
			continue
		}
		open += offer
		if offer > best || bestNode < 0 {
			best, bestNode = offer, i
		}
	}
	asked := int64(req.Count)
	free := open
	if req.SingleNUMANode {
		free = best
	}
	if free >= asked {
		return why.Reason{}
	}
	r := why.Reason{Code: why.InsufficientExclusiveCPU, Resource: why.CPU, Unit: why.CPUs, Asked: asked, Free: free}
	if req.Required && req.Bind == SpreadByPCPUs {
		r.Unit = why.Cores
	}
	if total >= asked {
		r.Code = why.TopologyPolicy
	}
	if req.SingleNUMANode && bestNode >= 0 {
		r.Where = why.Where{Scope: why.NUMA, Index: counts[bestNode].ID}
	}
	return r
}

// offers is how much of Request.Count the node can hold.
func (c *NodeCount) offers(req Request) int64 {
	switch {
	case !req.Required:
		return int64(c.Free)
	case req.Bind == FullPCPUs:
		return int64(c.FreeWhole)
	default:
		return int64(c.FreeCores)
	}
}

func (r *Request) mask() NodeMask {
	if r.Nodes == 0 {
		return AllNodes
	}
	return r.Nodes
}
