package ledger

import (
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// OfReservation stands for the namespace in entries of Reservations, which have none.
const OfReservation = "reservation"

// OfClaim begins the UIDs of entries of ResourceClaims: what follows is the UID of the claim. No UID of a pod has a
// slash.
const OfClaim = "claim/"

// Entry is what one live pod holds. CPUs and NUMA nodes are kept in the kernel's ids, as the API has them, so that a
// pod may be known before its node's topology; the View translates. The API server's objects, or an Offer, make an
// entry; it does not change afterwards, and Put replaces it whole.
type Entry struct {
	// UID, Namespace and Name are those of the pod; UID identifies the holder. A Reservation has the namespace
	// OfReservation. A ResourceClaim has its own namespace and name, and a UID that begins with OfClaim.
	UID, Namespace, Name string
	Class                qos.Class
	// Role says which of the fields below count: CPUList and Exclusive for roles that bind, NUMAIDs and MilliCPU for
	// SharedPool. Entries that differ only in fields that do not count are equal.
	Role qos.Role
	// CPUList are the exclusive CPUs in list format; "" for none.
	CPUList string
	// Exclusive is the level of the machine on which the pod avoids other pods of the same level; it refuses none.
	Exclusive cpualloc.Exclusive
	// NUMAIDs are the NUMA nodes that the pod's shared pool is confined to, ascending; nil for the pool of the machine.
	NUMAIDs []int
	// MilliCPU is the CPU request that is promised to the pod on NUMAIDs together; 0 without them.
	MilliCPU int64
	// Amounts are what the pod holds of rows on each NUMA node; nil unless the pod has CPUList or NUMAIDs and was
	// placed under a topology policy.
	Amounts []align.Amount
	// Devices are the devices that Tenon allocated to the pod; nil for none.
	Devices []device.Grant
	// Unallocated is true for a pod that requests devices while Devices is empty: another program allocated its
	// devices, and which ones is not known. Invariant, of a normal entry: false where Devices is not empty.
	Unallocated bool
	// Users are the UIDs of the pods and groups of pods that a ResourceClaim is reserved for; nil for any other holder.
	Users []string
	// Within is the UID of the reservation whose room the pod uses, "" for none. What the pod holds of that room is not
	// held by the reservation as well.
	Within string
	// Reserves is true for a reservation: the fields above are all that it keeps, also for pods within it. Once: it
	// holds nothing any more while an entry is within it.
	Reserves, Once bool
	// Guest is the pod as the kubelet sees it, whatever Tenon decided about it; nil when no kubelet would give it
	// anything of its own.
	Guest *tenancy.Guest
}

// IsClaim reports whether the holder is a ResourceClaim. It has Devices, or Unallocated where it is not known which of
// them, and nothing else.
func (e *Entry) IsClaim() bool { return strings.HasPrefix(e.UID, OfClaim) }

// Equal reports whether two entries describe the same holder and the same resources.
func (e Entry) Equal(o Entry) bool {
	e, o = e.normal(), o.normal()
	return e.UID == o.UID && e.Namespace == o.Namespace && e.Name == o.Name && e.Class == o.Class && e.Role == o.Role &&
		e.CPUList == o.CPUList && e.Exclusive == o.Exclusive && slices.Equal(e.NUMAIDs, o.NUMAIDs) &&
		e.MilliCPU == o.MilliCPU && e.Guest.Equal(o.Guest) && slices.Equal(e.Amounts, o.Amounts) &&
		e.Within == o.Within && e.Reserves == o.Reserves && e.Once == o.Once &&
		e.Unallocated == o.Unallocated && slices.Equal(e.Users, o.Users) &&
		slices.EqualFunc(e.Devices, o.Devices, device.Grant.Equal)
}

// predictedLike reports whether two entries differ at most in what the kubelet is predicted to give.
func (e Entry) predictedLike(o Entry) bool {
	if e.Guest != nil && o.Guest != nil {
		guest := *e.Guest
		guest.Prediction = o.Guest.Prediction
		e.Guest = &guest
	}
	return e.Equal(o)
}

// normal drops the fields that mean nothing for the entry's role and sorts NUMAIDs, Amounts, Devices and Users, so that
// entries that mean the same are the same.
func (e Entry) normal() Entry {
	if !e.Role.Binds() {
		e.CPUList, e.Exclusive = "", cpualloc.NotExclusive
	}
	if e.CPUList == "" && (e.Role != qos.SharedPool || len(e.NUMAIDs) == 0) {
		e.Amounts = nil
	}
	e.Amounts = slices.Clone(align.Normal(e.Amounts))
	e.Devices = device.SortedGrants(e.Devices)
	e.Unallocated = e.Unallocated && len(e.Devices) == 0
	if !slices.IsSorted(e.Users) {
		e.Users = slices.Sorted(slices.Values(e.Users))
	}
	if e.Role != qos.SharedPool || len(e.NUMAIDs) == 0 {
		e.NUMAIDs, e.MilliCPU = nil, 0
		return e
	}
	e.NUMAIDs = slices.Clone(e.NUMAIDs)
	slices.Sort(e.NUMAIDs)
	e.NUMAIDs = slices.Compact(e.NUMAIDs)
	return e
}

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
