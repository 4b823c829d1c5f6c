package kubelet

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// DeviceSet are the devices of one resource on the same NUMA nodes.
type DeviceSet struct {
	Resource string
	// Nodes are the NUMA nodes; 0 = without topology.
	Nodes topo.NodeSet
	// Registered counts all of them, Healthy those that work. A resource whose plugin has registered without any device
	// is one set with 0 of both.
	Registered, Healthy int
}

// Inventory is what a machine offers besides CPUs.
type Inventory struct {
	// Zones are the memory of each NUMA node, by dense index, without its reservations: bytes by type ("memory",
	// "hugepages-2Mi", …). nil = unknown: the memory manager takes no part.
	Zones   []map[string]int64
	Devices []DeviceSet
}

// Node is one machine under one kubelet, before it has allocated anything. It is immutable and may be shared by all
// equal nodes of a cluster.
type Node struct {
	machine *topo.Machine
	config  Config
	rule    hint.Rule
	nodes   int          // NUMA nodes of the machine
	all     topo.NodeSet // all of them

	// types are the types of memory, ascending; none if the memory manager takes no part. allocatable is what each NUMA
	// node has, by type and node.
	types       []string
	allocatable [][]int64

	// sets are the devices, ascending by resource and nodes, no two alike. kinds are their resources, ascending.
	sets  []DeviceSet
	kinds []kind

	cpus *cpuPolicy
	// cpuNodes are the NUMA nodes with online CPUs.
	cpuNodes topo.NodeSet
	// uniform is false if cores or sockets differ in size. The CPU manager then takes their average for the size, or
	// counts units twice, and may give CPUs that it should not (kubernetes#140495).
	uniform bool

	// capacity has CPUs as resource 0, then kinds in order; a kind that is spread counts nothing. It is nil if the
	// machine has more nodes than a mask holds.
	capacity *hint.Capacity
	// buffers holds the *scratch of earlier questions; nil: each question makes its own.
	buffers Buffers
}

// kind is one resource of devices.
type kind struct {
	resource string
	// The kind's sets are Node.sets[first:last].
	first, last int
	// healthy counts the devices of all sets that work.
	healthy int
	// hosts are the NUMA nodes with a device of the kind. Without any, no device has a topology, and the device manager
	// makes no hints.
	hosts topo.NodeSet
	// walked are the NUMA nodes whose masks the device manager walks.
	walked topo.NodeSet
	// spread is true if some device is on several NUMA nodes, which counters do not describe.
	spread bool
}

// The kubelet's default of max-allowable-numa-nodes.
const defaultMaxNodes = 8

// NewNode refuses what the kubelet could not run with or what the model cannot hold: KubeletPanics (sparse NUMA ids
// with prefer-closest-numa-nodes, ids of 64 and more where masks are made), TooManyNUMANodes, and InvalidTopology for
// an inventory that does not suit the machine: zones for another number of nodes, devices on nodes that it does not
// have, a negative amount, more healthy devices than registered ones.
func NewNode(m *topo.Machine, c Config, inv Inventory) (*Node, why.Reason) {
	n := &Node{machine: m, config: c, nodes: m.NumNUMA(), all: topo.FirstNodes(m.NumNUMA())}
	if reason := n.guard(inv); !reason.OK() {
		return nil, reason
	}
	n.rule = hint.Rule{Policy: c.Topology.Policy, Nodes: n.nodes}
	if c.Topology.PreferClosest {
		n.rule.Distances = distances(m)
	}
	n.addMemory(inv.Zones)
	n.addDevices(inv.Devices)
	n.cpus = newCPUPolicy(m, c)
	n.uniform = n.cpus.uniform()
	for i, cpus := range n.cpus.capacity {
		if cpus > 0 {
			n.cpuNodes |= 1 << i
		}
	}
	n.count()
	return n, why.Reason{}
}

// guard refuses a machine on which the model cannot say what the kubelet does, or on which the kubelet does not start.
func (n *Node) guard(inv Inventory) why.Reason {
	c := &n.config
	if c.Topology.Policy != hint.None || c.Memory.Static { // else it makes no masks of NUMA nodes
		limit := topo.MaxNodes // where the model ends, or the kubelet does not start
		if c.Topology.Policy != hint.None {
			limit = min(limit, cmp.Or(c.Topology.MaxNodes, defaultMaxNodes))
		}
		if n.nodes > limit {
			return why.Reason{Code: why.TooManyNUMANodes, Unit: why.Count, Asked: int64(n.nodes), Extra: int64(limit)}
		}
		highest := n.machine.NUMAID(topo.NUMA(n.nodes - 1))
		ranked := c.Topology.PreferClosest &&
			(c.Topology.Policy == hint.BestEffort || c.Topology.Policy == hint.Restricted)
		if highest >= topo.MaxNodes || ranked && highest >= n.nodes {
			return why.Reason{Code: why.KubeletPanics, Extra: int64(highest)}
		}
	}
	if !inv.suits(n.nodes) {
		return why.Reason{Code: why.InvalidTopology}
	}
	return why.Reason{}
}

// suits reports whether an inventory is valid for a machine with this many NUMA nodes.
func (inv *Inventory) suits(nodes int) bool {
	if inv.Zones != nil && len(inv.Zones) != nodes {
		return false
	}
	for _, z := range inv.Zones {
		for _, bytes := range z {
			if bytes < 0 {
				return false
			}
		}
	}
	return !slices.ContainsFunc(inv.Devices, func(d DeviceSet) bool {
		return d.Resource == "" || d.Healthy < 0 || d.Registered < d.Healthy || !d.Nodes.Within(topo.FirstNodes(nodes))
	})
}

