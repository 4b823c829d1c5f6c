package kubelet

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Role is the place of a container in its pod.
type Role uint8

// Roles of containers.
const (
	App Role = iota
	Init
	Sidecar // an init container that is restarted always
)

// Amount is a request of one named resource: bytes of memory types, a count of devices.
type Amount struct {
	Name string
	N    int64
}

// Container is what one container asks. Memory and Devices are sorted by name, without negative amounts. An amount of 0
// that the pod writes out belongs there: the kubelet makes hints for it too, and they can refuse the pod.
type Container struct {
	Name string
	Role Role
	// CPUs is the request in whole CPUs; 0 when it is none or not a whole number.
	CPUs int
	// Memory are the requests of memory types, Devices the limits of extended resources; those that no plugin of the
	// node serves are passed over.
	Memory  []Amount
	Devices []Amount
}

// Pod is a pod as the kubelet's managers see it.
type Pod struct {
	UID string
	// Guaranteed is the pod's QoS class: only such pods get CPUs and memory blocks of their own.
	Guaranteed bool
	// PodLevel: the pod has spec.resources.
	PodLevel bool
	// Containers are in spec order, init containers first.
	Containers []Container
}

// CPUs is how many a static CPU manager gives the pod at once, 0 for none: sidecars run beside all that starts after
// them, and what init containers had is used again. p may be nil.
func (p *Pod) CPUs() int {
	if p == nil || !p.Guaranteed || p.PodLevel {
		return 0
	}
	return p.peakCPUs()
}

// peakCPUs returns the most exclusive CPUs that the pod's containers ask for at one time.
func (p *Pod) peakCPUs() int {
	peak, running := 0, 0
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Role == Init {
			peak = max(peak, running+c.CPUs)
		} else {
			running += c.CPUs
		}
	}
	return max(peak, running)
}

// Block is memory of one type that was given from a set of NUMA nodes.
type Block struct {
	Type  string
	Nodes topo.NodeSet
	// Bytes is 0 for what an init container had and a later container of the pod uses: it still counts as an
	// assignment.
	Bytes int64
}

// Devices is the number of devices of one resource that were given from devices with the same NUMA nodes.
type Devices struct {
	Resource string
	Nodes    topo.NodeSet // of the devices; 0 = without topology
	Count    int
	// Open: the kubelet may take other ones of the resource instead, because several sets would do and the choice among
	// them is the device plugin's or chance. Predictions take sets of lower nodes first.
	Open bool
}

// Given is what one container has. It is what a checkpoint of the kubelet says, or a prediction.
type Given struct {
	Container string
	// Hint is the merged hint; Mask 0 = none.
	Hint hint.Hint
	// Uncertain: a predicted Hint, and all that follows, comes from something that the kubelet does in random order, or
	// that a device plugin chose, and that no report has shown yet.
	Uncertain bool
	CPUs      cpuset.Set
	Memory    []Block
	Devices   []Devices
}

// Placement is what the containers of a pod have, in spec order. Containers that have nothing may be absent.
type Placement []Given

// Find returns what a container has; nil if the placement has nothing of it.
func (pl Placement) Find(container string) *Given {
	for i := range pl {
		if pl[i].Container == container {
			return &pl[i]
		}
	}
	return nil
}

// amountOf finds a name in a sorted list.
func amountOf(list []Amount, name string) (int64, bool) {
	i, ok := slices.BinarySearchFunc(list, name, func(a Amount, name string) int { return cmp.Compare(a.Name, name) })
	if !ok {
		return 0, false
	}
	return list[i].N, true
}

// asksDevice reports whether a container of the pod asks for a resource of devices.
func (p *Pod) asksDevice(resource string) bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool { return c.asksDevice(resource) })
}

// asksDevice reports whether the container asks for a resource of devices.
func (c *Container) asksDevice(resource string) bool {
	_, asked := amountOf(c.Devices, resource)
	return asked
}

// RoleOf returns the role of a container; App for one that the pod does not have.
func (p *Pod) RoleOf(container string) Role {
	if i := p.Index(container); i >= 0 {
		return p.Containers[i].Role
	}
	return App
}

// Index returns the position of a container in Containers, -1 for one that the pod does not have.
func (p *Pod) Index(container string) int {
	return slices.IndexFunc(p.Containers, func(c Container) bool { return c.Name == container })
}

// peak returns what the pod needs at once of each name, sorted by name: the larger of what app containers and sidecars
// need together, and of what an init container needs beside the sidecars before it.
func (p *Pod) peak(amounts func(*Container) []Amount) []Amount {
	var names []string
	for i := range p.Containers {
		for _, a := range amounts(&p.Containers[i]) {
			names = append(names, a.Name)
		}
	}
	slices.Sort(names)
	var peaks []Amount
	for _, name := range slices.Compact(names) {
		most, running := int64(0), int64(0)
		for i := range p.Containers {
			n, _ := amountOf(amounts(&p.Containers[i]), name)
			if p.Containers[i].Role == Init {
				most = max(most, amount.Plus(running, n))
			} else {
				running = amount.Plus(running, n)
			}
		}
		peaks = append(peaks, Amount{name, max(most, running)})
	}
	return peaks
}

// memory returns what the pod needs at once as the memory manager computes it: only types that an app container asks
// for count.
func (p *Pod) memory() []Amount {
	return slices.DeleteFunc(p.peak(func(c *Container) []Amount { return c.Memory }), func(a Amount) bool {
		return !slices.ContainsFunc(p.Containers, func(c Container) bool {
			_, named := amountOf(c.Memory, a.Name)
			return named && c.Role == App
		})
	})
}

// devices returns the most devices of each resource that the pod's containers ask for at one time.
func (p *Pod) devices() []Amount { return p.peak(func(c *Container) []Amount { return c.Devices }) }

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
