package kubelet

import (
	"cmp"
	"iter"
	"slices"

	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Held is what one container has of a kubelet, in the kernel's ids, as the API says it: Given for a machine
// that may not be known yet.
type Held struct {
	Container string
	// NUMAIDs are the nodes of the merged hint, ascending; nil where there is none, or where it is not known.
	NUMAIDs   []int
	Preferred bool
	// CPUList is in list format.
	CPUList string
	// Memory is sorted by type, then NUMA nodes; Devices by resource, then NUMA nodes.
	Memory  []HeldMemory
	Devices []HeldDevices
	// Uncertain is as in Given.
	Uncertain bool
}

// HeldMemory is memory of one type that is taken from NUMA nodes together.
type HeldMemory struct {
	Type    string
	NUMAIDs []int
	Bytes   int64
}

// HeldDevices are devices of one resource on the same NUMA nodes; without nodes they have no topology.
type HeldDevices struct {
	Resource string
	NUMAIDs  []int
	Count    int
	Open     bool // as in Devices
}

// isCertain reports whether no part of a prediction may be something else by chance.
func (p *Prediction) isCertain() bool {
	return !slices.ContainsFunc(p.Held, func(h Held) bool {
		return h.Uncertain || slices.ContainsFunc(h.Devices, func(d HeldDevices) bool { return d.Open })
	})
}

// HeldOf translates a placement on m to the kernel's ids.
func HeldOf(m *topo.Machine, p Placement) []Held {
	out := make([]Held, 0, len(p))
	for i := range p {
		g := &p[i]
		h := Held{
			Container: g.Container, NUMAIDs: m.NodeIDs(g.Hint.Mask), Preferred: g.Hint.Preferred,
			CPUList: m.FormatList(g.CPUs), Uncertain: g.Uncertain,
		}
		for _, b := range g.Memory {
			h.Memory = append(h.Memory, HeldMemory{b.Type, m.NodeIDs(b.Nodes), b.Bytes})
		}
		for _, d := range g.Devices {
			h.Devices = append(h.Devices, HeldDevices{d.Resource, m.NodeIDs(d.Nodes), d.Count, d.Open})
		}
		slices.SortStableFunc(h.Memory, func(a, b HeldMemory) int {
			return cmp.Or(cmp.Compare(a.Type, b.Type), slices.Compare(a.NUMAIDs, b.NUMAIDs))
		})
		slices.SortStableFunc(h.Devices, func(a, b HeldDevices) int {
			return cmp.Or(cmp.Compare(a.Resource, b.Resource), slices.Compare(a.NUMAIDs, b.NUMAIDs))
		})
		out = append(out, h)
	}
	return out
}

// PlacementOf translates what a pod holds to m. CPUs and NUMA nodes that the machine does not have are left out, and so
// is what would be on such nodes alone.
func PlacementOf(m *topo.Machine, held []Held) Placement {
	p := make(Placement, 0, len(held))
	for _, h := range held {
		g := Given{Container: h.Container, Hint: hint.Hint{Preferred: h.Preferred}, Uncertain: h.Uncertain}
		g.Hint.Mask = m.NodesByID(h.NUMAIDs)
		cpus, _, _ := m.ParseList(h.CPUList) // none where it cannot be read
		g.CPUs = cpus.Intersect(m.Online())
		for _, b := range h.Memory {
			if nodes := m.NodesByID(b.NUMAIDs); nodes != 0 {
				g.Memory = append(g.Memory, Block{Type: b.Type, Nodes: nodes, Bytes: b.Bytes})
			}
		}
		for _, d := range h.Devices {
			if nodes := m.NodesByID(d.NUMAIDs); nodes != 0 || len(d.NUMAIDs) == 0 {
				g.Devices = append(g.Devices, Devices{d.Resource, nodes, d.Count, d.Open})
			}
		}
		p = append(p, g)
	}
	return p
}

// Difference is how an actual placement differs from the predicted one.
type Difference uint8

// Differences, which may be combined.
const (
	// DifferentMask: CPUs or memory are on other NUMA nodes.
	DifferentMask Difference = 1 << iota
	// DifferentCPUs: other CPUs, on the same NUMA nodes.
	DifferentCPUs
	// DifferentMemory: other amounts of memory, or another group of nodes.
	DifferentMemory
	// DifferentDevices: other numbers of devices, or devices outside the NUMA nodes that were predicted.
	DifferentDevices
)

// Kinds are the words for d's differences that the metric tenon_topology_mispredict_total has too; none for 0.
func (d Difference) Kinds() []string {
	var kinds []string
	for i, kind := range [...]string{"mask", "cpus", "memory", "device"} {
		if d&(1<<i) != 0 {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Compare holds an actual placement against the predicted one. Which of equal devices a container gets, and how they
// are split over the nodes of a mask, is decided by the device plugin: it does not count as a difference.
func Compare(predicted, actual Placement) Difference {
	var d Difference
	for p, a := range pairs(predicted, actual) {
		if p.CPUs != a.CPUs {
			d |= DifferentCPUs
		}
		if !sameBlocks(p.Memory, a.Memory) {
			d |= DifferentMemory
		}
		if !sameDevices(p, a.Devices) {
			d |= DifferentDevices
		}
	}
	return d
}

// CompareOn is Compare, where CPUs and memory on other NUMA nodes of m are reported as DifferentMask alone.
func CompareOn(m *topo.Machine, predicted, actual Placement) Difference {
	d := Compare(predicted, actual)
	if d&(DifferentCPUs|DifferentMemory) == 0 {
		return d
	}
	for p, a := range pairs(predicted, actual) {
		if p.NodesOn(m) != a.NodesOn(m) {
			return d&^(DifferentCPUs|DifferentMemory) | DifferentMask
		}
	}
	return d
}

// NodesOn returns the NUMA nodes of m that the container's CPUs and memory are on.
func (g *Given) NodesOn(m *topo.Machine) topo.NodeSet {
	mask := m.NodesOf(&g.CPUs)
	for _, b := range g.Memory {
		mask |= b.Nodes
	}
	return mask
}

// pairs yields what each container of one of two placements has in both.
func pairs(predicted, actual Placement) iter.Seq2[*Given, *Given] {
	return func(yield func(p, a *Given) bool) {
		for i := range predicted {
			a := cmp.Or(actual.find(predicted[i].Container), &Given{})
			if !yield(&predicted[i], a) {
				return
			}
		}
		for i := range actual {
			if predicted.find(actual[i].Container) == nil && !yield(&Given{}, &actual[i]) {
				return
			}
		}
	}
}

func sameBlocks(a, b []Block) bool {
	order := func(x, y Block) int {
		return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(x.Nodes, y.Nodes))
	}
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortStableFunc(a, order)
	slices.SortStableFunc(b, order)
	return slices.Equal(a, b)
}

// sameDevices compares counts by resource; devices with topology must touch the nodes that were predicted.
func sameDevices(predicted *Given, actual []Devices) bool {
	counts := map[string]int{}
	nodes := map[string]topo.NodeSet{}
	for _, d := range predicted.Devices {
		counts[d.Resource] += d.Count
		nodes[d.Resource] |= d.Nodes
	}
	for _, d := range actual {
		counts[d.Resource] -= d.Count
		if d.Nodes != 0 && d.Nodes&(nodes[d.Resource]|predicted.Hint.Mask) == 0 {
			return false
		}
	}
	for _, n := range counts {
		if n != 0 {
			return false
		}
	}
	return true
}
