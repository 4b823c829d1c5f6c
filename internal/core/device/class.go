package device

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// How close two devices are on the PCI tree. A lane between them is worth more than any of these.
const (
	Remote      = 10 // another NUMA node, or unknown (NVML: SYSTEM)
	SameNode    = 20 // (NODE)
	SameRoot    = 30 // one root complex (HOSTBRIDGE)
	SameBridges = 40 // several PCI switches between them (MULTIPLE)
	SameSwitch  = 50 // one PCI switch (SINGLE)

	lane = 100
)

// mostTabled is the number of devices up to which a class has tables of all sets.
const mostTabled = 16

// Classes shares what equal servers have in common. The zero value is ready, nil shares nothing. It is not safe for
// concurrent use: the adapter that owns it holds its lock.
type Classes struct {
	// known has the classes by links, NUMA nodes and places of all devices.
	known map[string]*Class
}

// classOf returns the class of devices with these links, NUMA nodes and places. Equal ones get the same class.
func (c *Classes) classOf(w []int32, nodes []topo.NodeSet, places []int) *Class {
	if c == nil {
		return newClass(w, nodes, places)
	}
	key := binary.AppendUvarint(nil, uint64(len(nodes)))
	for _, x := range w {
		key = binary.AppendVarint(key, int64(x))
	}
	for i, x := range nodes {
		key = binary.AppendVarint(binary.AppendUvarint(key, uint64(x)), int64(places[i]))
	}
	if c.known == nil {
		c.known = map[string]*Class{}
	}
	if c.known[string(key)] == nil {
		c.known[string(key)] = newClass(w, nodes, places)
	}
	return c.known[string(key)]
}

// Class is how the devices of one type are linked and placed in one model of server. It never changes.
type Class struct {
	n     int
	w     []int32        // n × n, symmetric: 100 · lanes + closeness
	nodes []topo.NodeSet // NUMA node by device; 0 = unknown
	// places are equal where devices are connected to one bridge.
	places []int
	// groups are the groups of interchangeable devices; of a class with tables only those of several devices. peers are
	// the same groups with places ignored.
	groups, peers []uint64
	// Below, of classes with tables, by set; nil in others.
	links, levels []int32    // sums over the pairs of a set: of 100 · lanes, and of closeness
	ring          []int32    // the weakest link of the best ring through the set
	best          [3][]int32 // the heaviest 8, 4 and 2 of the set; 0 where it has fewer
	touched       []uint8    // NUMA nodes
	// order has the sets of k devices, better ones first by ring, links, NUMA nodes and levels, then the smaller set.
	order [][]uint16
}

// newClass returns a class, with tables if it has at most mostTabled devices. With 16 devices the tables have 65,536
// sets.
func newClass(w []int32, nodes []topo.NodeSet, places []int) *Class {
	n := len(nodes)
	c := &Class{n: n, w: w, nodes: nodes, places: places}
	c.groups = c.findInterchangeable(places)
	if n > mostTabled {
		return c
	}
	single := func(g uint64) bool { return g&(g-1) == 0 }
	c.groups = slices.DeleteFunc(c.groups, single)
	c.peers = slices.DeleteFunc(c.findInterchangeable(make([]int, n)), single)
	c.sums()
	c.rings()
	for i, k := range sizes() {
		c.best[i] = c.heaviest(k)
	}
	c.order = make([][]uint16, n+1)
	for mask := 1; mask < 1<<n; mask++ {
		k := bits.OnesCount(uint(mask))
		c.order[k] = append(c.order[k], uint16(mask))
	}
	for _, masks := range c.order {
		slices.SortFunc(masks, c.compare)
	}
	return c
}

// sizes are the numbers of devices that what is left over is valued by.
func sizes() [3]int { return [3]int{8, 4, 2} }

// compare is negative if the set a comes before b in order.
func (c *Class) compare(a, b uint16) int {
	return cmp.Or(cmp.Compare(c.ring[b], c.ring[a]), cmp.Compare(c.links[b], c.links[a]),
		cmp.Compare(c.touched[a], c.touched[b]), cmp.Compare(c.levels[b], c.levels[a]), cmp.Compare(a, b))
}

