package ledger

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
)

// Entry is what one live pod holds. CPUs and NUMA nodes are kept in the kernel's ids, as the API has them, so that a
// pod may be known before its node's topology; the View translates.
type Entry struct {
	UID, Namespace, Name string
	Class                qos.Class
	Role                 qos.Role
	// CPUList: for roles that bind, the exclusive CPUs in list format.
	CPUList   string
	Exclusive cpualloc.Exclusive
	// NUMAIDs: for SharedPool, the NUMA nodes (kernel ids, ascending) that the pod is constrained to; nil = whole pool.
	NUMAIDs []int
	// MilliCPU is the CPU request that is constrained to NUMAIDs.
	MilliCPU int64
	// Amounts are what the pod holds of rows on each NUMA node: of pods with CPUList or NUMAIDs that were placed under
	// a topology policy.
	Amounts []align.Amount
	// Devices are what the pod holds of devices.
	Devices []device.Grant
	// Unallocated: the pod requests devices, and Devices is empty. What it has it got of another program.
	Unallocated bool
	// Guest is the pod as the kubelet sees it, whatever Tenon decided about it; nil when no kubelet would give it
	// anything of its own.
	Guest *tenancy.Guest
}

// Equal reports whether two entries say the same.
func (e Entry) Equal(o Entry) bool {
	e, o = e.normal(), o.normal()
	return e.UID == o.UID && e.Namespace == o.Namespace && e.Name == o.Name && e.Class == o.Class && e.Role == o.Role &&
		e.CPUList == o.CPUList && e.Exclusive == o.Exclusive && slices.Equal(e.NUMAIDs, o.NUMAIDs) &&
		e.MilliCPU == o.MilliCPU && e.Guest.Equal(o.Guest) && slices.Equal(e.Amounts, o.Amounts) &&
		e.Unallocated == o.Unallocated && slices.EqualFunc(e.Devices, o.Devices, device.Grant.Equal)
}

func (e Entry) predictedLike(o Entry) bool {
	if e.Guest != nil && o.Guest != nil {
		guest := *e.Guest
		guest.Prediction = o.Guest.Prediction
		e.Guest = &guest
	}
	return e.Equal(o)
}

// normal drops the fields that mean nothing for the entry's role and sorts NUMAIDs, Amounts and Devices, so that
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
	if e.Role != qos.SharedPool || len(e.NUMAIDs) == 0 {
		e.NUMAIDs, e.MilliCPU = nil, 0
		return e
	}
	e.NUMAIDs = slices.Clone(e.NUMAIDs)
	slices.Sort(e.NUMAIDs)
	e.NUMAIDs = slices.Compact(e.NUMAIDs)
	return e
}
