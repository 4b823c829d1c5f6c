package ledger

import (
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// account is an entry translated to one machine. It never changes; views share it.
type account struct {
	Entry
	// cpus are the exclusive CPUs that the pod really holds: known to the machine and online.
	cpus cpuset.Set
	// nodes are the NUMA nodes with CPUs that a SharedPool pod is constrained to; 0 = the whole pool.
	nodes topo.NodeSet
	// holds are Amounts on NUMA nodes with CPUs.
	holds []align.Hold
	// milli is what the pod was promised of the shared pools of nodes.
	milli int64
	// devices are what the pod holds of devices.
	devices []device.Grant
	// uses are the NUMA nodes of cpus, nodes and holds together.
	uses topo.NodeSet
	// tenant is the pod as the machine's kubelet sees it; nil without Guest.
	tenant *tenancy.Tenant
}

// holding is what the pod holds of devices; nil for nothing, and for no pod.
func (a *account) holding() *device.Holding {
	if a == nil || len(a.devices) == 0 {
		return nil
	}
	return &device.Holding{UID: a.UID, Grants: a.devices}
}

// guest is tenant; nil for no pod.
func (a *account) guest() *tenancy.Tenant {
	if a == nil {
		return nil
	}
	return a.tenant
}

// newAccount translates e. Without a machine the entry is kept and holds nothing.
func newAccount(m *topo.Machine, e Entry) *account {
	a := &account{Entry: e.normal()}
	a.milli, a.devices = a.MilliCPU, a.Devices
	if m == nil {
		return a
	}
	if a.CPUList != "" {
		if cpus, _, err := m.ParseList(a.CPUList); err == nil {
			a.cpus = cpus.Intersect(m.Online())
		}
	}
	a.nodes = m.NodesByID(a.NUMAIDs) & m.NodesWithCPUs()
	a.holds = align.Holds(m, a.Amounts)
	a.collectUses(m)
	if a.Guest != nil {
		a.tenant = tenancy.NewTenant(m, a.UID, a.Namespace, a.Name, a.Guest)
	}
	return a
}

// collectUses computes the NUMA nodes on which the pod holds anything.
func (a *account) collectUses(m *topo.Machine) {
	a.uses = a.nodes | m.NodesOf(&a.cpus)
	for i := range a.holds {
		a.uses |= 1 << a.holds[i].Node
	}
}

// decides reports whether Tenon decides about the pod, so that what a static kubelet pinned for it counts for nothing:
// it has CPUs of us, or its class says that it runs on a pool. A pod of class LSE or LSR that another scheduler bound
// runs on what the kubelet pinned, and no other pod may have that.
func (a *account) decides() bool { return a.CPUList != "" || a.Class == qos.LS || a.Class == qos.BE }
