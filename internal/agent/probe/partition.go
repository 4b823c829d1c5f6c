package probe

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
)

// partitions are the sets in which GPUs with mustHonorPartition are given out; nil without such GPUs. A group of them
// that are all linked with each other is a set, and so are its blocks of 1, 2, 4 and so on, in the order of their
// numbers. Numbers are those by which readers take the table: modules where any GPU has one, else minors.
func (r *dropReader) partitions(links []annotation.DeviceLink) annotation.GPUPartitions {
	field, number := "minor", func(d *host.Dropped) string { return d.Minor }
	if slices.ContainsFunc(r.devices, func(d host.Dropped) bool { return d.ModuleID != "" }) {
		field, number = "moduleID", func(d *host.Dropped) string { return d.ModuleID }
	}
	var ids []string
	var table annotation.GPUPartitions
	numbers, linked := map[string]int32{}, map[[2]string]bool{}
	for i := range r.devices {
		if d := &r.devices[i]; d.Type == annotation.DeviceGPU && d.Topology.MustHonorPartition {
			table = annotation.GPUPartitions{}
			if numbers[d.UUID] = r.number(d, field, number(d)); numbers[d.UUID] >= 0 {
				ids = append(ids, d.UUID)
			} else {
				r.fault(d, field, "", "a number, as topology.mustHonorPartition is set")
			}
		}
	}
	for _, l := range links {
		linked[[2]string{l.IDs[0], l.IDs[1]}], linked[[2]string{l.IDs[1], l.IDs[0]}] = true, true
	}
	slices.SortStableFunc(ids, func(a, b string) int { return cmp.Compare(numbers[a], numbers[b]) })
	for len(ids) > 0 {
		var group []string
		var minors []int32
		ids = slices.DeleteFunc(ids, func(id string) bool {
			if slices.ContainsFunc(group, func(member string) bool { return !linked[[2]string{id, member}] }) {
				return false
			}
			group, minors = append(group, id), append(minors, numbers[id])
			return true
		})
		n := len(minors)
		for size := 1; size <= n; size *= 2 {
			for set := range slices.Chunk(minors[:n-n%size], size) {
				table[size] = append(table[size], annotation.GPUPartition{Minors: set, AllocationScore: 1})
			}
		}
		if n&(n-1) != 0 {
			table[n] = append(table[n], annotation.GPUPartition{Minors: minors, AllocationScore: 1})
		}
	}
	return table
}
