package desired

import (
	"cmp"
	"slices"
	"strings"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Cause says why a row has its value.
type Cause uint8

// Causes.
const (
	// Allocated: the CPUs that the scheduler gave to the pod alone.
	Allocated Cause = iota
	// SharedPool: the CPU shared pool.
	SharedPool
	// SharedPoolNodes: the part of the CPU shared pool on the NUMA nodes that the pod is constrained to.
	SharedPoolNodes
	// SharedPoolWidened: the pod is constrained to NUMA nodes that have no shared CPU left, so it gets the whole pool.
	SharedPoolWidened
	// BEPool: the BE CPU shared pool.
	BEPool
	// BESuppressed: the part of the BE CPU shared pool that other pods leave to best-effort pods now.
	BESuppressed
	// SystemCPUs: the CPUs reserved for system pods.
	SystemCPUs
	// UnallocatedShared: an LSR pod that another scheduler bound, let run on the shared pool by a flag.
	UnallocatedShared
	// QuotaLifted: a cpuset is the limit of a bound pod; a quota would only throttle it.
	QuotaLifted
	// MemoryLocal: the NUMA nodes that the pod's memory was allocated on.
	MemoryLocal
	// BatchRequest and BatchLimit: the pod's batch or mid resources.
	BatchRequest
	BatchLimit
	// BurstAllowed: CPU time that the group may save of its quota.
	BurstAllowed
	// Reverted: the value that the kubelet alone would give to the group.
	Reverted
)

// String returns the cause in words.
func (c Cause) String() string {
	return [...]string{
		"CPUs of the pod's allocation", "CPU shared pool", "CPU shared pool of the pod's NUMA nodes",
		"whole CPU shared pool: none of it is left on the pod's NUMA nodes", "BE CPU shared pool",
		"BE CPU shared pool, suppressed to what other pods leave", "system CPUs",
		"CPU shared pool: the pod has no allocation", "no quota beside a cpuset", "NUMA nodes of the pod's memory",
		"request of batch CPUs", "limit of batch resources", "CPU burst",
		"given back to the kubelet",
	}[c]
}

// Row is one value of the table.
type Row struct {
	Path, File, Value string
	UID, Container    string
	// CPUs is Value as a set, for the file cpuset.cpus alone.
	CPUs  cpuset.Set
	Cause Cause
	// AtCreation rows are set when the container is created and never touched afterwards.
	AtCreation bool
}

// Refusal is a pod whose containers must not start: an exclusive one without an allocation, or one whose pool is empty.
// Its groups have no rows.
type Refusal struct {
	UID    string
	Reason why.Reason
}

// Input is what Compute works on.
type Input struct {
	// View is the account of the machine with every pod that holds CPUs. Its Machine must be known.
	View    *ledger.View
	Dialect Dialect
	// KubeletKeepsMemory: the kubelet's memory manager is not None, so memory nodes are its own.
	KubeletKeepsMemory bool
	// AllowUnallocatedLSR lets LSR pods without an allocation run on the shared pool; LSE pods never.
	AllowUnallocatedLSR bool
	// Kubelet is set on a node that Tenon leaves: all groups get the values of the kubelet.
	Kubelet *Kubelet
	Pods    []Pod
	// BE bounds best-effort pods.
	BE Limit
	// Burst is how far pods may exceed their CPU limits, unless their own Burst says otherwise; nil while that is not
	// known, and groups keep the bursts that they have. NoBurst: the kernel has no files for it.
	Burst   *slo.CPUBurstConfig
	NoBurst bool
}

// Table is the desired state. Rows are sorted by path, then file; no two have both in common.
type Table struct {
	Rows    []Row
	Refused []Refusal
}

// Compute returns the desired table. Equal input in any order gives an equal table.
func Compute(in Input) Table {
	m := in.View.Machine()
	d := &decider{in: &in, m: m, kstatic: Pinned(in.View)}
	d.shared = d.pool(in.View.SharedPool())
	be, cause := d.bePool()
	d.be, d.beCause = d.pool(be), cause
	d.system = d.pool(in.View.Facts().System.Intersect(m.Online()))
	var t Table
	for i := range in.Pods {
		p := &in.Pods[i]
		if in.Kubelet != nil {
			t.Rows = d.appendKubeletBatch(d.appendKubeletRows(t.Rows, p), p)
			t.Rows = d.appendBurst(t.Rows, p, verdict{})
			continue
		}
		v, refused := d.decide(p)
		if !refused.OK() {
			t.Refused = append(t.Refused, Refusal{UID: p.Entry.UID, Reason: refused})
			continue
		}
		t.Rows = d.appendBurst(d.appendRows(t.Rows, p, v), p, v)
		if !v.liftsQuota && !v.kubelets {
			t.Rows = d.appendBatchRows(t.Rows, p)
		}
	}
	t.Rows = d.appendGroupQuota(t.Rows)
	slices.SortFunc(t.Rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.File, b.File))
	})
	slices.SortFunc(t.Refused, func(a, b Refusal) int { return strings.Compare(a.UID, b.UID) })
	return t
}