// sums fills in what adds up over pairs.
func (c *Class) sums() {
	c.links, c.levels = make([]int32, 1<<c.n), make([]int32, 1<<c.n)
	c.touched = make([]uint8, 1<<c.n)
	for mask := 1; mask < 1<<c.n; mask++ {
		k := c.sumOf(uint64(mask))
		c.links[mask], c.levels[mask], c.touched[mask] = int32(k.Links), int32(k.Levels), uint8(k.Nodes)
	}
}

// nodesTouched counts NUMA nodes; devices on unknown ones count as one more.
func (c *Class) nodesTouched(mask uint64) int {
	nodes, unknown := topo.NodeSet(0), 0
	for ; mask != 0; mask &= mask - 1 {
		if n := c.nodes[bits.TrailingZeros64(mask)]; n == 0 {
			unknown = 1
		} else {
			nodes |= n
		}
	}
	return nodes.Len() + unknown
}

// rings finds the best ring through every set: paths from its lowest device, by the device in which they end. One
// device has no ring, and 0; the ring of two is their link.
func (c *Class) rings() {
	n := c.n
	c.ring = make([]int32, 1<<n)
	path := make([]int32, n<<n) // entry mask·n + end: the weakest link of the best path
	for mask := 1; mask < 1<<n; mask++ {
		first := bits.TrailingZeros(uint(mask))
		if mask&(mask-1) == 0 {
			path[mask*n+first] = 1<<31 - 1
			continue
		}
		for ends := mask & (mask - 1); ends != 0; ends &= ends - 1 {
			end := bits.TrailingZeros(uint(ends))
			rest := mask &^ (1 << end)
			before := rest & (rest - 1)
			if before == 0 {
				before = rest // the path begins here
			}
			weakest := int32(0)
			for ; before != 0; before &= before - 1 {
				p := bits.TrailingZeros(uint(before))
				weakest = max(weakest, min(path[rest*n+p], c.w[p*n+end]))
			}
			path[mask*n+end] = weakest
			c.ring[mask] = max(c.ring[mask], min(weakest, c.w[end*n+first]))
		}
	}
}

// heaviest is the weight of the heaviest k devices of every set.
func (c *Class) heaviest(k int) []int32 {
	best := make([]int32, 1<<c.n)
	for mask := 1; mask < 1<<c.n; mask++ {
		switch size := bits.OnesCount(uint(mask)); {
		case size == k:
			best[mask] = c.links[mask] + c.levels[mask]
		case size > k:
			for m := mask; m != 0; m &= m - 1 {
				best[mask] = max(best[mask], best[mask&^(m&-m)])
			}
		}
	}
	return best
}

// Demand is how often 8, 4 and 2 whole devices are asked for, in relation to each other. The zero value is equally
// often.
type Demand [3]int64

// residual values what is left over: for each size the heaviest set of it, by demand; 0 in a class without tables.
func (c *Class) residual(left uint64, q Demand) (r int64) {
	for i := range c.best {
		if c.best[i] != nil {
			r += q[i] * int64(c.best[i][left])
		}
	}
	return r
}

// keys are the keys of a set that a class knows. Without tables the ring is that of any order: the weakest link of all.
func (c *Class) keys(mask uint64) Keys {
	if c.order == nil {
		return c.sumOf(mask)
	}
	return Keys{
		Ring: int64(c.ring[mask]), Links: int64(c.links[mask]), Nodes: int64(c.touched[mask]),
		Levels: int64(c.levels[mask]), Mask: mask,
	}
}

// sumOf computes keys of a set without tables.
func (c *Class) sumOf(mask uint64) Keys {
	k := Keys{Mask: mask, Nodes: int64(c.nodesTouched(mask))}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		for o := m & (m - 1); o != 0; o &= o - 1 {
			w := int64(c.w[i*c.n+bits.TrailingZeros64(o)])
			if k.Links, k.Levels = k.Links+w-w%lane, k.Levels+w%lane; k.Ring == 0 || w < k.Ring {
				k.Ring = w
			}
		}
	}
	return k
}

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
