package device

import (
	"math/bits"
	"slices"
)

// Bounds of classes without tables.
const (
	mostSets  = 200_000 // sets up to which all are looked at
	mostRests = 20_000  // sets of what is left over up to which its value is exact
	mostPaths = 1 << 16 // states of the search for a ring
)

// twins sorts devices that nothing distinguishes, logical GPUs of one card, say: same place, same links to each other
// device. Sets that differ in them are one set.
func (c *Class) twins(places []int) []uint64 {
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

// groupsOf are the twins of open; those in apart are each by themselves.
func (c *Class) groupsOf(open, apart uint64) []uint64 {
	var list []uint64
	for _, g := range c.groups {
		if together := g & open &^ apart; together != 0 {
			list = append(list, together)
		}
		for m := g & open & apart; m != 0; m &= m - 1 {
			list = append(list, m&-m)
		}
	}
	return list
}

// ways counts the sets of k devices, most+1 for more than most.
func ways(groups []uint64, k, most int) int {
	count := make([]int, k+1)
	count[0] = 1
	for _, g := range groups {
		for n := k; n > 0; n-- {
			for x := 1; x <= min(n, bits.OnesCount64(g)); x++ {
				count[n] = min(count[n]+count[n-x], most+1)
			}
		}
	}
	return count[k]
}

// many is the walk through sets of k devices of open, for a class without tables. Where there are more than mostSets,
// it has those that growing from each device and exchanging pairs find in open and in each of parts.
func (c *Class) many(open, apart uint64, k int, parts ...uint64) *walk {
	w := &walk{class: c, listed: true}
	if k > bits.OnesCount64(open) {
		return w
	}
	groups := c.groupsOf(open, apart)
	var masks []uint64
	if w.approximate = ways(groups, k, mostSets) > mostSets; !w.approximate {
		masks = subsets(groups, k, 0, nil)
	} else {
		for _, part := range append(parts, open) {
			best := uint64(0)
			for _, one := range singles(part & open) {
				if grown := c.grow(part&open, one, k); grown != 0 {
					masks = append(masks, grown)
					if best == 0 || c.total(grown) > c.total(best) {
						best = grown
					}
				}
			}
			if best != 0 {
				masks = append(masks, c.exchange(part&open, best))
			}
		}
		slices.Sort(masks)
		masks = slices.Compact(masks)
	}
	for _, size := range sizes() {
		w.approximate = w.approximate || ways(groups, size, mostRests) > mostRests
	}
	for _, mask := range masks {
		keys := Keys{Mask: mask, Nodes: int64(c.nodesTouched(mask)), Ring: c.bound(mask)}
		keys.Links, keys.Levels = c.sumOf(mask)
		w.list = append(w.list, keys)
	}
	slices.SortFunc(w.list, compareStatic)
	w.doubt = c.settle(w.list, groups)
	return w
}

// subsets appends the sets of k devices with the lowest of each group.
func subsets(groups []uint64, k int, mask uint64, list []uint64) []uint64 {
	if k == 0 {
		return append(list, mask)
	}
	if len(groups) == 0 {
		return list
	}
	rest := groups[0]
	for x := 0; ; x++ {
		list = subsets(groups[1:], k-x, mask, list)
		if rest == 0 || x == k {
			return list
		}
		mask |= rest & -rest
		rest &= rest - 1
	}
}

// settle replaces bounds of rings by the rings, of all sets that can be among the best or that cost little, and sorts
// these first. It returns their number: the order of those after them follows bounds.
func (c *Class) settle(list []Keys, groups []uint64) int {
	const steps = 1 << 22
	best, work, done := int64(-1), 0, len(list)
	for i := range list {
		if list[i].Ring < best && work > steps {
			done = i
			break
		}
		ring, cost := c.ringOf(list[i].Mask, groups)
		list[i].Ring, work = ring, work+cost
		best = max(best, ring)
	}
	slices.SortFunc(list[:done], compareStatic)
	if done < len(list) { // those that the bounds of the others may exceed are not in order
		limit := list[done].Ring
		if i := slices.IndexFunc(list[:done], func(k Keys) bool { return k.Ring <= limit }); i >= 0 {
			return i
		}
	}
	return done
}

// grow adds the device with the heaviest links to a set until it has k of open; 0 where there are too few.
func (c *Class) grow(open, set uint64, k int) uint64 {
	if bits.OnesCount64(open) < k {
		return 0
	}
	for bits.OnesCount64(set) < k {
		best, most := uint64(0), int64(-1)
		for m := open &^ set; m != 0; m &= m - 1 {
			if w := c.weight(m&-m, set); w > most {
				best, most = m&-m, w
			}
		}
		set |= best
	}
	return set
}

// exchange swaps one device of a set, or two where there are not too many ways, for others of open while that makes it
// heavier.
func (c *Class) exchange(open, set uint64) uint64 {
	for {
		better, most := set, c.total(set)
		k, rest := bits.OnesCount64(set), bits.OnesCount64(open&^set)
		for size := 1; size == 1 || size == 2 && k*k*rest*rest <= mostRests; size++ {
			for _, out := range subsets(singles(set), size, 0, nil) {
				for _, in := range subsets(singles(open&^set), size, 0, nil) {
					if w := c.total(set&^out | in); w > most {
						better, most = set&^out|in, w
					}
				}
			}
		}
		if better == set {
			return set
		}
		set = better
	}
}

// singles are the devices of a set, one by one.
func singles(set uint64) (list []uint64) {
	for ; set != 0; set &= set - 1 {
		list = append(list, set&-set)
	}
	return list
}

// total is the sum of the links of a set.
func (c *Class) total(set uint64) int64 {
	links, levels := c.sumOf(set)
	return links + levels
}

// weight is the sum of the links from one device to a set.
func (c *Class) weight(one, set uint64) int64 {
	sum, i := int64(0), bits.TrailingZeros64(one)
	for ; set != 0; set &= set - 1 {
		sum += int64(c.w[i*c.n+bits.TrailingZeros64(set)])
	}
	return sum
}

// keys are the keys of a set that a class knows.
func (c *Class) keys(mask uint64) Keys {
	if c.order != nil {
		return Keys{
			Ring: int64(c.ring[mask]), Links: int64(c.links[mask]), Nodes: int64(c.touched[mask]),
			Levels: int64(c.levels[mask]), Mask: mask,
		}
	}
	k := Keys{Mask: mask, Nodes: int64(c.nodesTouched(mask))}
	k.Links, k.Levels = c.sumOf(mask)
	k.Ring, _ = c.ringOf(mask, c.groups)
	return k
}

// residualOfMany is residual for a class without tables.
func (c *Class) residualOfMany(left uint64, q Demand) int64 {
	groups, r := c.groupsOf(left, 0), int64(0)
	for i, size := range sizes() {
		if bits.OnesCount64(left) < size || q[i] == 0 {
			continue
		}
		most := int64(0)
		if ways(groups, size, mostRests) <= mostRests {
			for _, mask := range subsets(groups, size, 0, nil) {
				most = max(most, c.total(mask))
			}
		} else {
			for _, one := range singles(left) {
				most = max(most, c.total(c.grow(left, one, size)))
			}
		}
		r += q[i] * most
	}
	return r
}
