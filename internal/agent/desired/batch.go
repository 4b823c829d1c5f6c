package desired

import (
	"strconv"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// File names of weights and memory limits.
const (
	WeightV2 = "cpu.weight"
	SharesV1 = "cpu.shares"
	MemoryV2 = "memory.max"
	MemoryV1 = "memory.limit_in_bytes"
)

// weight returns the file of the CPU weight and its value for a request. All weights that Tenon writes are the
// kubelet's: 1024 shares for a CPU, and in v2 the range of shares mapped to that of weights in a straight line.
// Runtimes know another formula, so that weights of different writers must not be compared.
func (d Dialect) weight(milliCPU int64) (file, value string) {
	const fewest, most = 2, 262144
	shares := min(max(min(milliCPU, most*1000/1024)*1024/1000, fewest), most)
	if d == V1 {
		return SharesV1, strconv.FormatInt(shares, 10)
	}
	return WeightV2, strconv.FormatInt(1+(shares-fewest)*9999/(most-fewest), 10)
}

// memory returns the file of the memory limit and the value that lifts it.
func (d Dialect) memory() (file, lifted string) {
	if d == V1 {
		return MemoryV1, "-1"
	}
	return MemoryV2, "max"
}

// quotaOf returns the value of a quota in microseconds of the kubelet's period.
func quotaOf(milliCPU int64) string {
	const most = 1 << 40 // far beyond any machine, and what the kernel takes
	return strconv.FormatInt(max(min(milliCPU, most)*period/1000, leastQuota), 10)
}

// appendBatch appends the rows of a group whose pod or container uses batch resources. The kubelet, which does not know
// these, gives it the least weight and no limit.
func (d *decider) appendBatch(to []Row, row Row, b convert.Batch) []Row {
	set := func(file, value string, c Cause) {
		row.File, row.Value, row.CPUs = file, value, cpuset.Set{}
		if row.Cause != Reverted {
			row.Cause = c
		}
		to = append(to, row)
	}
	if b.CPU {
		file, value := d.in.Dialect.weight(b.MilliCPU)
		set(file, value, BatchRequest)
		file, value = d.in.Dialect.Quota()
		if b.LimitMilliCPU > 0 {
			value = d.boundQuota(row.Path, quotaOf(b.LimitMilliCPU))
		}
		set(file, value, BatchLimit)
	}
	if b.Memory {
		file, value := d.in.Dialect.memory()
		if b.LimitBytes > 0 {
			value = strconv.FormatInt(b.LimitBytes, 10)
		}
		set(file, value, BatchLimit)
	}
	return to
}

// appendBatchRows appends the rows of a pod with batch resources, its own group first.
func (d *decider) appendBatchRows(to []Row, p *Pod) []Row {
	if p.Cgroup != "" {
		to = d.appendBatch(to, Row{Path: p.Cgroup, UID: p.Entry.UID}, p.WholeBatch)
	}
	for _, leaf := range p.Leaves {
		row := Row{Path: leaf.Path, UID: p.Entry.UID, Container: leaf.Container}
		to = d.appendBatch(to, row, p.Batch[leaf.Container])
	}
	return to
}

// appendKubeletBatch appends the rows that undo appendBatchRows.
func (d *decider) appendKubeletBatch(to []Row, p *Pod) []Row {
	plain := func(b convert.Batch) convert.Batch { return convert.Batch{CPU: b.CPU, Memory: b.Memory} }
	row := Row{Path: p.Cgroup, UID: p.Entry.UID, Cause: Reverted}
	if p.Cgroup != "" {
		to = d.appendBatch(to, row, plain(p.WholeBatch))
	}
	for _, leaf := range p.Leaves {
		row.Path, row.Container = leaf.Path, leaf.Container
		to = d.appendBatch(to, row, plain(p.Batch[leaf.Container]))
	}
	return to
}
