package place

import (
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/hint"
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
	// isolated: all CPUs are to be isolated ones.
	isolated bool
}

// checkCPUs decides from the summary whether r's exclusive CPUs can be had, and how: O(NUMA nodes), no allocation. It
// leaves o as it is where the node has no topology or its policies contradict those of r.
func (o *order) checkCPUs(v *ledger.View, r *Request) why.Reason {
	f, s := v.Facts(), v.Summary()
	if f.Machine == nil {
		if f.Fault.OK() {
			return why.Reason{Code: why.TopologyMissing, Resource: why.CPU}
		}
		return f.Fault
	}
	effect, reason := EffectOn(v, r)
	if !reason.OK() {
		return reason
	}
	o.Effect, o.req, o.spread = effect, effect.request(r.CPUs, f), max(len(f.Machine.MostCPUs()), 1)
	if o.isolated = r.Isolated == RequireIsolated; o.isolated {
		return o.checkIsolated(v, r)
	}
	if !o.clearlyFits(s, f.Machine) {
		plain := o.req
		plain.SingleNUMANode = false // align checks it, with a reason of its own
		if reason = cpualloc.Feasible(s.Usable, f.Machine, plain); !reason.OK() {
			return o.shortage(v, r, reason)
		}
	}
	if len(s.Limits) > 0 && o.most(v, r) < o.req.Count {
		return o.shortage(v, r, why.Reason{
			Code: why.InsufficientExclusiveCPU, Resource: why.CPU, Unit: o.unit(), Asked: int64(o.req.Count),
		})
	}
	if left := s.PoolCPUs - v.Floor(); r.CPUs > left {
		return why.Reason{
			Code: why.SharedPoolFloor, Resource: why.CPU, Unit: why.CPUs, Asked: int64(r.CPUs),
			Free:  int64(max(left, 0)),
			Extra: int64(v.Floor()),
		}
	}
	return o.align(v, r)
}

// checkIsolated is checkCPUs for isolated CPUs: neither promises nor the floor of the shared pools bound them.
func (o *order) checkIsolated(v *ledger.View, r *Request) why.Reason {
	var none [topo.MaxNodes]cpualloc.NodeCount
	counts := v.Summary().Isolated
	if counts == nil {
		counts = none[:]
	}
	plain := o.req
	plain.SingleNUMANode = false // align checks it, with a reason of its own
	reason := cpualloc.Feasible(counts, v.Machine(), plain)
	switch reason.Code {
	case why.None:
		return o.align(v, r)
	case why.InsufficientExclusiveCPU:
		reason.Code = why.InsufficientIsolatedCPU
	}
	return reason
}

// askExclusive fills j with the rows of an order for exclusive CPUs.
func (j *joint) askExclusive(v *ledger.View, r *Request, o *order) {
	j.begin(v, r)
	j.policy, j.spread = o.Topology, o.spread
	j.leading, j.needs[0] = 1, int64(o.req.Count)
	j.open = j.machine.NodesWithCPUs()
	counts := v.Summary().Usable
	if o.isolated {
		if counts = v.Summary().Isolated; counts == nil {
			j.open = 0
		}
	}
	for rest := j.open; rest != 0; rest &= rest - 1 {
		n := rest.First()
		j.cpus[n] = int64(counts[n].Offers(&o.req))
	}
	if o.isolated {
		j.askOthers(v, r)
		return
	}
	if j.limits = j.summary.Limits; len(j.limits) > 0 && o.req.Required && o.req.Bind == cpualloc.FullPCPUs {
		j.wholeCores, j.free, j.usable = true, v.Allocatable(), j.summary.Usable
	}
	j.askOthers(v, r)
}

// clearlyFits says in O(1), from the totals, what cpualloc.Feasible would say of an ordinary request that fits.
func (o *order) clearlyFits(s *ledger.Summary, m *topo.Machine) bool {
	threads := m.ThreadsPerCore()
	if m.TooWide() || threads > cpualloc.MaxThreads {
		return false
	}
	whole := !o.req.Required || o.req.Bind == cpualloc.SpreadByPCPUs || o.req.Count%threads == 0
	return whole && o.req.Count <= s.UsableTotal.Offers(&o.req)
}

