package kubelet

import (
	"cmp"
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

// NodesOn returns the NUMA nodes of m that the container's CPUs and memory are on.
func (g *Given) NodesOn(m *topo.Machine) topo.NodeSet {
	mask := m.NodesOf(&g.CPUs)
	for _, b := range g.Memory {
		mask |= b.Nodes
	}
	return mask
}
