package device

import "cmp"

// Keys order the sets of devices that serve a request; the first difference decides.
type Keys struct {
	Score int64 // of its partition, higher is better; 0 without a table
	Kept  int64 // larger partitions that remain free, counted by size from the largest on; more is better
	// The eight keys of a set.
	Ring      int64  // 1: the weakest link of the best ring, more is better
	Links     int64  // 2: the sum of 100 · lanes, more is better
	NICs      int64  // 3: the distance of devices of other types, less is better
	Nodes     int64  // 4: NUMA nodes, less is better; an unknown one counts
	Levels    int64  // 5: the sum of closeness, more is better
	Worth     int64  // of shares: Options.Worth, more is better
	Spare     int64  // of shares: permille of the devices that are free now, less is better
	Residual  int64  // 6: what is left free, valued by demand, more is better
	LinksLeft int64  // 7: the sum of 100 · lanes of what is left free, more is better
	Mask      uint64 // 8: the set, by place of its devices among those of their type; less is better
}

// Compare is negative where k is better than o.
func (k *Keys) Compare(o *Keys) int {
	if c := cmp.Or(
		cmp.Compare(o.Score, k.Score), cmp.Compare(o.Kept, k.Kept), cmp.Compare(o.Ring, k.Ring),
		cmp.Compare(o.Links, k.Links), cmp.Compare(k.NICs, o.NICs), cmp.Compare(k.Nodes, o.Nodes),
		cmp.Compare(o.Levels, k.Levels), cmp.Compare(o.Worth, k.Worth), cmp.Compare(k.Spare, o.Spare),
	); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(o.Residual, k.Residual), cmp.Compare(o.LinksLeft, k.LinksLeft),
		cmp.Compare(k.Mask, o.Mask))
}

// band reports whether two sets are equal in what is known of them without a look at the account; fine where no other
// type takes part, so that their NUMA nodes and closeness come before all that is looked at.
func (k *Keys) band(o *Keys, fine bool) bool {
	return k.Score == o.Score && k.Kept == o.Kept && k.Ring == o.Ring && k.Links == o.Links &&
		(!fine || k.Nodes == o.Nodes && k.Levels == o.Levels)
}
