package view

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Pools of pods without exclusive CPUs.
const (
	PoolShared  = "shared"
	PoolBE      = "be"
	PoolSystem  = "system"
	PoolKubelet = "kubelet"
)

// MissingNode is the note for a pod that is bound to a node that does not exist.
func MissingNode(name string) string {
	return "node " + name + " does not exist: no kubelet runs the pod"
}

// PlacementOf returns the placement of a bound pod by the account of its node, without Actual. v may be nil when
// nothing is known of the node.
func PlacementOf(s Subject, v *ledger.View) *Placement {
	out := &Placement{Node: s.Node, NUMA: []Part{}, Predicted: s.Predicted}
	if v == nil {
		return out
	}
	uid, m, f := s.Head.UID, v.Machine(), v.Facts()
	a := v.Tenancy().Assignment(uid)
	if a != nil && a.Source == tenancy.Reported {
		out.Differs = a.Difference(m).Kinds()
	}
	e, known := v.Entry(uid)
	if a != nil || f.Mode == ledger.Follow && e.Guest.CPUs() > 0 {
		out.Assumed = f.Model.Assumed
	}
	if s.Ended {
		return out
	}
	for _, d := range v.Debts() {
		if slices.Contains(d.Holders, uid) {
			out.Overcommitted = append(out.Overcommitted, DebtText(d.Reason))
		}
	}
	if len(e.Devices) > 0 {
		out.Devices, out.Isolation = DevicesOf(v, e.Devices), isolationOf(v, e.Devices, s.Isolation)
	}
	if !known {
		e = ledger.Entry{Role: qos.RoleOf(s.Class)}
	}
	if e.Role.Binds() && (e.CPUList != "" || f.Mode != ledger.Follow) {
		out.CPUSet = e.CPUList
		if m != nil {
			cpus := v.CPUsOf(e.UID)
			out.CPUSet, out.NUMA = m.FormatList(cpus), byNUMA(m, cpus, true)
		}
		return out
	}
	cpus := cpuset.Set{}
	for pin := range v.Pins() {
		if pin.UID == uid {
			out.Pool, cpus = PoolKubelet, pin.CPUs
		}
	}
	if out.Pool == "" {
		if f.Mode == ledger.Follow && f.Model.Config.CPU.Static &&
			(e.Role.Binds() || e.Guest.CPUs() > 0) {
			return out // the kubelet chooses its CPUs, and has not reported which
		}
		out.Pool, cpus = pool(v, e)
	}
	if m != nil {
		out.PoolCPUs, out.NUMA = m.FormatList(cpus), byNUMA(m, cpus, false)
	}
	return out
}

func pool(v *ledger.View, e ledger.Entry) (string, cpuset.Set) {
	if v.Machine() == nil {
		return map[qos.Role]string{qos.BEPool: PoolBE, qos.SystemPool: PoolSystem}[e.Role], cpuset.Set{}
	}
	switch {
	case e.Role == qos.BEPool:
		return PoolBE, v.BEPool()
	case e.Role == qos.SystemPool && v.Facts().System != cpuset.Set{}:
		return PoolSystem, v.Facts().System
	}
	return PoolShared, v.SharedPool().Intersect(nodesOf(v.Machine(), e.NUMAIDs))
}

// nodesOf is the CPUs of the given NUMA nodes (kernel ids), all CPUs when none is named.
func nodesOf(m *topo.Machine, ids []int) cpuset.Set {
	if len(ids) == 0 {
		return m.All()
	}
	var cpus cpuset.Set
	for _, id := range ids {
		if n, ok := m.NUMAByID(id); ok {
			cpus = cpus.Union(m.NUMACPUs(n))
		}
	}
	return cpus
}

func byNUMA(m *topo.Machine, cpus cpuset.Set, withCores bool) []Part {
	out := []Part{}
	for _, n := range m.CPUNodes() {
		on := m.NUMACPUs(n).Intersect(cpus)
		if on.IsEmpty() {
			continue
		}
		part := Part{Node: m.NUMAID(n), Socket: m.SocketID(m.NUMASocket(n)), CPUSet: m.FormatList(on)}
		if withCores {
			part.Cores = byCore(m, n, on)
		}
		out = append(out, part)
	}
	return out
}

func byCore(m *topo.Machine, n topo.NUMA, cpus cpuset.Set) []CorePart {
	var out []CorePart
	for _, c := range m.NUMACores(n) {
		var core cpuset.Set
		for _, cpu := range m.CoreCPUs(c) {
			core.Add(int(cpu))
		}
		if held := core.Intersect(cpus); !held.IsEmpty() {
			out = append(out, CorePart{
				Core: m.CoreID(m.CoreCPUs(c)[0]), CPUSet: m.FormatList(held), Whole: held == core.Intersect(m.Online()),
			})
		}
	}
	return out
}
