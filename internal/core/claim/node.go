package claim

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Device is a device of a ResourceSlice that one node has.
type Device struct {
	// Pool is DRIVER/POOL.
	Pool string
	// Sort is equal for devices that a request is not expected to distinguish. Devices of two drivers differ in it.
	Sort string
	// Nodes are the NUMA nodes that it is connected to; 0 = unknown.
	Nodes topo.NodeSet
	// Root is the PCIe root complex that it is connected to; "" = unknown.
	Root string
	// Card is equal for devices that share counters, as partitions of a card do; "" for one that shares none.
	Card string
	// Taken: it is allocated, as a whole or in part.
	Taken bool
	// Counted: it uses up counters.
	Counted bool
}

// Node is the devices of a node, in the order in which the allocator tries them.
type Node struct {
	Devices []Device
	// Links knows how devices are linked; nil knows of none.
	Links Links
}

// Links knows how devices of a node are linked.
type Links interface {
	// Closeness returns how close two devices are, in the units of package device; 0 = unknown.
	Closeness(a, b int) int64
}

// LinksFunc is a function as Links.
type LinksFunc func(a, b int) int64

// Closeness calls f.
func (f LinksFunc) Closeness(a, b int) int64 { return f(a, b) }

// closeness is that of Links, or else what the places of two devices tell.
func (n *Node) closeness(a, b int) int64 {
	if n.Links != nil {
		if known := n.Links.Closeness(a, b); known > 0 {
			return known
		}
	}
	x, y := &n.Devices[a], &n.Devices[b]
	switch {
	case x.Root != "" && x.Root == y.Root:
		return device.SameRoot
	case x.Nodes != 0 && x.Nodes == y.Nodes:
		return device.SameNode
	}
	return device.Remote
}

// Pick is a device of an answer.
type Pick struct {
	// Device is its index in the node, -1 for a device that is not the node's own.
	Device int
	// All: the request asks for all devices that it selects.
	All bool
	// Shared: others may get a part of the device too.
	Shared bool
}

// Answer is what the allocator gives to the claims of a pod.
type Answer []Pick

// nodes are the NUMA nodes of an answer, as far as they are known.
func (n *Node) nodes(a Answer) (nodes topo.NodeSet) {
	for _, p := range a {
		if p.Device >= 0 {
			nodes |= n.Devices[p.Device].Nodes
		}
	}
	return nodes
}

// free counts the devices of an answer by sort that others of their sort could replace.
func (n *Node) free(a Answer) map[string]int {
	count := map[string]int{}
	for _, p := range a {
		if p.Device >= 0 && !p.All && !p.Shared && !n.Devices[p.Device].Taken {
			count[n.Devices[p.Device].Sort]++
		}
	}
	return count
}

// knowsPlaces reports whether the places of devices that could be in an answer differ for all that is known.
func (n *Node) knowsPlaces(a Answer) bool {
	sorts := map[string]bool{}
	for _, p := range a {
		if p.Device >= 0 && !p.All {
			sorts[n.Devices[p.Device].Sort] = true
		}
	}
	for i := range n.Devices {
		d := &n.Devices[i]
		if sorts[d.Sort] && (d.Nodes != 0 || d.Root != "" || d.Card != "") {
			return true
		}
	}
	return false
}

// Fewest is the number of NUMA nodes that the devices of an answer would need if no device were allocated.
func (n *Node) Fewest(a Answer) int {
	sorts, universe := n.free(a), topo.NodeSet(0)
	for i := range n.Devices {
		if sorts[n.Devices[i].Sort] > 0 {
			universe |= n.Devices[i].Nodes
		}
	}
	for k := 1; k < universe.Len(); k++ {
		for nodes := range universe.Subsets(k) {
			left := len(sorts)
			for sort, count := range sorts {
				has := 0
				for i := range n.Devices {
					if d := &n.Devices[i]; d.Sort == sort && d.Nodes.Within(nodes) {
						has++
					}
				}
				if has >= count {
					left--
				}
			}
			if left == 0 {
				return k
			}
		}
	}
	return max(universe.Len(), 1)
}

// hideable reports which devices may be hidden after some answers, see the package.
func (n *Node) hideable(answers ...Answer) []bool {
	pools, all := map[string]bool{}, map[int]bool{}
	for _, a := range answers {
		for _, p := range a {
			if p.Device >= 0 {
				pools[n.Devices[p.Device].Pool] = true
				all[p.Device] = all[p.Device] || p.All
			}
		}
	}
	hideable := make([]bool, len(n.Devices))
	for i := range n.Devices {
		d := &n.Devices[i]
		hideable[i] = pools[d.Pool] && !all[i] && !(d.Taken && d.Counted)
	}
	return hideable
}

// Hidden returns the devices that may be hidden, as Choose does it, of those that hide selects.
func (n *Node) Hidden(hide func(i int) bool, answers ...Answer) []bool {
	hidden := n.hideable(answers...)
	for i := range hidden {
		hidden[i] = hidden[i] && hide(i)
	}
	return hidden
}

// sorted returns the indexes of the devices of an answer, ascending.
func (a Answer) sorted() []int {
	var list []int
	for _, p := range a {
		if p.Device >= 0 {
			list = append(list, p.Device)
		}
	}
	slices.Sort(list)
	return list
}
