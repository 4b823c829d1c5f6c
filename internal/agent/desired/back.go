package desired

import (
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

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