// distances returns the distances between all NUMA nodes of a machine.
func distances(m *topo.Machine) [][]int {
	rows := make([][]int, m.NumNUMA())
	for i := range rows {
		for j := range rows {
			rows[i] = append(rows[i], m.Distance(topo.NUMA(i), topo.NUMA(j)))
		}
	}
	return rows
}

// maxBytes is what counts of more memory on one node, so that no sum runs over.
const maxBytes = 1 << 56

// addMemory adds the memory that the static policy gives out, by type and NUMA node.
func (n *Node) addMemory(zones []map[string]int64) {
	if !n.config.Memory.Static || zones == nil {
		return
	}
	types := map[string]bool{}
	for _, z := range zones {
		for name := range z {
			types[name] = true
		}
	}
	if len(types) > 0 {
		types[memoryName] = true // every NUMA node counts it
	}
	n.types = slices.Sorted(maps.Keys(types))
	for _, name := range n.types {
		byNode := make([]int64, n.nodes)
		for i, z := range zones {
			byNode[i] = min(z[name], maxBytes)
		}
		n.allocatable = append(n.allocatable, byNode)
	}
}

// addDevices adds sets of devices in the order of resource and NUMA nodes. Sets of equal ones are one.
func (n *Node) addDevices(sets []DeviceSet) {
	sets = slices.Clone(sets)
	slices.SortFunc(sets, func(a, b DeviceSet) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Nodes, b.Nodes))
	})
	for _, d := range sets {
		if last := len(n.sets) - 1; last >= 0 && n.sets[last].Resource == d.Resource && n.sets[last].Nodes == d.Nodes {
			n.sets[last].Registered += d.Registered
			n.sets[last].Healthy += d.Healthy
			continue
		}
		n.sets = append(n.sets, d)
	}
	for i, d := range n.sets {
		if len(n.kinds) == 0 || n.kinds[len(n.kinds)-1].resource != d.Resource {
			n.kinds = append(n.kinds, kind{resource: d.Resource, first: i})
		}
		k := &n.kinds[len(n.kinds)-1]
		k.last = i + 1
		k.healthy += d.Healthy
		k.spread = k.spread || d.Nodes.Len() > 1
		if d.Registered > 0 {
			k.hosts |= d.Nodes
		}
	}
	for i := range n.kinds {
		k := &n.kinds[i]
		k.walked = n.all
		if n.config.Model.DeviceHostsOnly && k.hosts != 0 {
			k.walked = k.hosts
		}
	}
}

// count prepares the counters that answer without hint lists.
func (n *Node) count() {
	if n.nodes > topo.MaxNodes {
		return
	}
	cpus := hint.Resource{Walked: n.cpuNodes, Capacity: make([]int64, n.nodes)}
	for i, count := range n.cpus.capacity {
		cpus.Capacity[i] = int64(count)
	}
	resources := []hint.Resource{cpus}
	for _, k := range n.kinds {
		r := hint.Resource{Walked: k.walked, Capacity: make([]int64, n.nodes)}
		for _, d := range n.sets[k.first:k.last] {
			if d.Nodes.Len() == 1 {
				r.Capacity[d.Nodes.First()] = int64(d.Registered)
			}
		}
		resources = append(resources, r)
	}
	n.capacity = hint.NewCapacity(n.rule, resources, n.allocatable)
}

// Buffers keeps working memory between questions, so that the next one need not allocate it. Get returns what Put was
// given, or nil. A sync.Pool is one.
type Buffers interface {
	Get() any
	Put(x any)
}

// WithBuffers returns n where questions take their working memory from b, which must serve no other node and be safe
// for concurrent use.
func (n *Node) WithBuffers(b Buffers) *Node {
	buffered := *n
	buffered.buffers = b
	return &buffered
}

// Machine returns the machine.
func (n *Node) Machine() *topo.Machine { return n.machine }

// CPURequest returns the exclusive CPUs that the CPU manager gives the pod at once; 0 for none.
func (n *Node) CPURequest(p *Pod) int { return n.cpus.podRequest(p) }

// GivesCPUsOnce is false where cores or sockets differ in size: there the CPU manager may give CPUs that it has given
// to another pod, or that are reserved (kubernetes#140495).
func (n *Node) GivesCPUsOnce() bool { return n.uniform }

// Config returns the kubelet's configuration.
func (n *Node) Config() Config { return n.config }

// kindOf finds a device resource, of which there are few; false for one that no plugin has registered, which is none of
// the device manager's business.
func (n *Node) kindOf(resource string) (int, bool) {
	for i := range n.kinds {
		if n.kinds[i].resource == resource {
			return i, true
		}
	}
	return 0, false
}

// typeOf returns the position of a type of memory, of which there are few.
func (n *Node) typeOf(name string) (int, bool) {
	i := slices.Index(n.types, name)
	return i, i >= 0
}

// Equal reports whether both would answer alike: equal machines, settings and inventories. nil equals nil alone.
func (n *Node) Equal(o *Node) bool {
	if n == o || n == nil || o == nil {
		return n == o
	}
	return n.config == o.config && n.machine.Equal(o.machine) &&
		slices.Equal(n.sets, o.sets) && slices.Equal(n.types, o.types) &&
		slices.EqualFunc(n.allocatable, o.allocatable, slices.Equal)
}