// decider holds what is equal for all pods of one Compute.
type decider struct {
	in                 *Input
	m                  *topo.Machine
	shared, be, system pool                  // the online CPUs of each pool; empty if it has none
	beCause            Cause                 // of be
	kstatic            map[string]cpuset.Set // as Pinned returns it
}

// pool is a set with its text, which is formatted once.
type pool struct {
	set  cpuset.Set
	text string
}

// Pinned returns the CPUs of the pods that the account says the kubelet pinned, by UID.
func Pinned(v *ledger.View) map[string]cpuset.Set {
	cpus := map[string]cpuset.Set{}
	for pin := range v.Pins() {
		cpus[pin.UID] = pin.CPUs
	}
	return cpus
}

func (d *decider) pool(s cpuset.Set) pool { return pool{s, d.m.FormatList(s)} }

// verdict is what the groups of a pod get. The zero value leaves them as they are.
type verdict struct {
	pool             // the set of CPUs
	cause      Cause // why the pod gets that set
	touch      bool  // the set is to be written
	liftsQuota bool  // the pod's CPU quotas are to be lifted
	kubelets   bool  // the kubelet decides about the pod's CPUs; only its unpinned groups get the shared pool
}

// decide returns what a pod gets by its role, or why its containers must not start.
func (d *decider) decide(p *Pod) (verdict, why.Reason) {
	if d.isPinned(p) {
		return verdict{kubelets: true}, why.Reason{}
	}
	switch p.Entry.Role {
	case qos.Exclusive, qos.ExclusiveWithBE:
		return d.exclusive(p)
	case qos.BEPool:
		return fromPool(d.be, d.beCause)
	case qos.SystemPool:
		if !d.system.set.IsEmpty() {
			return fromPool(d.system, SystemCPUs)
		}
	case qos.SharedPool:
		if len(p.Entry.NUMAIDs) > 0 {
			return d.partOfPool(p.Entry.NUMAIDs)
		}
	}
	return fromPool(d.shared, SharedPool)
}

// isPinned reports whether the pod's CPUs are the kubelet's decision.
func (d *decider) isPinned(p *Pod) bool {
	_, pinned := d.kstatic[p.Entry.UID]
	return p.Pinnable && pinned || p.Entry.Role == qos.KubeletPinned
}

// fromPool returns the verdict for a pool, or refuses an empty one: an empty cpuset would mean all CPUs.
func fromPool(p pool, c Cause) (verdict, why.Reason) {
	if p.set.IsEmpty() {
		return verdict{}, why.Reason{Code: why.SharedPoolTooSmall, Resource: why.CPU, Unit: why.CPUs, Asked: 1}
	}
	return verdict{pool: p, cause: c, touch: true}, why.Reason{}
}

// exclusive returns the verdict for a pod that is entitled to CPUs of its own.
func (d *decider) exclusive(p *Pod) (verdict, why.Reason) {
	cpus := d.in.View.CPUsOf(p.Entry.UID)
	if !cpus.IsEmpty() {
		return verdict{pool: d.pool(cpus), cause: Allocated, touch: true, liftsQuota: true}, why.Reason{}
	}
	if p.Entry.CPUList == "" && p.Entry.Role == qos.ExclusiveWithBE && d.in.AllowUnallocatedLSR {
		return fromPool(d.shared, UnallocatedShared)
	}
	return verdict{}, why.Reason{Code: why.UnallocatedExclusivePod, Resource: why.CPU}
}

// partOfPool returns the verdict for the shared CPUs of some NUMA nodes; for the whole pool if they have none.
func (d *decider) partOfPool(numaIDs []int) (verdict, why.Reason) {
	var local cpuset.Set
	for _, id := range numaIDs {
		if n, ok := d.m.NUMAByID(id); ok {
			local = local.Union(d.m.NUMACPUs(n))
		}
	}
	local = local.Intersect(d.shared.set)
	if local.IsEmpty() {
		return fromPool(d.shared, SharedPoolWidened)
	}
	return fromPool(d.pool(local), SharedPoolNodes)
}

