package ledger

import (
	"math/bits"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// derive is the one place that computes what follows from facts and entries. It costs O(pods + pins + CPUs) and a
// constant number of allocations. c lets what the kubelet gave be changed by one pod instead of being reckoned anew.
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

// change tells from which view another one comes, with which account changed: was nil when the pod is new, is nil when it
// is gone. The zero change is a view that comes from none.
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
// entries of which the kubelet has told no pin yet will take CPUs of it at admission.
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
	s.Nodes = make([]NodeSummary, len(m.CPUNodes()))
	s.Usable = cpualloc.CountNodes(make([]cpualloc.NodeCount, 0, len(s.Nodes)), m, &free)
	for i, n := range m.CPUNodes() {
		cpus, count := m.NUMACPUs(n), &s.Usable[i]
		pool := cpus.CountIn(&shared)
		s.Nodes[i] = NodeSummary{
			Free: int(count.Free), FreeWhole: int(count.FreeWhole), FreeCores: int(count.FreeCores),
			PoolCPUs: pool, PoolMilli: 1000 * int64(pool), Socket: m.NUMASocket(n),
		}
		s.Free += int(count.Free)
		s.FreeWhole += int(count.FreeWhole)
		s.FreeCores += int(count.FreeCores)
		s.PoolCPUs += pool
	}
	s.PoolMilli = 1000 * int64(s.PoolCPUs)
	v.chargeAll()
	v.chargeMemory()
	v.spare()
	for i := range s.Nodes {
		if limit := s.Nodes[i].Spare; int(s.Usable[i].Free) > limit {
			s.Committed = true
			s.Usable[i] = s.Usable[i].Limited(m, m.CPUNodes()[i], &free, limit)
		}
		s.UsableTotal.Free += s.Usable[i].Free
		s.UsableTotal.FreeWhole += s.Usable[i].FreeWhole
		s.UsableTotal.FreeCores += s.Usable[i].FreeCores
	}
}

// chargeAll takes the requests of constrained pods from the NUMA nodes that they are constrained to: pods with fewer
// nodes to go first, so that pods with more of them spread over what those leave.
func (v *View) chargeAll() {
	widest := 0
	for _, a := range v.accounts {
		if a.nodes != 0 {
			v.summary.PoolMilli -= a.MilliCPU
			widest = max(widest, bits.OnesCount64(uint64(a.nodes)))
		}
	}
	for width := 1; width <= widest; width++ {
		for _, a := range v.accounts {
			if bits.OnesCount64(uint64(a.nodes)) == width {
				v.summary.charge(a.nodes, a.MilliCPU)
			}
		}
	}
}

// charge takes milli from nodes in proportion to what is left there: to their pools, when nobody else is constrained to
// them. While they have enough together, no node is left below zero. What they do not have is owed by the lowest.
func (s *Summary) charge(nodes cpualloc.NodeMask, milli int64) {
	left := int64(0)
	for m := nodes; m != 0; m &= m - 1 {
		left += max(s.Nodes[bits.TrailingZeros64(uint64(m))].PoolMilli, 0)
	}
	rest, spread := milli, min(milli, left)
	for m := nodes; m != 0 && left > 0; m &= m - 1 {
		n := &s.Nodes[bits.TrailingZeros64(uint64(m))]
		share := spread * max(n.PoolMilli, 0) / left
		n.PoolMilli -= share
		rest -= share
	}
	for m := nodes; m != 0 && rest > 0; m &= m - 1 { // what did not divide
		n := &s.Nodes[bits.TrailingZeros64(uint64(m))]
		share := min(rest, max(n.PoolMilli, 0))
		n.PoolMilli -= share
		rest -= share
	}
	s.Nodes[bits.TrailingZeros64(uint64(nodes))].PoolMilli -= rest
}

// spare computes how many CPUs may leave each pool. What pods are owed by one NUMA node they can only get from those
// that they, or pods they compete with, may use beside it: each of those keeps that much. Then every set of NUMA nodes
// still holds the pods that may run nowhere else, as long as it did before.
func (v *View) spare() {
	s := &v.summary
	for i := range s.Nodes {
		kept := max(s.Nodes[i].PoolMilli, 0)
		for owing := range s.Nodes {
			if owed := -s.Nodes[owing].PoolMilli; owed > 0 && kept > 0 && v.competing(1<<owing)&(1<<i) != 0 {
				kept -= owed
			}
		}
		s.Nodes[i].Spare = int(max(kept, 0) / 1000)
	}
}

// competing returns nodes and all NUMA nodes that constrained pods connect with them.
func (v *View) competing(nodes cpualloc.NodeMask) cpualloc.NodeMask {
	for before := cpualloc.NodeMask(0); before != nodes; {
		before = nodes
		for _, a := range v.accounts {
			if a.nodes&nodes != 0 {
				nodes |= a.nodes
			}
		}
	}
	return nodes
}
