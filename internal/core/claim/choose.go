package claim

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

const (
	// mostSets bounds the sets of devices that are compared: all of 8 out of 16.
	mostSets = 1 << 14
	// mostAsks bounds how often the allocator is asked for a better answer.
	mostAsks = 8
	// mostNodeSets bounds the sets of NUMA nodes that are looked at: all of 8 nodes, single ones and pairs of 20.
	mostNodeSets = 256
)

// Rest is what else a pod needs on the node.
type Rest struct {
	// Nodes are the NUMA nodes that it may use; Given those of devices that it has already.
	Nodes, Given topo.NodeSet
	// Room says where it fits; nil: wherever the devices are.
	Room Room
	// Required: it must fit.
	Required bool
	// Fixed: no other devices may be proposed, see the package.
	Fixed bool
}

// Room knows where the rest of a pod fits.
type Room interface {
	// Fits reports whether it can be had with devices on the given NUMA nodes.
	Fits(topo.NodeSet) bool
}

// RoomFunc is a function as Room.
type RoomFunc func(topo.NodeSet) bool

// Fits calls f.
func (f RoomFunc) Fits(nodes topo.NodeSet) bool { return f(nodes) }

// Ask asks the allocator without some devices of the node. ok is false if it finds nothing, or only an answer with a
// later alternative.
type Ask func(hidden []bool) (a Answer, ok bool)

// Choice is what Choose has chosen.
type Choice struct {
	// Asked is the number of the answer: 0 for the first one, 1 for that of the first Ask, and so on.
	Asked int
	// Nodes are the NUMA nodes of the devices, with those of Rest.Given.
	Nodes topo.NodeSet
	// Aligned: the rest of the pod fits with them.
	Aligned bool
}

// Choose returns the best answer for a pod that it finds. first is the answer about all devices.
func Choose(n *Node, rest *Rest, first Answer, ask Ask) Choice {
	c := newChooser(n, rest, first, ask)
	if rest.Fixed || !n.knowsPlaces(first) {
		return c.best
	}
	c.tryDevices()
	c.tryNodes(mostAsks)
	if rest.Required && !c.best.Aligned { // Align may have found one
		c.tryNodes(2 * mostNodeSets)
	}
	return c.best
}

// Align returns the first answer if the rest of the pod fits with it, or one where it does. It asks only if the first
// one does not.
func Align(n *Node, rest *Rest, first Answer, ask Ask) Choice {
	c := newChooser(n, rest, first, ask)
	if !c.best.Aligned && !rest.Fixed {
		c.tryNodes(2 * mostNodeSets)
	}
	return c.best
}

// key orders answers, see the package. Of links more is better, of the others less. unknown are the devices without a
// known NUMA node of sorts where others have one.
type key struct {
	span, unknown      int
	least, links, wide int64
	broken, left       int
}

// unaligned is the span of an answer with which the rest of the pod does not fit.
const unaligned = math.MaxInt

func (k key) isAligned() bool { return k.span < unaligned }

func (k key) compare(o key) int {
	if k.isAligned() != o.isAligned() {
		return cmp.Compare(k.span, o.span)
	}
	return cmp.Or(cmp.Compare(k.unknown, o.unknown), cmp.Compare(k.span, o.span), cmp.Compare(o.least, k.least),
		cmp.Compare(o.links, k.links), cmp.Compare(o.wide, k.wide), cmp.Compare(k.broken, o.broken),
		cmp.Compare(k.left, o.left))
}

// chooser looks for the best answer.
type chooser struct {
	n    *Node
	rest *Rest
	ask  Ask
	// answers are all that the allocator gave, asked is how often it was asked.
	answers []Answer
	asked   int
	// placed has the sorts of which a device has a known NUMA node.
	placed map[string]bool
	// sets are the sets of NUMA nodes with which the rest fits, the smaller ones first.
	sets []topo.NodeSet
	best Choice
	key  key // of best
}

