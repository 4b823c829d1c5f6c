package device

import (
	"math/bits"
	"slices"
)

// tabled reports whether whole GPUs are asked for, which partitions are about: shares and MIG devices never use them.
func (p *pick) tabled() bool {
	return p.group.kind == GPU && !slices.ContainsFunc(p.bundles, func(b bundle) bool {
		return slices.ContainsFunc(b, func(p *Part) bool { return !p.Need.Whole || p.Need.Profile != "" })
	})
}

// partitions returns the walk through the sets of k GPUs in the table, nil where it is not asked, and whether sets that
// are not in it are allowed too. The best score comes first, and with Restricted only the best that the table has for
// the count; of equal ones, those that leave larger partitions free.
func (s *search) partitions(k int) (w *walk, free bool) {
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
func (s *search) carries(k *Keys) bool {
	asked := s.req.Partition
	if asked == nil || asked.Bandwidth == 0 || len(s.view.spec.Partitions.Table) > 0 || !s.lead.tabled() ||
		k.Mask&(k.Mask-1) == 0 {
		return true
	}
	lanes := k.Ring / lane
	return lanes > 0 && s.view.spec.LaneBytes > 0 && (asked.Bandwidth-1)/s.view.spec.LaneBytes < lanes
}
