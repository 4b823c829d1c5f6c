package device

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// mostSets is the number of sets that are looked at in a class without tables.
const mostSets = 50_000

// findInterchangeable groups the devices that nothing distinguishes, such as logical GPUs of one card: they are in the
// same place and have the same links to each other device. Sets that differ only within such groups are equivalent.
func (c *Class) findInterchangeable(places []int) []uint64 {
	var groups []uint64
	for i := range c.n {
		at := slices.IndexFunc(groups, func(g uint64) bool { return c.alike(bits.TrailingZeros64(g), i, places) })
		if at < 0 {
			groups = append(groups, 1<<i)
		} else {
			groups[at] |= 1 << i
		}
	}
	return groups
}

// alike reports whether two devices are on one NUMA node, in one place, and have equal links to every other device.
func (c *Class) alike(i, j int, places []int) bool {
	if c.nodes[i] != c.nodes[j] || places[i] != places[j] {
		return false
	}
	for o := range c.n {
		if o != i && o != j && c.w[i*c.n+o] != c.w[j*c.n+o] {
			return false
		}
	}
	return true
}

// many is the walk through sets of k devices of open, all of them in one of scopes where there are some, for a class
// without tables. Interchangeable devices count as one, except those in apart. Where there are mostSets of a scope, it
// has those of each device and the ones that are closest to it.
func (c *Class) many(open, apart uint64, k int, scopes ...uint64) *walk {
	if len(scopes) == 0 {
		scopes = []uint64{open}
	}
	var masks, groups []uint64
	for _, g := range c.groups {
		if g &^= apart; g != 0 {
			groups = append(groups, g)
		}
	}
	for m := apart; m != 0; m &= m - 1 {
		groups = append(groups, m&-m)
	}
	approximate := false
	for _, scope := range scopes {
		scope &= open
		list := subsets(nil, mostSets, 0, k, groups, scope)
		if len(list) == mostSets {
			list, approximate = nil, true
			for m := scope; m != 0; m &= m - 1 {
				c.sortByDistance(groups, bits.TrailingZeros64(m))
				list = subsets(list, len(list)+mostSets/MaxDevices, 0, k, groups, scope)
			}
		}
		masks = append(masks, list...)
	}
	slices.Sort(masks)
	var list []Keys
	for _, mask := range slices.Compact(masks) {
		list = append(list, c.keys(mask))
	}
	w := c.listed(list)
	w.approximate = approximate
	return w
}

// subsets appends to list the sets of mask and k devices of open, as many as possible of the first groups first, and of
// each group the lowest. It ends at most sets.
func subsets(list []uint64, most int, mask uint64, k int, groups []uint64, open uint64) []uint64 {
	switch {
	case len(list) == most || bits.OnesCount64(open) < k:
		return list
	case k == 0:
		return append(list, mask)
	}
	if group := groups[0] & open; group != 0 {
		one := group & -group
		list = subsets(list, most, mask|one, k-1, groups, open&^one)
		open &^= group
	}
	return subsets(list, most, mask, k, groups[1:], open)
}

// sortByDistance puts the group of a device first, then those with the best links to it, then heavier ones.
func (c *Class) sortByDistance(groups []uint64, device int) {
	link := func(group uint64) int32 {
		if group>>device&1 != 0 {
			return math.MaxInt32
		}
		return c.w[device*c.n+bits.TrailingZeros64(group)]
	}
	slices.SortStableFunc(groups, func(a, b uint64) int {
		left, right := c.keys(a), c.keys(b)
		return cmp.Or(cmp.Compare(link(b), link(a)), left.Compare(&right))
	})
}
