package desired

import (
	"path"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// Limit is what all best-effort pods of a machine may use of its CPUs together. The zero value bounds nothing.
type Limit struct {
	// CPUs are the CPUs of the BE pool that they may use; empty for all. A set that has none of the pool's CPUs, which
	// have just become those of other pods, has no effect.
	CPUs cpuset.Set
	// Quota is that of the group of Kubernetes' BestEffort pods, in microseconds of a period of 100 ms; 0 for none.
	Quota int64
	// KeepsQuota reports that the quota of that group is Tenon's: without one, it is lifted.
	KeepsQuota bool
}

// bePool returns the CPUs of best-effort pods, and why.
func (d *decider) bePool() (cpuset.Set, Cause) {
	all := d.in.View.BEPool()
	if some := all.Intersect(d.in.BE.CPUs); !some.IsEmpty() && some != all {
		return some, BESuppressed
	}
	return all, BEPool
}

// appendGroupQuota appends the row of the quota of the group that the kubelet makes for BestEffort pods.
func (d *decider) appendGroupQuota(to []Row) []Row {
	if !d.in.BE.KeepsQuota {
		return to
	}
	row := Row{Cause: BESuppressed}
	row.File, row.Value = d.in.Dialect.Quota()
	if d.in.BE.Quota > 0 && d.in.Kubelet == nil {
		row.Value = strconv.FormatInt(d.in.BE.Quota, 10)
	}
	seen := map[string]bool{}
	for i := range d.in.Pods {
		group := path.Dir(d.in.Pods[i].Cgroup)
		if row.Path = group; d.in.Pods[i].Cgroup != "" && IsBestEffort(d.in.Pods[i].Cgroup) && !seen[group] {
			seen[group] = true
			to = append(to, row)
		}
	}
	return to
}

// boundQuota returns the smaller of a quota and that of the group of BestEffort pods, if the group contains group: a v1
// kernel refuses a larger one.
func (d *decider) boundQuota(group, value string) string {
	if !d.in.BE.KeepsQuota || d.in.BE.Quota <= 0 || !IsBestEffort(group) && !IsBestEffort(path.Dir(group)) {
		return value
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return value // the group's quota counts
	}
	return strconv.FormatInt(min(n, d.in.BE.Quota), 10)
}

const (
	bestEffort  = "besteffort"
	sliceSuffix = ".slice"
)

// IsBestEffort reports whether the group of a pod is below that which the kubelet makes for BestEffort pods, with
// either cgroup driver.
func IsBestEffort(podGroup string) bool {
	class := strings.TrimSuffix(path.Base(path.Dir(podGroup)), sliceSuffix)
	return class == bestEffort || strings.HasSuffix(class, "-"+bestEffort)
}
