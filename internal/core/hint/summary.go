package hint

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// Resource is what a machine has of one resource that the CPU manager or the device manager counts. Every unit belongs
// to one NUMA node or to none: of other resources, build the lists.
type Resource struct {
	// Walked are the nodes whose subsets the provider walks: for CPUs those with CPUs; for devices those that host one
	// of them, and all nodes before Kubernetes 1.36. Invariant: nodes with any capacity are walked.
	Walked topo.NodeSet
	// Capacity counts all units by node: reserved, used and unhealthy ones too.
	Capacity []int64
}

// Ask is a request of one resource.
type Ask struct {
	// Resource is the index in the Capacity's resources.
	Resource int
	// Amount in units; a resource of which 0 is asked takes no part.
	Amount int64
}

// Request is what one merge is about, of a pod that can use nothing again that it has. Every resource occurs at most
// once in Asks; with the types of Memory there are at most 16, and each is walked on WalkNodes nodes at the most.
type Request struct {
	Asks []Ask
	// Memory are the bytes by type, 0 = the type is not asked for; nil = the memory manager takes no part.
	Memory []int64
}

// maxAmount bounds every capacity and free amount, 2^56 bytes or units on one node, so that no sum overflows.
const maxAmount = 1 << 56

// Capacity is what a machine has under one kubelet, prepared for counting. It is immutable and may be shared by all
// equal machines.
type Capacity struct {
	rule      Rule
	resources []stock
	memory    []stock // by type; every node is walked
}

// stock is the capacity of one resource on NUMA nodes.
type stock struct {
	walked topo.NodeSet
	// most[k] is the largest capacity of k walked nodes.
	most   []int64
	byNode []int64
	// hosts are the nodes with any capacity.
	hosts topo.NodeSet
}

// newStock returns a stock. walked are the nodes of which the resource's manager tries combinations.
func newStock(walked topo.NodeSet, capacity []int64) stock {
	s := stock{walked: walked, most: []int64{0}, byNode: make([]int64, len(capacity))}
	for i, n := range capacity {
		if s.byNode[i] = clamp(n, maxAmount); n > 0 {
			s.hosts |= 1 << i
		}
	}
	var own []int64
	for i := range walked.All() {
		own = append(own, s.byNode[i])
	}
	slices.Sort(own)
	for k := range own {
		s.most = append(s.most, s.most[k]+own[len(own)-1-k])
	}
	return s
}

// least is the smallest number of walked nodes with the capacity for amount: all of them if nothing suffices.
func (s *stock) least(amount int64) int {
	n := len(s.most) - 1
	for k := 1; k < n; k++ {
		if s.most[k] >= amount {
			return k
		}
	}
	return n
}

// NewCapacity prepares a machine. memory are the allocatable bytes by type and node, nil = the memory manager never
// takes part. Negative amounts count nothing; amounts above 2^56 count as 2^56.
func NewCapacity(rule Rule, resources []Resource, memory [][]int64) *Capacity {
	c := &Capacity{rule: rule}
	for _, r := range resources {
		c.resources = append(c.resources, newStock(r.Walked, r.Capacity))
	}
	for _, byNode := range memory {
		c.memory = append(c.memory, newStock(topo.FirstNodes(rule.Nodes), byNode))
	}
	return c
}

// Summary is what is free on one machine: its counters answer a request without hint lists. Fill it once per state;
// then any number of goroutines may ask it.
type Summary struct {
	c      *Capacity
	free   [][]int64 // by resource and node; Invariant: 0 ≤ free ≤ capacity
	memory [][]int64 // free bytes by type and node; Invariant: 0 ≤ free ≤ allocatable
	// group is the memory group of each node, the node itself if it is in none.
	group    []topo.NodeSet
	groups   []topo.NodeSet // the distinct ones of two nodes and more, ascending
	grouped  topo.NodeSet   // nodes of such groups
	assigned topo.NodeSet   // nodes with memory assignments
}

// Summary returns the counters of the machine before anything is allocated.
func (c *Capacity) Summary() *Summary {
	s := &Summary{c: c, group: make([]topo.NodeSet, c.rule.Nodes)}
	s.free = make([][]int64, 0, len(c.resources))
	for i := range c.resources {
		s.free = append(s.free, slices.Clone(c.resources[i].byNode))
	}
	for i := range c.memory {
		s.memory = append(s.memory, slices.Clone(c.memory[i].byNode))
	}
	for i := range s.group {
		s.group[i] = 1 << i
	}
	return s
}

// SetFree sets the units of a resource that can be given at a node; never more than its capacity, and none for a
// negative number.
func (s *Summary) SetFree(resource, node int, free int64) {
	s.free[resource][node] = clamp(free, s.c.resources[resource].byNode[node])
}

// SetMemory sets the free bytes of one type on one node; never more than what is allocatable there.
func (s *Summary) SetMemory(kind, node int, free int64) {
	s.memory[kind][node] = clamp(free, s.c.memory[kind].byNode[node])
}

// SetGroup sets the memory group of a node, and whether any container has memory of the node.
func (s *Summary) SetGroup(node int, group topo.NodeSet, assigned bool) {
	s.group[node] = group
	s.assigned &^= 1 << node
	if assigned {
		s.assigned |= 1 << node
	}
	s.groups, s.grouped = s.groups[:0], 0
	for i, g := range s.group {
		if g.Len() > 1 {
			s.grouped |= 1 << i
			if at, known := slices.BinarySearch(s.groups, g); !known {
				s.groups = slices.Insert(s.groups, at, g)
			}
		}
	}
}

// mayHold reports whether the memory manager would offer m if it is large enough: not one node of a group, and of
// several nodes only those that no container uses, or exactly a group.
func (s *Summary) mayHold(m topo.NodeSet) bool {
	if m&(m-1) == 0 {
		return m&s.grouped == 0
	}
	for used := m & s.assigned; used != 0; used &= used - 1 {
		if s.group[used.First()] != m {
			return false
		}
	}
	return true
}

// clamp returns v, but at least 0 and at most top.
func clamp(v, top int64) int64 { return min(max(v, 0), top) }
