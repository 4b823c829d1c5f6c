package place

import (
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/why"
)

// acceptsKubelet reports whether the node's kubelet is one that r may be given to. Where only an exporter describes a
// node, only its kubelet gives CPUs, so that it must be static for pods that get some or are aligned. A pod with
// Volcano's annotation requires the same of every kubelet that decides (seed 004), and that it aligns at all;
// best-effort takes any.
func (r *Request) acceptsKubelet(f *ledger.Facts) why.Reason {
	if f.Imported && f.Machine != nil && !f.Model.Config.CPU.Static &&
		(r.CPUs > 0 || r.wantsPool() && r.Topology >= hint.Restricted) {
		return why.Reason{Code: why.CPUManagerNotStatic, Resource: why.CPU}
	}
	if r.Volcano == hint.None || r.Volcano == hint.BestEffort && !r.SamePolicy {
		return why.Reason{}
	}
	if f.Machine == nil {
		if f.Fault.OK() || f.Fault.Code == why.TopologyMissing {
			return why.Reason{Code: why.NUMAInfoEmpty, Resource: why.CPU}
		}
		return f.Fault
	}
	decides, policy := f.Mode == ledger.Follow || f.Imported, f.Topology
	if decides && (f.Model.Predicts() || !f.Model.Fault.OK()) {
		policy = f.Model.Config.Topology.Policy // a label on the node does not change what its kubelet does
	}
	switch {
	case decides && !f.Model.Config.CPU.Static:
		return why.Reason{Code: why.CPUManagerNotStatic, Resource: why.CPU}
	case decides && policy == hint.None, r.SamePolicy && policy != r.Volcano:
		return why.Reason{
			Code: why.TopologyPolicyDiffers, Resource: why.CPU, Extra: why.Policies(uint8(r.Volcano), uint8(policy)),
		}
	}
	return why.Reason{}
}

// Span returns the number of NUMA nodes on which r will be placed; a pod that is not placed on some is spread over
// all NUMA nodes with CPUs. false where r does not fit, or the NUMA nodes of the node's CPUs are unknown.
func Span(v *ledger.View, r *Request) (numaNodes int, ok bool) {
	r = r.On(v.Facts())
	if v.Machine() == nil {
		return 0, false
	}
	var j joint
	nodes, ok := j.targetNodes(v, r)
	if ok && nodes == 0 {
		return len(v.Machine().CPUNodes()), true
	}
	return nodes.Len(), ok
}
