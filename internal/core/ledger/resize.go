package ledger

import (
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Resize reports what the NUMA nodes of a pod lack for it to hold what e says, an entry in the place of the one that it
// has: the first amount that grows beyond what the other pods leave. An amount that does not grow is never refused.
func (v *View) Resize(e Entry) why.Reason {
	i, found := v.find(e.UID)
	if !found || v.Machine() == nil {
		return why.Reason{}
	}
	was, next, others := v.accounts[i], newAccount(v.Machine(), e), v.Without(e.UID)
	for j := range next.holds {
		h := &next.holds[j]
		held := int64(0)
		for k := range was.holds {
			if o := &was.holds[k]; o.Node == h.Node && o.Resource == h.Resource {
				held += o.N
			}
		}
		for k := range others.summary.Rows {
			r := &others.summary.Rows[k]
			if r.Resource == h.Resource && h.N > held && h.N > r.Free[h.Node] {
				return why.Reason{
					Code: why.InsufficientMemory, Resource: r.Resource, Unit: why.Bytes, Asked: h.N,
					Free: r.Free[h.Node], Where: v.numaNode(h.Node),
				}
			}
		}
	}
	if room := others.summary.Room(next.nodes); next.nodes != 0 && e.MilliCPU > was.MilliCPU && e.MilliCPU > room {
		return why.Reason{
			Code: why.SharedPoolTooSmall, Resource: why.CPU, Unit: why.MilliCPU, Asked: e.MilliCPU, Free: room,
			Where: v.numaNode(next.nodes.First()),
		}
	}
	return why.Reason{}
}

// numaNode names a NUMA node by the kernel's ID.
func (v *View) numaNode(n topo.NUMA) why.Where {
	return why.Where{Scope: why.NUMA, Index: int32(v.facts.Machine.NUMAID(n))}
}
