package place

import (
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Alignment shows how a request meets the NUMA nodes of one machine where Tenon chooses: the rows of the enumeration
// that Fits and Try evaluate. It is for display only.
type Alignment struct {
	Policy hint.Policy
	// Spread is the number of NUMA nodes that the policy allows.
	Spread int
	Rows   []AlignmentRow
	// Nodes are what Try takes, 0 when it refuses.
	Nodes topo.NodeSet
	// Reason is the refusal.
	Reason why.Reason
}

// AlignmentRow is one resource.
type AlignmentRow struct {
	// Resource is "cpu", "pool" (CPUs of the shared pool), "pool-left" (milli-CPU of it that is not promised to any
	// pod), or the name of another resource.
	Resource string
	// Need is the request, Have what each NUMA node with CPUs can give of it: CPUs, milli-CPU or bytes.
	Need int64
	Have []int64
	// Least is the number of NUMA nodes that the request needs on an empty machine; 0 where that plays no part.
	Least int
}

// Align explains the alignment of r on v's machine; false where no NUMA nodes are chosen for it: the pod uses the whole
// shared pool, the node's kubelet chooses, or the topology is unknown.
func Align(v *ledger.View, r *Request) (Alignment, bool) {
	f := v.Facts()
	r = r.at(v)
	if f.Machine == nil || f.Machine.TooWide() || r.followed(f) {
		return Alignment{}, false
	}
	var j joint
	a := Alignment{Policy: max(f.Topology, r.Topology)}
	if r.CPUs > 0 {
		var o order
		reason := o.checkCPUs(v, r)
		if o.req.Count == 0 {
			return Alignment{Reason: reason}, false // its policies contradict the node's
		}
		j.askExclusive(v, r, &o)
		a.Spread, a.Rows = o.spread, append(a.Rows, j.describeRow("cpu", j.needs[0], j.cpus[:], o.fewest(f)))
	} else {
		if !j.askPool(v, r) {
			return Alignment{}, false
		}
		a.Spread = j.spread
		a.Rows = append(a.Rows, j.describeRow("pool", j.needs[0], j.cpus[:], 0),
			j.describeRow("pool-left", j.needs[1], j.milli[:], 0))
	}
	for i := range j.others {
		d := &j.more[i]
		a.Rows = append(a.Rows, j.describeRow(string(d.Resource), d.need, d.Free, d.least()))
	}
	offer, reason := Try(v, r)
	a.Nodes, a.Reason = offer.Nodes, reason
	return a, true
}

// describeRow returns what a resource needs and what each NUMA node with CPUs has, for an explanation.
func (j *joint) describeRow(name string, need int64, have []int64, least int) AlignmentRow {
	row := AlignmentRow{Resource: name, Need: need, Least: least}
	for n := range j.machine.NodesWithCPUs().All() {
		row.Have = append(row.Have, have[n])
	}
	return row
}

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
	r = r.at(v)
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