func newChooser(n *Node, rest *Rest, first Answer, ask Ask) *chooser {
	c := &chooser{n: n, rest: rest, ask: ask, answers: []Answer{first}, placed: map[string]bool{}}
	for i := range n.Devices {
		d := &n.Devices[i]
		c.placed[d.Sort] = c.placed[d.Sort] || d.Nodes != 0
	}
	c.sets = c.nodeSets()
	c.key = c.keyOf(first)
	c.best = c.choice(first, c.key)
	return c
}

// choice returns an answer as a choice.
func (c *chooser) choice(a Answer, k key) Choice {
	return Choice{Asked: c.asked, Nodes: c.n.nodes(a) | c.rest.Given, Aligned: k.isAligned()}
}

// nodeSets returns the sets of NUMA nodes with which the rest fits.
func (c *chooser) nodeSets() (sets []topo.NodeSet) {
	universe := c.rest.Nodes | c.rest.Given
	for i := range c.n.Devices {
		universe |= c.n.Devices[i].Nodes
	}
	looked := 0
	for k := range universe.Len() {
		if looked+universe.Choices(k+1, mostNodeSets) > mostNodeSets {
			break
		}
		for nodes := range universe.Subsets(k + 1) {
			looked++
			if c.rest.Given.Within(nodes) && (c.rest.Room == nil || c.rest.Room.Fits(nodes)) {
				sets = append(sets, nodes)
			}
		}
	}
	return sets
}

// span returns the number of NUMA nodes that hold devices on some of them and the rest of the pod.
func (c *chooser) span(nodes topo.NodeSet) int {
	nodes |= c.rest.Given
	if c.rest.Room == nil {
		return nodes.Len()
	}
	for _, s := range c.sets {
		if nodes.Within(s) {
			return s.Len()
		}
	}
	if nodes == 0 && !c.rest.Required {
		return 0
	}
	return unaligned
}

// keyOf returns the key of an answer.
func (c *chooser) keyOf(a Answer) key {
	return c.keyOfDevices(c.n.nodes(a), a.sorted())
}

// keyOfDevices returns the key of devices on NUMA nodes.
func (c *chooser) keyOfDevices(nodes topo.NodeSet, devices []int) key {
	k := key{span: c.span(nodes), least: math.MaxInt64}
	for i, a := range devices {
		if d := &c.n.Devices[a]; d.Nodes == 0 && c.placed[d.Sort] {
			k.unknown++
		}
		for _, b := range devices[i+1:] {
			link := c.n.closeness(a, b)
			if c.n.Devices[a].Sort != c.n.Devices[b].Sort {
				k.wide += link
				continue
			}
			k.least = min(k.least, link)
			k.links += link
		}
	}
	k.broken, k.left = c.n.loss(devices)
	return k
}

// loss returns what devices break up that no other claim has a part of, and how many devices remain free there: of
// their cards, root complexes and NUMA nodes, a card counting more than all root complexes, and one of these more than
// all NUMA nodes.
func (n *Node) loss(devices []int) (broken, left int) {
	groups := [...]struct {
		weight int
		same   func(a, b *Device) bool
	}{
		{10_000, func(a, b *Device) bool { return a.Card != "" && a.Card == b.Card && a.Pool == b.Pool }},
		{100, func(a, b *Device) bool { return a.Root != "" && a.Root == b.Root && a.Sort == b.Sort }},
		{1, func(a, b *Device) bool { return a.Nodes != 0 && a.Nodes == b.Nodes && a.Sort == b.Sort }},
	}
	for _, g := range groups {
		for at, i := range devices {
			d := &n.Devices[i]
			if slices.ContainsFunc(devices[:at], func(j int) bool { return g.same(d, &n.Devices[j]) }) {
				continue // the group was counted
			}
			whole, remain := true, 0
			for j := range n.Devices {
				if other := &n.Devices[j]; !g.same(d, other) {
					continue
				} else if other.Taken {
					whole = false
				} else if !slices.Contains(devices, j) {
					remain++
				}
			}
			left += remain
			if whole && remain > 0 {
				broken += g.weight
			}
		}
	}
	return broken, left
}

// take asks for an answer and keeps it if it is better than the best one, whose span may not be more than most.
func (c *chooser) take(hidden []bool, most int) (better bool) {
	a, ok := c.ask(hidden)
	c.asked++
	if !ok {
		return false
	}
	c.answers = append(c.answers, a)
	k := c.keyOf(a)
	if k.span > most || k.compare(c.key) >= 0 {
		return false
	}
	c.key, c.best = k, c.choice(a, k)
	return true
}

