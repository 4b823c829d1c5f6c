package hint

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// Resource is what a machine has of one resource that the CPU manager or the device manager counts.
type Resource struct {
	// Walked are the nodes whose subsets the provider walks: for CPUs those with CPUs; for devices those that host one
	// of them, and all nodes before Kubernetes 1.36.
	Walked topo.NodeSet
	// Places hold the units by the nodes they belong to.
	Places []Place
	// BySocket: the preference is not by size alone (align-by-socket). Requests for it are answered ByLists.
	BySocket bool
}

// Place is the units of a resource that belong to the same nodes. A mask that contains any of these nodes contains the
// units; units of no node are in no mask.
type Place struct {
	Nodes topo.NodeSet
	// Capacity counts all units: reserved, used and unhealthy ones too.
	Capacity int64
}

// Block is memory of one type that a pod's finished init containers hold: it can be used again by exactly these nodes.
type Block struct {
	Type  int
	Nodes topo.NodeSet
	Bytes int64
}

// Ask is a request of one resource.
type Ask struct {
	// Resource is the index in the Capacity's resources.
	Resource int
	// Amount in units; a resource of which 0 is asked takes no part.
	Amount int64
	// Reuse counts, by place, the units that the pod can use again: a mask has to reach every place with some. nil =
	// none.
	Reuse []int64
}

// Request is what one merge is about. Every resource occurs at most once in Asks.
type Request struct {
	Asks []Ask
	// Memory are the bytes by type, 0 = the type is not asked for; nil = the memory manager takes no part.
	Memory []int64
	Blocks []Block
}

// maxAmount bounds every capacity and free amount, 2^56 bytes or units on one node, so that no sum overflows.
const maxAmount = 1 << 56

// Capacity is what a machine has under one kubelet, prepared for counting. It is immutable and may be shared by all
// equal machines.
type Capacity struct {
	rule      Rule
	resources []resource
	memory    []stock // by type; every node is walked
}

// resource is a Resource that is ready to be counted.
type resource struct {
	stock
	places   []Place // clipped to the walked nodes; a place on no node keeps its index and counts nothing
	additive bool    // every place has one node
	bySocket bool
}

// stock is a capacity by node.
type stock struct {
	walked topo.NodeSet
	// most[k] is the largest capacity of k walked nodes, -1 where it took too long to find.
	most   []int64
	byNode []int64 // units on several nodes count at each
	// hosts are the nodes with any capacity.
	hosts topo.NodeSet
}

// least is the smallest number of walked nodes with the capacity for amount: all of them if nothing suffices; false if
// it took too long to find.
func (s *stock) least(amount int64) (int, bool) {
	n := len(s.most) - 1
	if n < 0 || s.most[n] < amount {
		return max(n, 0), true
	}
	for k := 1; k < n; k++ {
		if s.most[k] < 0 {
			return 0, false
		}
		if s.most[k] >= amount {
			return k, true
		}
	}
	return n, true
}

// NewCapacity prepares a machine. memory are the allocatable bytes by type and node, nil = the memory manager never
// takes part. Nodes outside the rule's, negative amounts and missing entries count nothing; amounts above 2^56 count as
// 2^56.
func NewCapacity(rule Rule, resources []Resource, memory [][]int64) *Capacity {
	rule.Nodes = min(max(rule.Nodes, 0), topo.MaxNodes)
	c := &Capacity{rule: rule}
	all := topo.FirstNodes(rule.Nodes)
	for _, r := range resources {
		own := resource{places: make([]Place, len(r.Places)), additive: true, bySocket: r.BySocket}
		own.walked = r.Walked & all
		byNode := make([]int64, rule.Nodes)
		for i, p := range r.Places {
			p = Place{Nodes: p.Nodes & own.walked, Capacity: clamp(p.Capacity, maxAmount)}
			own.places[i] = p
			own.additive = own.additive && p.Nodes.Len() <= 1
			for rest := p.Nodes; rest != 0; rest &= rest - 1 {
				byNode[rest.First()] = min(byNode[rest.First()]+p.Capacity, maxAmount)
			}
		}
		own.byNode, own.hosts = byNode, hosts(byNode)
		if own.additive {
			own.most = largest(byNode, own.walked)
		} else {
			own.most = cover(own.places, own.walked)
		}
		c.resources = append(c.resources, own)
	}
	for _, byNode := range memory {
		own := make([]int64, rule.Nodes)
		for i := range min(len(byNode), rule.Nodes) {
			own[i] = clamp(byNode[i], maxAmount)
		}
		c.memory = append(c.memory, stock{walked: all, most: largest(own, all), byNode: own, hosts: hosts(own)})
	}
	return c
}

