package device

import (
	"math/bits"
	"slices"
)

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

// tabled reports whether whole GPUs are asked for, which partitions are about: shares and MIG devices never use them.
func (p *pick) tabled() bool {
	return p.group.kind == GPU && !slices.ContainsFunc(p.bundles, func(b bundle) bool {
		return slices.ContainsFunc(b, func(p *Part) bool { return !p.Need.Whole || p.Need.Profile != "" })
	})
}

// partitions returns the walk through the sets of k GPUs in the table, nil where it is not asked, and whether sets that
// are not in it are allowed too. The best score comes first, and with Restricted only the best that the table has for
// the count; of equal ones, those that leave larger partitions free.
func (s *combination) partitions(k int) (w *walk, free bool) {
	asked, inv := s.req.Partition, s.view.Inventory
	policy, table := inv.spec.Partitions.Policy, len(inv.spec.Partitions.Table) > 0
	switch {
	case !s.lead.tabled() || policy == NoPartitionPolicy && asked == nil:
		return nil, true
	case !table:
		// BestEffort chooses freely, among sets whose links carry what is asked: see check.
		return nil, policy != HonorPartitions && (asked == nil || !asked.Restricted)
	}
	best, first := int64(0), true
	for _, p := range inv.sets {
		if bits.OnesCount64(p.mask) == k && (first || p.score > best) {
			best, first = p.score, false
		}
	}
	var list []Keys
	for _, p := range inv.sets {
		switch {
		case bits.OnesCount64(p.mask) != k || p.mask&^s.lead.open != 0,
			asked != nil && asked.Restricted && p.score < best,
			asked != nil && p.bandwidth < asked.Bandwidth:
			continue
		}
		keys := s.lead.group.class.keys(p.mask)
		keys.Score = p.score
		for _, n := range s.view.whole(s.left &^ p.mask) {
			keys.Kept = keys.Kept<<16 | min(n, 1<<16-1) // one of a larger size outweighs all of smaller ones
		}
		list = append(list, keys)
	}
	return s.lead.group.class.listed(list), policy == PreferPartitions && asked == nil
}

// whole counts the partitions of 8, 4 and 2 GPUs of which all are left.
func (inv *Inventory) whole(left uint64) (n [3]int64) {
	for i, size := range sizes() {
		for _, p := range inv.sets {
			if bits.OnesCount64(p.mask) == size && p.mask&^left == 0 {
				n[i]++
			}
		}
	}
	return n
}

// FreePartitions counts the partitions of 8, 4 and 2 GPUs that no pod has a part of; none where the node's label does
// not say that GPUs are given out by its table.
func (v *View) FreePartitions() [3]int64 {
	if r := v.group(GPU); r != nil && v.spec.Partitions.Policy != NoPartitionPolicy {
		return v.whole(v.untouched(r))
	}
	return [3]int64{}
}

// carries reports whether the ring of a set that is not a partition has the bandwidth that a pod asks for.
func (s *combination) carries(k *Keys) bool {
	asked := s.req.Partition
	if asked == nil || asked.Bandwidth == 0 || len(s.view.spec.Partitions.Table) > 0 || !s.lead.tabled() ||
		k.Mask&(k.Mask-1) == 0 {
		return true
	}
	lanes := k.Ring / lane
	return lanes > 0 && s.view.spec.LaneBytes > 0 && (asked.Bandwidth-1)/s.view.spec.LaneBytes < lanes
}