// proposal is a set of devices that may be better.
type proposal struct {
	key     key
	devices []int
}

// tryDevices proposes sets of devices like those of the first answer, the best ones first.
func (c *chooser) tryDevices() {
	for _, p := range c.proposals() {
		if c.asked == mostAsks/2 || p.key.compare(c.key) >= 0 {
			return
		}
		kept := map[int]bool{}
		for _, i := range p.devices {
			kept[i] = true
		}
		if c.take(c.n.Hidden(func(i int) bool { return !kept[i] }, c.answers...), unaligned) {
			return
		}
	}
}

// proposals returns the best sets of devices; nil where there are too many.
func (c *chooser) proposals() (best []proposal) {
	first := c.answers[0]
	counts := c.n.free(first)
	var fixed []int // devices of the answer that no other may replace
	for _, p := range first {
		if p.Device >= 0 && (p.All || p.Shared || c.n.Devices[p.Device].Taken) {
			fixed = append(fixed, p.Device)
		}
	}
	sets := [][]int{fixed}
	for _, sort := range slices.Sorted(maps.Keys(counts)) {
		var free []int
		for i := range c.n.Devices {
			if d := &c.n.Devices[i]; d.Sort == sort && !d.Taken && !slices.Contains(fixed, i) {
				free = append(free, i)
			}
		}
		sets = extend(sets, free, counts[sort])
		if len(sets) > mostSets {
			return nil
		}
	}
	for _, set := range sets {
		slices.Sort(set)
		nodes := topo.NodeSet(0)
		for _, i := range set {
			nodes |= c.n.Devices[i].Nodes
		}
		p := proposal{c.keyOfDevices(nodes, set), set}
		at, _ := slices.BinarySearchFunc(best, p, func(a, b proposal) int {
			return cmp.Or(a.key.compare(b.key), slices.Compare(a.devices, b.devices))
		})
		if best = slices.Insert(best, at, p); len(best) > mostAsks/2 {
			best = best[:mostAsks/2]
		}
	}
	return best
}

// extend returns each set with k more of some devices, in every way; more than mostSets where there are more.
func extend(sets [][]int, devices []int, k int) (out [][]int) {
	var choose func(set []int, from, left int)
	choose = func(set []int, from, left int) {
		if left == 0 {
			out = append(out, slices.Clone(set))
			return
		}
		for i := from; i+left <= len(devices) && len(out) <= mostSets; i++ {
			choose(append(set, devices[i]), i+1, left-1)
		}
	}
	for _, set := range sets {
		choose(slices.Clone(set), 0, k)
	}
	return out
}

// tryNodes hides the devices outside of sets of NUMA nodes, the smaller sets first, until the answer keeps to one. It
// first hides devices of unknown NUMA nodes too. asks bounds how often the allocator was asked.
func (c *chooser) tryNodes(asks int) {
	for _, nodes := range c.sets {
		if c.key.unknown == 0 && nodes.Len() >= c.key.span {
			return
		}
		for _, unknown := range [...]bool{true, false} {
			for pools := -1; c.asked < asks; {
				hideable := c.n.hideable(c.answers...)
				count := countTrue(hideable)
				if count == pools {
					break
				}
				pools = count
				anyUnknown := false
				hidden := c.n.Hidden(func(i int) bool {
					d := &c.n.Devices[i]
					anyUnknown = anyUnknown || d.Nodes == 0 && c.placed[d.Sort]
					return d.Nodes == 0 && unknown && c.placed[d.Sort] || !d.Nodes.Within(nodes)
				}, c.answers...)
				if !unknown && !anyUnknown {
					break // it was asked already
				}
				// An answer with devices of other pools shows that these are valid: they are narrowed next.
				if c.take(hidden, nodes.Len()) {
					return
				}
			}
		}
	}
}

func countTrue(list []bool) (n int) {
	for _, set := range list {
		if set {
			n++
		}
	}
	return n
}