// Summary is what is free on one machine: its counters answer a request without hint lists. Fill it once per state;
// then any number of goroutines may ask it.
type Summary struct {
	c      *Capacity
	free   []freeUnits
	memory [][]int64 // free bytes by type and node; Invariant: 0 ≤ free ≤ allocatable
	// group is the memory group of each node, the node itself if it is in none.
	group    []topo.NodeSet
	groups   []topo.NodeSet // the distinct ones of two nodes and more, ascending
	grouped  topo.NodeSet   // nodes of such groups
	assigned topo.NodeSet   // nodes with memory assignments
}

// freeUnits counts one resource. Invariant: 0 ≤ free ≤ capacity, place by place.
type freeUnits struct {
	byPlace []int64
	byNode  []int64 // units on several nodes count at each
}

// Summary returns the counters of the machine with nothing given to anybody.
func (c *Capacity) Summary() *Summary {
	s := &Summary{c: c, group: make([]topo.NodeSet, c.rule.Nodes)}
	for i := range c.resources {
		r := &c.resources[i]
		f := freeUnits{byPlace: make([]int64, len(r.places)), byNode: slices.Clone(r.byNode)}
		for j, p := range r.places {
			f.byPlace[j] = p.Capacity
		}
		s.free = append(s.free, f)
	}
	for t := range c.memory {
		s.memory = append(s.memory, slices.Clone(c.memory[t].byNode))
	}
	for i := range s.group {
		s.group[i] = 1 << i
	}
	return s
}

// Clone returns a copy that shares nothing that can be set.
func (s *Summary) Clone() *Summary {
	clone := *s
	clone.free = make([]freeUnits, len(s.free))
	for i, f := range s.free {
		clone.free[i] = freeUnits{byPlace: slices.Clone(f.byPlace), byNode: slices.Clone(f.byNode)}
	}
	clone.memory = make([][]int64, len(s.memory))
	for t := range s.memory {
		clone.memory[t] = slices.Clone(s.memory[t])
	}
	clone.group, clone.groups = slices.Clone(s.group), slices.Clone(s.groups)
	return &clone
}

// SetFree sets the units of a resource that can be given at one of its places; never more than its capacity, and none
// for a negative number. Indices are those of NewCapacity; others change nothing.
func (s *Summary) SetFree(resource, place int, free int64) {
	if uint(resource) >= uint(len(s.free)) || uint(place) >= uint(len(s.free[resource].byPlace)) {
		return
	}
	f, p := s.free[resource], s.c.resources[resource].places[place]
	f.byPlace[place] = clamp(free, p.Capacity)
	for rest := p.Nodes; rest != 0; rest &= rest - 1 {
		node := rest.First()
		f.byNode[node] = 0
		for i, other := range s.c.resources[resource].places {
			if other.Nodes.Has(node) {
				f.byNode[node] = min(f.byNode[node]+f.byPlace[i], maxAmount)
			}
		}
	}
}

// SetMemory sets the free bytes of one type on one node; never more than what is allocatable there.
func (s *Summary) SetMemory(kind, node int, free int64) {
	if uint(kind) < uint(len(s.memory)) && uint(node) < uint(len(s.memory[kind])) {
		s.memory[kind][node] = clamp(free, s.c.memory[kind].byNode[node])
	}
}

// SetGroup sets the memory group of a node, and whether memory of the node is assigned to anybody.
func (s *Summary) SetGroup(node int, group topo.NodeSet, assigned bool) {
	if uint(node) >= uint(len(s.group)) {
		return
	}
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
		if i := used.First(); s.group[i] != m {
			return false
		}
	}
	return true
}

// clamp returns v, at least 0 and at most top.
func clamp(v, top int64) int64 { return min(max(v, 0), top) }

// hosts returns the nodes that have any.
func hosts(byNode []int64) topo.NodeSet {
	var m topo.NodeSet
	for i, n := range byNode {
		if n > 0 {
			m |= 1 << i
		}
	}
	return m
}

// largest sums the k largest of the walked nodes, for every k.
func largest(byNode []int64, walked topo.NodeSet) []int64 {
	var own []int64
	for rest := walked; rest != 0; rest &= rest - 1 {
		own = append(own, byNode[rest.First()])
	}
	slices.Sort(own)
	slices.Reverse(own)
	most := make([]int64, 1, len(own)+1)
	for k, n := range own {
		most = append(most, most[k]+n)
	}
	return most
}
