package device

import "math/bits"

// PartitionPolicy is what the node's label says of its partition table.
type PartitionPolicy uint8

// Partition policies.
const (
	NoPartitionPolicy PartitionPolicy = iota
	HonorPartitions                   // only sets of the table
	PreferPartitions                  // sets of the table first
)

// Partition is a set of GPUs that can be used together, by their numbers in Fabric Manager (Device.Module).
type Partition struct {
	Modules   []int32
	Score     int64 // higher is better
	Bandwidth int64 // bytes per second of its ring; 0 = unknown
}

// Partitions is the partition table of a node; empty where there is none.
type Partitions struct {
	Policy PartitionPolicy
	Table  []Partition
}

// partition is a row of the table as a set of GPUs.
type partition struct {
	mask             uint64
	score, bandwidth int64
}

// newPartitions translates the table. Rows with numbers that no GPU, or more than one, has are left out.
func (inv *Inventory) newPartitions() []partition {
	r := inv.group(GPU)
	if r == nil {
		return nil
	}
	modules := map[int32]uint64{}
	for i := range r.n {
		if u := &inv.units[r.first+i]; u.Module >= 0 {
			modules[u.Module] |= 1 << i
		}
	}
	var list []partition
	for _, row := range inv.spec.Partitions.Table {
		p := partition{score: row.Score, bandwidth: row.Bandwidth}
		known := len(row.Modules) > 0
		for _, module := range row.Modules {
			known = known && bits.OnesCount64(modules[module]) == 1
			p.mask |= modules[module]
		}
		if known && bits.OnesCount64(p.mask) == len(row.Modules) {
			list = append(list, p)
		}
	}
	return list
}