// appendRows appends the rows of one pod.
func (d *decider) appendRows(to []Row, p *Pod, v verdict) []Row {
	mems, unpinned := d.mems(p), verdict{}
	if v.kubelets {
		unpinned, _ = fromPool(d.shared, SharedPool) // the zero verdict where the pool is empty
	}
	quota := Row{UID: p.Entry.UID, Cause: QuotaLifted}
	quota.File, quota.Value = d.in.Dialect.Quota()
	if v.liftsQuota && p.Cgroup != "" {
		quota.Path = p.Cgroup
		to = append(to, quota)
	}
	for _, leaf := range p.Leaves {
		v := v
		if v.kubelets && leaf.Unpinned {
			v = unpinned
		}
		row := Row{Path: leaf.Path, UID: p.Entry.UID, Container: leaf.Container}
		if v.touch {
			row.File, row.Value, row.CPUs, row.Cause = CPUs, v.text, v.set, v.cause
			to = append(to, row)
		}
		if v.touch && mems != "" {
			row.File, row.Value, row.CPUs, row.Cause, row.AtCreation = Mems, mems, cpuset.Set{}, MemoryLocal, true
			to = append(to, row)
		}
		if v.liftsQuota {
			quota.Path, quota.Container = leaf.Path, leaf.Container
			to = append(to, quota)
		}
	}
	return to
}

// mems returns the memory nodes of a pod in list format, "" when they are not ours to set. Only pods whose CPUs Tenon
// placed get them: a BE or SYSTEM pod runs wherever its pool is.
func (d *decider) mems(p *Pod) string {
	if d.in.KubeletKeepsMemory || len(p.MemoryNUMAIDs) == 0 ||
		!p.Entry.Role.Binds() && p.Entry.Role != qos.SharedPool {
		return ""
	}
	return d.withMemory(p.MemoryNUMAIDs)
}

// withMemory returns, in list format, those of some NUMA nodes that have memory.
func (d *decider) withMemory(ids []int) string {
	// A machine that was read from a published topology knows no memory of its NUMA nodes: it is in the zones.
	knows := false
	for n := range d.m.NumNUMA() {
		knows = knows || d.m.MemoryBytes(topo.NUMA(n)) > 0
	}
	ids = slices.Sorted(slices.Values(ids))
	ids = slices.DeleteFunc(slices.Compact(ids), func(id int) bool {
		n, ok := d.m.NUMAByID(id)
		return !ok || knows && d.m.MemoryBytes(n) == 0
	})
	return cpuset.FormatIDs(ids)
}

// Kubelet is what the kubelet of a node that Tenon leaves does with groups.
type Kubelet struct {
	// CPUs returns the CPUs (kernel ids) that a static CPU manager gives a container of a pod, by the UID that the
	// kubelet knows the pod by; nil where it gives none, and containers run on all CPUs.
	CPUs func(uid, container string) []int
	// Unlimited reports that the kubelet sets no CPU quotas.
	Unlimited bool
}

// The kubelet's period of CPU quotas and the least quota that the kernel takes, in microseconds.
const period, leastQuota = 100_000, 1000

// appendKubeletRows appends the rows of a pod on a node that Tenon leaves. A set contains all CPUs that the group may
// use, and is not empty as the kubelet leaves it: a kernel takes no empty set for a group with processes.
func (d *decider) appendKubeletRows(to []Row, p *Pod) []Row {
	pinned, moved := d.isPinned(p), d.mems(p) != ""
	row := Row{UID: p.Entry.UID, Cause: Reverted}
	set := func(file, value string, cpus cpuset.Set) {
		row.File, row.Value, row.CPUs = file, value, cpus
		to = append(to, row)
	}
	limit := func(milliCPU int64) {
		if file, _ := d.in.Dialect.Quota(); milliCPU > 0 && !d.in.Kubelet.Unlimited {
			set(file, quotaOf(milliCPU), cpuset.Set{})
		}
	}
	if row.Path = p.Cgroup; row.Path != "" {
		limit(p.MilliCPU)
	}
	for _, leaf := range p.Leaves {
		if pinned && !leaf.Unpinned {
			continue
		}
		row.Path, row.Container = leaf.Path, leaf.Container
		cpus := d.m.Online()
		if kubeletCPUs := d.in.Kubelet.CPUs; kubeletCPUs != nil {
			its, _, err := d.m.ParseList(cpuset.FormatIDs(kubeletCPUs(p.Entry.UID, leaf.Container)))
			if its = its.Intersect(cpus); err == nil && !its.IsEmpty() {
				cpus = its
			}
		}
		set(CPUs, d.m.FormatList(cpus), cpus)
		if moved {
			all := make([]int, d.m.NumNUMA())
			for n := range all {
				all[n] = d.m.NUMAID(topo.NUMA(n))
			}
			set(Mems, d.withMemory(all), cpuset.Set{})
		}
		limit(p.MilliCPUs[leaf.Container])
	}
	return to
}
