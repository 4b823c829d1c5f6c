package ledger

import (
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// derive is the one place that computes what follows from facts and entries. It costs O(pods + pins + CPUs) and a
// constant number of allocations. With c, the kubelet state changes by one pod instead of being recomputed.
func derive(fr *frame, accounts []*account, version uint64, c change) *View {
	v := &View{frame: fr, accounts: accounts, version: version}
	v.summary.KubeletFree = fr.kubeletFree
	if fr.facts.Machine == nil {
		return v
	}
	v.pins = v.named()
	v.hold()
	v.settle(c.before, c.was, c.is)
	v.settleKubelet()
	v.summarize()
	return v
}

// change names the view from which another one is derived, and the changed account: was nil when the pod is new, is nil
// when it is gone. The zero change is a view that comes from none.
type change struct {
	before  *View
	was, is *account
}

// hold unites the CPUs of exclusive pods.
func (v *View) hold() {
	for _, a := range v.accounts {
		switch a.Role {
		case qos.Exclusive:
			v.lse.Include(&a.cpus)
		case qos.ExclusiveWithBE:
			v.lsr.Include(&a.cpus)
		}
	}
}

// settleKubelet walks pins and entries, both sorted by UID: pins of pods that Tenon does not decide about are KSTATIC;
// entries of which the kubelet has reported no pin yet will take CPUs of it at admission.
func (v *View) settleKubelet() {
	if v.tenancy != nil && v.facts.Mode == Follow {
		v.kubeletStatic = v.tenancy.cpus()
	}
	pins, online := v.pins, v.facts.Machine.Online()
	unclaimed := v.facts.Unclaimed.Intersect(online)
	v.kubeletStatic.Include(&unclaimed)
	if len(pins) == 0 && !v.facts.Kubelet.Static {
		return
	}
	free := v.kubeletFree
	i, nameless := 0, unclaimed.Len() // some of the pods without a pin have them
	keep := func(p *Pin) { v.kubeletStatic = v.kubeletStatic.Union(p.CPUs.Intersect(online)) }
	for _, a := range v.accounts {
		for i < len(pins) && pins[i].UID < a.UID {
			keep(&pins[i])
			i++
		}
		var pinned cpuset.Set
		for ; i < len(pins) && pins[i].UID == a.UID; i++ {
			pinned = pinned.Union(pins[i].CPUs)
			if !a.decides() {
				keep(&pins[i])
			}
		}
		coming := max(a.KubeletCPUs-pinned.Len(), 0)
		had := min(coming, nameless)
		nameless, free = nameless-had, free-coming+had
	}
	for ; i < len(pins); i++ {
		keep(&pins[i])
	}
	if v.facts.Kubelet.Static {
		v.summary.KubeletFree = max(free, 0)
	}
}

// summarize counts the pools by NUMA node.
func (v *View) summarize() {
	m, s := v.facts.Machine, &v.summary
	shared := v.SharedPool()
	free := shared.Minus(v.kubeletReserved)
	s.Capacity, s.CoreCapacity = v.capacity, v.coreCapacity
	s.Nodes = make([]NodeSummary, m.NumNUMA())
	s.Usable = cpualloc.CountNodes(make([]cpualloc.NodeCount, 0, len(s.Nodes)), m, &free)
	for n := range s.Nodes {
		cpus, count := m.NUMACPUs(topo.NUMA(n)), &s.Usable[n]
		pool := cpus.CountIn(&shared)
		s.Nodes[n] = NodeSummary{
			Free: int(count.Free), FreeWhole: int(count.FreeWhole), FreeCores: int(count.FreeCores), PoolCPUs: pool,
		}
		s.Free += int(count.Free)
		s.FreeWhole += int(count.FreeWhole)
		s.FreeCores += int(count.FreeCores)
		s.PoolCPUs += pool
	}
	s.PoolMilli = 1000 * int64(s.PoolCPUs)
	v.promise()
	v.chargeMemory()
	v.classify()
	for i := range s.Nodes {
		if limit := int(s.Nodes[i].PoolMilli / 1000); int(s.Usable[i].Free) > limit {
			s.Committed = true
			s.Usable[i] = s.Usable[i].Limited(m, topo.NUMA(i), &free, limit)
		}
		s.UsableTotal.Free += s.Usable[i].Free
		s.UsableTotal.FreeWhole += s.Usable[i].FreeWhole
		s.UsableTotal.FreeCores += s.Usable[i].FreeCores
	}
	for i := range s.Limits {
		usable := int64(0)
		for n := range s.Limits[i].Nodes.All() {
			usable += int64(s.Usable[n].Free)
		}
		s.Committed = s.Committed || usable > s.Limits[i].Milli/1000
	}
}

// classify sorts NUMA nodes by the pods that use them: pods of one NUMA node and pods of several. What the kubelet gave
// counts where the kubelet chooses, and of pods that Tenon does not decide about.
func (v *View) classify() {
	for _, a := range v.accounts {
		uses := a.uses
		if v.tenancy != nil && (v.facts.Mode == Follow || !a.decides()) {
			if i, ok := v.tenancy.find(a.UID); ok {
				uses |= v.given(a, v.tenancy.assignments[i].placement)
			}
		}
		if uses&(uses-1) == 0 {
			v.summary.Confined |= uses
		} else {
			v.summary.Spanned |= uses
		}
	}
}

// given returns the NUMA nodes with CPUs that a pod uses by what the kubelet gave it: in Own mode those of its memory,
// and of its CPUs only where the kubelet pinned it.
func (v *View) given(a *account, p kubelet.Placement) topo.NodeSet {
	pinned := v.facts.Mode == Follow || v.pinOf(a.UID) != cpuset.Set{}
	var mask topo.NodeSet
	for _, g := range p {
		if !pinned {
			g.CPUs = cpuset.Set{}
		}
		mask |= NodesOf(v.facts.Machine, &g)
	}
	return mask & v.facts.Machine.NodesWithCPUs()
}
