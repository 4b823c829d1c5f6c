package desired

import (
	"cmp"
	"strconv"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// File names of the CPU time that a group may save of its quota, since Linux 5.14.
const (
	BurstV2 = "cpu.max.burst"
	BurstV1 = "cpu.cfs_burst_us"
)

// Burst returns the name of the file of the CPU time, in microseconds, that a group may save of its quota.
func (d Dialect) Burst() string {
	if d == V1 {
		return BurstV1
	}
	return BurstV2
}

// IsBurst reports whether a file is that of either dialect.
func IsBurst(file string) bool { return file == BurstV1 || file == BurstV2 }

// defaultBurst is the percentage of a strategy that has none.
const defaultBurst = int64(1000)

// burstPercent returns what groups of a pod may save, in percent of their quotas; 0 for nothing. A pod's annotation
// holds over the node's strategy, field by field. Batch pods keep within their limits, and pods with CPUs of their own
// have no quota.
func (d *decider) burstPercent(p *Pod, v verdict) int64 {
	if d.in.Kubelet != nil {
		return 0
	}
	policy := cmp.Or(p.Burst.Policy, d.in.Burst.Policy)
	asked := policy == slo.CPUBurstOnly || policy == slo.CPUBurstAuto
	shares := p.Entry.Role == qos.SharedPool || p.Entry.Role == qos.SystemPool
	if !asked || !shares || v.kubelets || v.liftsQuota || p.WholeBatch.CPU {
		return 0
	}
	for _, percent := range []*int64{p.Burst.CPUBurstPercent, d.in.Burst.CPUBurstPercent} {
		if percent != nil {
			return *percent
		}
	}
	return defaultBurst
}

// appendBurst appends the rows of a pod that may exceed its CPU limits for a moment, and those that end it. The pod's
// group throttles as well, so it saves what its containers do. A kernel lets no group save more than its quota.
func (d *decider) appendBurst(to []Row, p *Pod, v verdict) []Row {
	known := d.in.Burst != nil && p.Limits != nil || d.in.Kubelet != nil
	if d.in.NoBurst || !known {
		return to // a pod keeps what an earlier agent has written
	}
	percent := d.burstPercent(p, v)
	if percent == 0 && !p.Bursted {
		return to
	}
	burst := func(container string) int64 { return p.Limits[container] * period / 1000 * percent / 100 }
	add := func(path, container string, limit, burst int64) {
		if burst = min(burst, limit*period/1000); burst > 0 || p.Bursted {
			to = append(to, Row{
				Path: path, UID: p.Entry.UID, Container: container, File: d.in.Dialect.Burst(),
				Value: strconv.FormatInt(burst, 10), Cause: BurstAllowed,
			})
		}
	}
	for _, leaf := range p.Leaves {
		if percent == 0 || leaf.Container != "" { // the container of a group may not be known yet
			add(leaf.Path, leaf.Container, p.Limits[leaf.Container], burst(leaf.Container))
		}
	}
	if p.Cgroup != "" {
		sum := int64(0)
		for container := range p.Limits {
			sum += burst(container)
		}
		add(p.Cgroup, "", p.Limit, sum)
	}
	return to
}