// shortage refines the allocator's reason: CPUs that only LS pods' promises keep back, and the policy that was
// required.
func (o *order) shortage(v *ledger.View, r *Request, reason why.Reason) why.Reason {
	s := v.Summary()
	if reason.Code != why.InsufficientExclusiveCPU {
		return reason
	}
	if s.Committed && s.Offers(&o.req) >= o.req.Count {
		reason.Code, reason.Free = why.SharedPoolCommitted, int64(o.most(v, r))
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

// align applies the topology policy: one NUMA node for SingleNUMANode; for Restricted as few as the CPUs would need on
// an empty machine.
func (o *order) align(v *ledger.View, r *Request) why.Reason {
	s := v.Summary()
	switch o.Topology {
	case hint.SingleNUMANode:
		o.spread = 1
	case hint.Restricted:
		o.spread = o.fewest(v.Facts())
	default:
		return why.Reason{}
	}
	var j joint
	j.askExclusive(v, r, o)
	reason := j.check()
	if !reason.OK() && j.allowForDevices(v, r) {
		wide := j.wide
		j = joint{}
		j.askExclusive(v, r, o)
		j.wide = wide
		reason = j.check()
	}
	if reason.Code != why.TopologyPolicy || reason.Resource != why.CPU {
		return reason
	}
	if s.Committed && !o.isolated {
		for n := range j.machine.NodesWithCPUs().All() {
			j.cpus[n] = int64(s.Nodes[n].Offers(&o.req))
		}
		j.others, j.limits, j.wants = 0, nil, ShareNUMANodes
		if j.check().OK() {
			reason.Code, reason.Extra = why.SharedPoolCommitted, 0
		}
	}
	reason.Unit = o.unit()
	return reason
}

// unit is what a refusal counts: cores if each CPU needs a core of its own, else CPUs.
func (o *order) unit() why.Unit {
	if o.req.Required && o.req.Bind == cpualloc.SpreadByPCPUs {
		return why.Cores
	}
	return why.CPUs
}

// fewest is the number of NUMA nodes that the request needs on an empty machine.
func (o *order) fewest(f *ledger.Facts) int {
	m := f.Machine
	if o.isolated {
		var most [topo.MaxNodes]int
		isolated := f.Isolated.Intersect(m.Online())
		for n := range m.NodesWithCPUs().All() {
			count := cpualloc.CountNode(m, n, &isolated)
			most[n] = count.Offers(&o.req)
		}
		topo.LargestFirst(most[:])
		return leastOf(most[:], o.req.Count)
	}
	if o.req.Required && o.req.Bind == cpualloc.SpreadByPCPUs {
		return leastOf(m.MostCores(), o.req.Count)
	}
	return leastOf(m.MostCPUs(), o.req.Count)
}

// most is how much of the request the machine holds, as the bind policy counts.
func (o *order) most(v *ledger.View, r *Request) int {
	var j joint
	j.askExclusive(v, r, o)
	most, _ := j.most(j.open)
	return int(most)
}

// take computes the CPUs, and where the other rows go. An even spread is dropped where it needs more NUMA nodes than
// the topology policy allows, or others than have the rest. devices are the NUMA nodes of devices.
func (o *order) take(v *ledger.View, r *Request, devices topo.NodeSet) (
	cpualloc.Result, []align.Amount, why.Reason,
) {
	var j joint
	j.askExclusive(v, r, o)
	j.allowForDevices(v, r)
	j.excludeMixed()
	j.joinDevices(v, r, o, devices)
	o.spread = j.spread
	state := v.State().Limited(o.req.Bind)
	if o.isolated {
		state = v.IsolatedState()
	}
	req := o.req
	result, reason := cpualloc.Allocate(state, req)
	if req.Strategy == cpualloc.DistributeEvenly && !o.allows(v, &j, &result, reason) {
		req.Strategy = cpualloc.MostAllocated
		result, reason = cpualloc.Allocate(state, req)
	}
	nodes := state.Machine.NodesOf(&result.CPUs)
	if reason.OK() && !(j.holds(nodes) && v.KeepsPromises(&result.CPUs)) {
		nodes = j.choose()
		if _, limited := j.most(nodes); limited {
			state.Caps = make([]int, j.machine.NumNUMA())
			for n := range j.machine.NodesWithCPUs().All() {
				state.Caps[n] = int(j.shares[n])
			}
		}
		result, reason = cpualloc.Allocate(state, o.within(&j, nodes))
	}
	if reason.OK() && (nodes == 0 || result.NUMANodes > o.spread) {
		reason = why.Reason{
			Code: why.TopologyPolicy, Resource: why.CPU, Unit: why.CPUs, Asked: int64(o.req.Count),
			Extra: int64(o.spread),
		}
	}
	if !reason.OK() {
		return result, nil, reason
	}
	return result, j.place(state.Machine.NodesOf(&result.CPUs), nodes), reason
}

// allows reports whether an answer keeps to the topology policy and to what other pods were promised, and has the
// other rows on its NUMA nodes.
func (o *order) allows(v *ledger.View, j *joint, result *cpualloc.Result, reason why.Reason) bool {
	return reason.OK() && result.NUMANodes <= o.spread && j.holds(j.machine.NodesOf(&result.CPUs)) &&
		v.KeepsPromises(&result.CPUs)
}

// within is the request on a set of NUMA nodes that holds the pod. Where one node is enough the allocator chooses among
// all that are: it knows more about cores than the rank of a set.
func (o *order) within(j *joint, nodes topo.NodeSet) cpualloc.Request {
	req := o.req
	req.Nodes = nodes
	if nodes.Len() == 1 {
		req.Nodes, req.SingleNUMANode = j.singleNodes(), true
	}
	return req
}
