package ledger

import (
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// derive is the one place that computes what follows from facts and entries. It costs O(pods + pins + CPUs) and a
// constant number of allocations. With c, the kubelet's tenancy and the devices change by one pod instead of being
// computed anew; the result is the same, so that an account rebuilt from the API server's objects equals the live one.
//
// The steps are in the order of what they need: grants get the UIDs of their pods; exclusive CPUs and the tenancy say
// which CPUs are not in the shared pool; the summary counts what is left of the pool on each NUMA node, beside what
// confined pods were promised of it.
func derive(fr *frame, accounts []*account, version uint64, c change) *View {
	v := &View{frame: fr, accounts: accounts, version: version}
	v.deriveDevices(c)
	if fr.facts.Machine == nil {
		return v
	}
	if v.given = fr.facts.Given; fr.unattributed() {
		v.given = tenancy.ResolveUIDs(v.given, v.tenants())
	}
	v.collectExclusive()
	v.deriveTenancy(c)
	v.collectPinned()
	if len(v.facts.Used) > 0 {
		v.unplaced = v.placeByReport()
	}
	v.summarize()
	return v
}

// change names the view from which another one is derived, and the changed account: nil before the pod is there, and
// when it is gone. The zero change is a view that comes from none.
type change struct {
	before   *View
	was, now *account
}

// deriveDevices computes what pods hold of devices: from the view before, which shares the frame, or anew.
func (v *View) deriveDevices(c change) {
	inventory := v.facts.Devices
	switch {
	case inventory == nil:
	case c.before == nil:
		v.devices = device.NewView(inventory, func(yield func(*device.Holding) bool) {
			for _, a := range v.accounts {
				if h := a.holding(); h != nil && !yield(h) {
					return
				}
			}
		})
	case c.now.holding() != nil:
		v.devices = c.before.devices.With(c.now.holding())
	case c.was.holding() != nil:
		v.devices = c.before.devices.Without(c.was.UID)
	default:
		v.devices = c.before.devices
	}
	if inventory == nil {
		return
	}
	v.unknown = len(inventory.Unknown())
	for _, a := range v.accounts {
		if a.Unallocated && !inventory.Reports(a.UID) {
			v.unknown++
		}
	}
}

// collectExclusive adds up the exclusive CPUs of LSE and LSR pods.
func (v *View) collectExclusive() {
	for _, a := range v.accounts {
		switch a.Role {
		case qos.Exclusive:
			v.lse.Include(&a.cpus)
		case qos.ExclusiveWithBE:
			v.lsr.Include(&a.cpus)
		}
	}
}

// deriveTenancy computes what the kubelet has given to whom: from the view before, which differs by one account and
// shares the frame, or anew.
func (v *View) deriveTenancy(c change) {
	if v.facts.Model.Node == nil {
		return
	}
	if c.before != nil && c.before.tenancy != nil {
		if next, ok := c.before.tenancy.Change(c.was.guest(), c.now.guest()); ok {
			v.tenancy = next
			return
		}
	}
	v.tenancy = tenancy.New(tenancy.Report{
		Facts: &v.facts.Model, Given: v.given, Unattributed: v.unattributed(), Imported: v.facts.Imported,
	}, v.tenants())
}

// tenants returns the pods to which the node's kubelet gives resources.
func (v *View) tenants() []*tenancy.Tenant {
	tenants := make([]*tenancy.Tenant, 0, len(v.accounts))
	for _, a := range v.accounts {
		if a.tenant != nil {
			tenants = append(tenants, a.tenant)
		}
	}
	return tenants
}

// unattributed reports whether the node reports something without the UID of its pod.
func (fr *frame) unattributed() bool { return len(fr.facts.Given) > 0 && fr.facts.Given[0].UID == "" }

// collectPinned computes KSTATIC: what the kubelet gave to pods that Tenon does not decide about, and in Follow mode
// all that it gives.
func (v *View) collectPinned() {
	if v.facts.Mode == Follow && v.facts.Model.Predicts() {
		v.kubeletStatic = v.tenancy.CPUs()
	}
	for i := range v.given {
		if at, known := v.find(v.given[i].UID); !known || !v.accounts[at].decides() {
			v.kubeletStatic.Include(&v.given[i].CPUs)
		}
	}
	v.kubeletStatic = v.kubeletStatic.Intersect(v.facts.Machine.Online())
}

// summarize computes the summary from the accounts of all pods.
func (v *View) summarize() {
	m, s := v.facts.Machine, &v.summary
	shared := v.SharedPool()
	free := shared.Minus(v.kubeletReserved)
	s.Nodes = make([]NodeSummary, m.NumNUMA())
	s.Usable = cpualloc.CountNodes(make([]cpualloc.NodeCount, 0, len(s.Nodes)), m, &free)
	for n := range s.Nodes {
		cpus := m.NUMACPUs(topo.NUMA(n))
		s.Nodes[n] = NodeSummary{NodeCount: s.Usable[n], PoolCPUs: cpus.CountIn(&shared)}
		s.Add(s.Usable[n])
		s.PoolCPUs += s.Nodes[n].PoolCPUs
	}
	if !v.isolated.IsEmpty() {
		isolated := v.FreeIsolated()
		s.Isolated = cpualloc.CountNodes(make([]cpualloc.NodeCount, 0, len(s.Nodes)), m, &isolated)
	}
	s.PoolMilli = 1000 * int64(s.PoolCPUs)
	v.deductPromises()
	s.Rows = align.Leave(v.rows, m, v.holds)
	v.classify()
	for i := range s.Nodes {
		if limit := int(s.Nodes[i].PoolMilli / 1000); s.Usable[i].Free > limit {
			s.Committed = true
			s.Usable[i] = s.Usable[i].Limited(m, topo.NUMA(i), &free, limit)
		}
		s.UsableTotal.Add(s.Usable[i])
	}
	for i := range s.Limits {
		usable := int64(0)
		for n := range s.Limits[i].Nodes.All() {
			usable += int64(s.Usable[n].Free)
		}
		s.Committed = s.Committed || usable > s.Limits[i].Milli/1000
	}
}

// holds yields the amounts that each pod holds on NUMA nodes, and those of pods without placement together.
func (v *View) holds(yield func([]align.Hold) bool) {
	if len(v.unplaced.holds) > 0 && !yield(v.unplaced.holds) {
		return
	}
	for _, a := range v.accounts {
		if len(a.holds) > 0 && !yield(a.holds) {
			return
		}
	}
}

// classify sorts NUMA nodes by the pods that use them: pods of one NUMA node and pods of several. What the kubelet gave
// counts where the kubelet chooses, and of pods that Tenon does not decide about.
func (v *View) classify() {
	for _, a := range v.accounts {
		uses := a.uses
		if v.facts.Mode == Follow || !a.decides() {
			if s := v.Tenancy().Assignment(a.UID); s != nil {
				uses |= v.usedBy(s)
			}
		}
		if uses&(uses-1) == 0 {
			v.summary.Confined |= uses
		} else {
			v.summary.Spanned |= uses
		}
	}
}

// usedBy returns the NUMA nodes with CPUs that a pod uses by what the kubelet gave it: in Own mode those of its memory,
// and of its CPUs only where the kubelet pinned it.
func (v *View) usedBy(s *tenancy.Assignment) topo.NodeSet {
	pinned := v.facts.Mode == Follow || v.tenancy.PinOf(s.UID) != cpuset.Set{}
	var mask topo.NodeSet
	for _, g := range s.Placement {
		if !pinned {
			g.CPUs = cpuset.Set{}
		}
		mask |= g.NodesOn(v.facts.Machine)
	}
	return mask & v.facts.Machine.NodesWithCPUs()
}
