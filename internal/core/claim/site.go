package claim

import "github.com/tenon-project/tenon/internal/core/topo"

// NodesOf returns the NUMA nodes of a device by all that says so: the attributes of its driver, each with the kernel's
// ids in the order of preference, and the card that it is, 0 for unknown. It is 0 where they say nothing, or differ. m
// is nil where nothing is known of the machine.
func NodesOf(m *topo.Machine, attributes [][]int, card topo.NodeSet) topo.NodeSet {
	nodes := card
	for _, ids := range attributes {
		switch one := nodeOf(m, ids); {
		case one == 0:
		case nodes == 0:
			nodes = one
		case nodes != one:
			return 0
		}
	}
	return nodes
}

// nodeOf returns the first NUMA node of a list that has CPUs, or else the first one: the memory of a GPU may be a NUMA
// node of its own.
func nodeOf(m *topo.Machine, ids []int) topo.NodeSet {
	first := topo.NodeSet(0)
	for _, id := range ids {
		n, known := topo.NUMA(id), id >= 0
		if m != nil {
			n, known = m.NUMAByID(id)
		}
		if !known || int(n) >= topo.MaxNodes {
			continue
		}
		one := topo.NodeSet(1) << n
		if m == nil || one.Within(m.NodesWithCPUs()) {
			return one
		}
		if first == 0 {
			first = one
		}
	}
	return first
}
