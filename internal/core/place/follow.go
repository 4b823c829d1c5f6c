package place

import (
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// robustOrders is the number of unconfirmed pods up to which every order of admission is tried: a kubelet need not meet
// pods in the order in which the scheduler bound them.
const robustOrders = 3

// followed reports whether the node's kubelet chooses r's CPUs: the node's mode is Follow, and r has CPUs to get.
func (r *Request) followed(f *ledger.Facts) bool {
	return f.Mode == ledger.Follow && f.Model.Config.CPU.Static && f.Machine != nil &&
		(r.CPUs > 0 || r.Kubelet.CPUs() > 0)
}

// fitsFollowed reports why a node whose kubelet chooses CPUs does not take the pod, as far as the summary says.
func fitsFollowed(v *ledger.View, r *Request) why.Reason {
	if v.Facts().Model.Trust == kubelet.Distrusted {
		return why.Reason{Code: why.KubeletAssumed, Resource: why.CPU}
	}
	if r.Kubelet.CPUs() < r.CPUs {
		// The kubelet pins Guaranteed containers with whole CPUs alone, and no other component gives CPUs here.
		return why.Reason{Code: why.BindPolicyConflict, Resource: why.CPU}
	}
	if reason := guard(v, r); !reason.OK() {
		return reason
	}
	if effect, reason := EffectOn(v, r); !reason.OK() {
		return reason
	} else if !r.demanding(v, &effect) {
		return why.Reason{}
	}
	_, reason := predict(v, r)
	return reason
}

// demanding reports whether r asks more of its placement than the kubelet's own policy grants.
func (r *Request) demanding(v *ledger.View, e *Effect) bool {
	return r.CPUs > 0 && (e.Required || r.Isolated == RequireIsolated) ||
		e.Topology >= hint.Restricted && e.Topology > v.Facts().Model.Config.Topology.Policy ||
		r.apart(v, e.Topology)
}

// apart reports whether r requires NUMA nodes without pods of the other kind where some are known to use NUMA nodes.
func (r *Request) apart(v *ledger.View, policy hint.Policy) bool {
	return r.NUMAExclusive == RequireNUMAExclusive && policy >= hint.Restricted && v.Facts().Model.Predicts() &&
		v.Summary().Confined|v.Summary().Spanned != 0
}

// predict returns what the kubelet gives r, or why it refuses r or gives something that r's policies do not allow.
func predict(v *ledger.View, r *Request) (kubelet.Placement, why.Reason) {
	state := v.Kubelet()
	if state == nil {
		return nil, unpredictable(v, r)
	}
	_, placement, refusal := state.Admit(r.Kubelet)
	if refusal != nil {
		return nil, refusal.Reason
	}
	if reason := shared(state, r.Kubelet, placement); !reason.OK() || !r.followed(v.Facts()) {
		return placement, reason
	}
	effect, reason := EffectOn(v, r)
	if !reason.OK() {
		return nil, reason
	}
	if !r.demanding(v, &effect) {
		return placement, why.Reason{}
	}
	if r.CPUs > 0 && effect.Required && !laidOut(v.Machine(), placement, effect.Bind) {
		return nil, why.Reason{Code: why.BindPolicyConflict, Resource: why.CPU}
	}
	if cpus := placement.CPUs(); r.CPUs > 0 && r.Isolated == RequireIsolated && !cpus.SubsetOf(&v.Facts().Isolated) {
		return nil, why.Reason{
			Code: why.InsufficientIsolatedCPU, Resource: why.CPU, Unit: why.CPUs, Asked: int64(r.CPUs),
			Free: int64(cpus.CountIn(&v.Facts().Isolated)),
		}
	}
	if reason = aligned(v, placement, effect.Topology); !reason.OK() || !r.apart(v, effect.Topology) {
		return placement, reason
	}
	nodes := touched(v.Machine(), placement) & v.Machine().NodesWithCPUs()
	if span := nodes.Len(); nodes&v.Summary().Mixed(span) != 0 {
		return nil, why.Reason{Code: why.NUMANodeShared, Resource: why.CPU, Extra: int64(span)}
	}
	return placement, why.Reason{}
}

// shared refuses a placement with CPUs that the kubelet has given to another pod.
func shared(state *kubelet.State, p *kubelet.Pod, placement kubelet.Placement) why.Reason {
	if state.Node().GivesCPUsOnce() {
		return why.Reason{}
	}
	cpus, twice := placement.CPUs(), cpuset.Set{}
	for uid, other := range state.Placements() {
		if uid != p.UID {
			own := other.CPUs()
			twice = twice.Union(own.Intersect(cpus))
		}
	}
	if twice.IsEmpty() {
		return why.Reason{}
	}
	asked, taken := int64(cpus.Len()), int64(twice.Len())
	return why.Reason{
		Code: why.KubeletSharesCPUs, Resource: why.CPU, Unit: why.CPUs, Asked: asked, Free: asked - taken, Extra: taken,
	}
}

// unpredictable refuses what needs to know the placement on a node whose kubelet has no model.
func unpredictable(v *ledger.View, r *Request) why.Reason {
	effect, reason := EffectOn(v, r)
	if reason.OK() && r.followed(v.Facts()) && r.demanding(v, &effect) {
		reason = why.Reason{Code: why.BindPolicyConflict, Resource: why.CPU}
	}
	return reason
}

// laidOut reports whether CPUs keep to a bind policy: whole cores, or one CPU of each core.
func laidOut(m *topo.Machine, p kubelet.Placement, bind cpualloc.Bind) bool {
	cpus, online := p.CPUs(), m.Online()
	for c := range cpus.All() {
		has, alive := 0, 0
		for _, sibling := range m.CoreCPUs(m.CoreOf(topo.CPU(c))) {
			if online.Has(int(sibling)) {
				alive++
			}
			if cpus.Has(int(sibling)) {
				has++
			}
		}
		if bind == cpualloc.FullPCPUs && has < alive || bind == cpualloc.SpreadByPCPUs && has > 1 {
			return false
		}
	}
	return true
}

// touched returns the NUMA nodes, by dense index, on which a placement is. Devices that belong to several nodes
// count where nothing else is known.
func touched(m *topo.Machine, p kubelet.Placement) topo.NodeSet {
	var mask topo.NodeSet
	for i := range p {
		mask |= p[i].NodesOn(m)
	}
	for i := range p {
		for _, d := range p[i].Devices {
			if d.Nodes&mask == 0 {
				mask |= d.Nodes
			}
		}
	}
	return mask
}

// aligned applies a topology policy that is tighter than the kubelet's to what it gives.
func aligned(v *ledger.View, p kubelet.Placement, policy hint.Policy) why.Reason {
	if policy < hint.Restricted || policy <= v.Facts().Model.Config.Topology.Policy {
		return why.Reason{}
	}
	m := v.Machine()
	cpus := p.CPUs()
	spread := 1
	if policy == hint.Restricted {
		spread = leastOf(m.MostCPUs(), cpus.Len())
	}
	mask := touched(m, p)
	if mask.Len() <= spread {
		return why.Reason{}
	}
	var most []int // of cpus that k NUMA nodes have, at k-1
	for n := range m.NodesWithCPUs().All() {
		on := m.NUMACPUs(n)
		most = append(most, on.CountIn(&cpus))
	}
	topo.LargestFirst(most)
	return why.Reason{
		Code: why.TopologyPolicy, Resource: why.CPU, Unit: why.CPUs, Asked: int64(cpus.Len()),
		Free: int64(min(most[min(spread, len(most))-1], cpus.Len()-1)), Extra: int64(spread),
	}
}

// guard reports whether the node's kubelet would run r, whoever chooses the CPUs.
func guard(v *ledger.View, r *Request) why.Reason {
	if reason := v.Admits(r.Kubelet); !reason.OK() || !v.Facts().Model.Concerns(r.Kubelet) {
		return reason
	}
	if state := v.Kubelet(); !state.Node().GivesCPUsOnce() {
		_, placement, _ := state.Admit(r.Kubelet)
		if reason := shared(state, r.Kubelet, placement); !reason.OK() {
			return reason
		}
	}
	if pods, atRisk := orderRisk(v); atRisk && len(pods) <= robustOrders {
		return inEveryOrder(v.Tenancy().Confirmed(), append(pods, r.Kubelet))
	}
	return why.Reason{}
}

// orderRisk returns the pods that the kubelet has not confirmed, at most one more than all orders of are tried, where
// the order of admission can decide: under policies that refuse, on nodes that report.
func orderRisk(v *ledger.View) (pods []*kubelet.Pod, atRisk bool) {
	f := v.Facts()
	if f.Model.Config.Topology.Policy < hint.Restricted || f.Model.Gen == 0 {
		return nil, false
	}
	pods = v.Tenancy().Unconfirmed(robustOrders + 1)
	return pods, len(pods) > 0
}

// inEveryOrder admits pods on state in all orders and returns the first refusal: at most 64 admissions for 4 pods.
func inEveryOrder(state *kubelet.State, pods []*kubelet.Pod) why.Reason {
	for i, p := range pods {
		after, _, refusal := state.Admit(p)
		if refusal != nil {
			return refusal.Reason
		}
		rest := make([]*kubelet.Pod, 0, len(pods)-1)
		rest = append(append(rest, pods[:i]...), pods[i+1:]...)
		if reason := inEveryOrder(after, rest); !reason.OK() {
			return reason
		}
	}
	return why.Reason{}
}

// complete puts on an offer what the node's kubelet will do about the pod.
func complete(v *ledger.View, r *Request, o ledger.Offer) (ledger.Offer, why.Reason) {
	f := v.Facts()
	if r.Kubelet == nil {
		return o, why.Reason{}
	}
	guest := &tenancy.Guest{Pod: r.Kubelet, Created: r.Created}
	o.Entry.Guest = guest
	if f.Mode != ledger.Follow || !f.Model.Concerns(r.Kubelet) {
		return o, why.Reason{}
	}
	placement, reason := predict(v, r)
	if !reason.OK() {
		return ledger.Offer{}, reason
	}
	guest.Prediction = &tenancy.Prediction{
		Model: f.Model.Release(), Gen: f.Model.Gen, Held: kubelet.HeldOf(f.Machine, placement),
	}
	if r.followed(f) {
		o.Nodes = touched(f.Machine, placement) & f.Machine.NodesWithCPUs()
	}
	return o, why.Reason{}
}

// risky reports that more pods are unconfirmed than all orders of are tried, or that what the kubelet answers follows
// from something that is not known: such a node ranks last.
func risky(v *ledger.View, r *Request) bool {
	if !v.Facts().Model.Concerns(r.Kubelet) {
		return false
	}
	pods, _ := orderRisk(v)
	return len(pods) > robustOrders || v.Kubelet() != nil && v.Kubelet().Uncertain(r.Kubelet)
}
