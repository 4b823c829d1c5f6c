package desired

import (
	"github.com/tenon-project/tenon/api/annotation"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Dialect is the cgroup version of a tree.
type Dialect uint8

// Dialects.
const (
	V2 Dialect = iota
	V1
)

// String returns "v1" or "v2".
func (d Dialect) String() string { return [...]string{"v2", "v1"}[d] }

// File names of the cgroup files that Tenon writes.
const (
	CPUs    = "cpuset.cpus"
	Mems    = "cpuset.mems"
	QuotaV2 = "cpu.max"
	QuotaV1 = "cpu.cfs_quota_us"
)

// Quota returns the name of the file of the CPU quota and the value that lifts it.
func (d Dialect) Quota() (file, lifted string) {
	if d == V1 {
		return QuotaV1, "-1"
	}
	return QuotaV2, "max"
}

// Leaf is the group of one container or sandbox.
type Leaf struct {
	// Path is relative to the root of the tree, like "kubepods/pod12/34".
	Path string
	// Container is its name; "" for a sandbox.
	Container string
	// Unpinned: the kubelet pinned the pod, but not this group: the sandbox, or a container that shares CPUs. Only
	// Tenon keeps it off the exclusive CPUs of other pods.
	Unpinned bool
}

// Pod is one pod on the machine, with the groups that it has.
type Pod struct {
	// Entry carries identity, class, role and allocation. Its role says what the pod is entitled to; that a pod belongs
	// to the kubelet's static policy follows from the pins of the account.
	Entry ledger.Entry
	// Pinnable: a static kubelet assigns exclusive CPUs to the pod, Tenon has allocated none to it, and its class does
	// not put it on a pool.
	Pinnable bool
	// MilliCPUs are the CPU limits of the containers of a pod with CPUs of its own, by name, and MilliCPU is the pod's;
	// 0 for none. Its quotas are lifted, and needed again when its groups are given back.
	MilliCPUs map[string]int64
	MilliCPU  int64
	// MemoryNUMAIDs are the NUMA nodes (kernel ids) that its memory was allocated on; nil when it was not.
	MemoryNUMAIDs []int
	// Uses: the pod uses something of Tenon: a class, an allocation, a wish. Containers of other pods are moved between
	// the pools, and never held back.
	Uses bool
	// Batch is what its containers, by name, request of batch or mid resources, WholeBatch what the pod does; nil and
	// the zero value without such. WholeBatch is also zero while only a runtime knows the pod.
	Batch      map[string]convert.Batch
	WholeBatch convert.Batch
	// Malformed says why the pod's allocation cannot be read; "" when it can, or there is none. No container of the pod
	// starts then.
	Malformed string
	// Limits are the CPU limits of the containers, by name, and Limit is the pod's, in milli-CPU; 0 for none. While a
	// limit is resized it is the smaller one. Limits is nil while only a runtime knows the pod.
	Limits map[string]int64
	Limit  int64
	// Burst is how far the pod asks to exceed its limits. Bursted: its groups may have a burst from earlier.
	Burst   slo.CPUBurstConfig
	Bursted bool
	// Asks is what a pod with CPUs of its own asks of the machine's files.
	Asks annotation.Tuning
	// Devices are the types of device that the pod requests; nil while only a runtime knows the pod.
	Devices []annotation.DeviceType
	// Cgroup is the pod's own group, the parent of its leaves; "" while unknown.
	Cgroup string
	Leaves []Leaf
}
