package topo

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// Limits of one machine.
const (
	MaxCPUs      = cpuset.MaxCPUs
	MaxNUMANodes = 256
)

// Dense indices of one machine, each 0…count-1.
type (
	// CPU is a logical CPU.
	CPU uint16
	// Core is a physical core.
	Core uint16
	// L3 is a group of CPUs that share a last-level cache.
	L3 uint16
	// Socket is a physical package.
	Socket uint16
	// NUMA is a NUMA node, with or without CPUs.
	NUMA uint16
)

// Kind distinguishes the cores of a hybrid machine.
type Kind uint8

// Kinds of core. Machines without hybrid cores have Uniform ones.
const (
	Uniform Kind = iota
	Performance
	Efficiency
)

// String returns "uniform", "performance" or "efficiency".
func (k Kind) String() string { return [...]string{"uniform", "performance", "efficiency"}[k] }

// CPUSpec describes one CPU in the kernel's ids. Core ids need only be unique within a socket; L3 is -1 when unknown.
type CPUSpec struct {
	ID, Core, L3, Socket, NUMA int
	Kind                       Kind
	Offline                    bool
	// Isolated: the kernel moves no task to or from the CPU (boot option isolcpus). NoTick: it stops the tick while the
	// CPU runs one task (nohz_full).
	Isolated, NoTick bool
}

// NUMASpec describes one NUMA node in the kernel's ids. Distances is the SLIT row in the order of Spec.NUMA; empty when
// the machine does not say (10 to itself, 20 to others is assumed).
type NUMASpec struct {
	ID          int
	MemoryBytes int64
	Distances   []int
	// Hugepages: page size in bytes to number of pages.
	Hugepages map[int64]int64
}

// Spec is the description of a machine that New validates.
type Spec struct {
	Arch string // GOARCH spelling; "" = unknown
	CPUs []CPUSpec
	// NUMA lists every node, those without CPUs too. Nodes that only CPUs name are added with no memory.
	NUMA []NUMASpec
}

// cpuRow is one CPU: the kernel's IDs, and the positions of what it belongs to.
type cpuRow struct {
	id, coreID int
	core       Core
	l3         L3
	socket     Socket
	numa       NUMA
	kind       Kind
}

// coreRow is one core with its CPUs, also those that are offline.
type coreRow struct {
	cpus   []CPU
	online uint16 // CPUs of cpus that are online
	numa   NUMA
	socket Socket
	l3     L3
}

// numaRow is one NUMA node. memory is in bytes, and hugepages are numbers of pages by their size.
type numaRow struct {
	id        int
	memory    int64
	hugepages map[int64]int64
	cpus      cpuset.Set
	cores     []Core
	socket    Socket
	siblings  NodeSet
	dist      []int
}

// Machine is an immutable machine. Build it with New. Methods are safe for concurrent use and, unless they say so,
// allocate nothing; slices they return belong to the Machine and must not be changed.
type Machine struct {
	arch    string
	cpus    []cpuRow // Invariant: ascending kernel id.
	cores   []coreRow
	numa    []numaRow // Invariant: ascending kernel id.
	sockets []int     // kernel id by index
	l3s     []int     // kernel id by index, -1 for a group of unknown caches
	threads int       // most threads on one core

	all, online cpuset.Set
	// isolated and noTick are what the boot has set, of offline CPUs too.
	isolated, noTick cpuset.Set
	cpuNodes         []NUMA // NUMA nodes that have CPUs, ascending
	withCPUs         NodeSet
	// mostCPUs and mostCores hold, at k-1, the most online CPUs and cores that k NUMA nodes have.
	mostCPUs, mostCores []int
	byID                map[int]CPU
	numaByID            map[int]NUMA
}

// New validates a Spec. It refuses, naming the CPU or node: no CPU at all, more than MaxCPUs CPUs or MaxNUMANodes
// nodes, an id that is negative, repeated or, of a CPU, cpuset.MaxID or more, an unknown kind of core, a core whose
// CPUs are on two NUMA nodes, a distance row of the wrong length, and negative memory or distances. A NUMA node whose
// CPUs are on several sockets is legal: it counts to the socket of its lowest CPU. The Spec is not kept.
func New(spec Spec) (*Machine, error) {
	if len(spec.CPUs) == 0 {
		return nil, fmt.Errorf("machine has no CPUs")
	}
	if len(spec.CPUs) > MaxCPUs {
		return nil, fmt.Errorf("machine has %d CPUs, at most %d are supported", len(spec.CPUs), MaxCPUs)
	}
	m := &Machine{arch: spec.Arch, byID: map[int]CPU{}, numaByID: map[int]NUMA{}}
	if err := m.addNUMA(spec); err != nil {
		return nil, err
	}
	if err := m.addCPUs(spec.CPUs); err != nil {
		return nil, err
	}
	m.seal()
	return m, nil
}

// addNUMA adds the NUMA nodes in the order of their IDs. Nodes that only CPUs name are added without memory.
func (m *Machine) addNUMA(spec Spec) error {
	nodes := slices.Clone(spec.NUMA)
	known := map[int]bool{}
	for _, n := range nodes {
		if err := n.validate(len(spec.NUMA)); err != nil {
			return err
		}
		if known[n.ID] {
			return fmt.Errorf("NUMA node id %d is there twice", n.ID)
		}
		known[n.ID] = true
	}
	for _, c := range spec.CPUs {
		if c.NUMA < 0 {
			return fmt.Errorf("CPU %d has NUMA node %d, want 0 or more", c.ID, c.NUMA)
		}
		if !known[c.NUMA] {
			known[c.NUMA] = true
			nodes = append(nodes, NUMASpec{ID: c.NUMA})
		}
	}
	if len(nodes) > MaxNUMANodes {
		return fmt.Errorf("machine has %d NUMA nodes, at most %d are supported", len(nodes), MaxNUMANodes)
	}
	order := make([]int, len(nodes)) // position in nodes by dense index
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(nodes[a].ID, nodes[b].ID) })
	for _, pos := range order {
		n := nodes[pos]
		row := numaRow{
			id: n.ID, memory: n.MemoryBytes, hugepages: maps.Clone(n.Hugepages), dist: make([]int, len(order)),
		}
		for i, other := range order {
			switch {
			case other < len(n.Distances):
				row.dist[i] = n.Distances[other]
			case other == pos:
				row.dist[i] = localDistance
			default:
				row.dist[i] = remoteDistance
			}
		}
		m.numaByID[n.ID] = NUMA(len(m.numa))
		m.numa = append(m.numa, row)
	}
	return nil
}

// Distances of a machine that does not say, as Linux assumes them.
const (
	localDistance  = 10
	remoteDistance = 20
)

// validate refuses values that no kernel reports.
func (n *NUMASpec) validate(nodes int) error {
	switch {
	case n.ID < 0:
		return fmt.Errorf("NUMA node id %d is negative", n.ID)
	case n.MemoryBytes < 0:
		return fmt.Errorf("NUMA node %d has %d bytes of memory, want 0 or more", n.ID, n.MemoryBytes)
	case len(n.Distances) != 0 && len(n.Distances) != nodes:
		return fmt.Errorf("NUMA node %d has %d distances, want %d", n.ID, len(n.Distances), nodes)
	case slices.ContainsFunc(n.Distances, func(d int) bool { return d < 0 }):
		return fmt.Errorf("NUMA node %d has the distances %v, want 0 or more", n.ID, n.Distances)
	}
	return nil
}

// addCPUs adds the CPUs in the order of their IDs, with the cores, caches and sockets that they name.
func (m *Machine) addCPUs(specs []CPUSpec) error {
	specs = slices.Clone(specs)
	slices.SortFunc(specs, func(a, b CPUSpec) int { return cmp.Compare(a.ID, b.ID) })
	for i := range specs {
		if err := specs[i].validate(); err != nil {
			return err
		}
		if i > 0 && specs[i-1].ID == specs[i].ID {
			return fmt.Errorf("CPU id %d is there twice", specs[i].ID)
		}
		m.sockets = append(m.sockets, specs[i].Socket)
	}
	slices.Sort(m.sockets)
	m.sockets = slices.Compact(m.sockets)

	cores, l3s := map[coreKey]Core{}, map[int]L3{}
	for i, s := range specs {
		socket, _ := m.SocketByID(s.Socket)
		row := cpuRow{id: s.ID, coreID: s.Core, socket: socket, numa: m.numaByID[s.NUMA], kind: s.Kind}
		l3 := s.L3
		if l3 < 0 { // an unknown cache is one per socket and NUMA node
			l3 = -1 - int(row.numa) - MaxNUMANodes*int(socket)
		}
		if _, known := l3s[l3]; !known {
			l3s[l3] = L3(len(m.l3s))
			m.l3s = append(m.l3s, max(s.L3, -1))
		}
		row.l3 = l3s[l3]
		key := coreKey{s.Socket, s.Core}
		core, ok := cores[key]
		if !ok {
			core = Core(len(m.cores))
			cores[key] = core
			m.cores = append(m.cores, coreRow{numa: row.numa, socket: row.socket, l3: row.l3})
			m.numa[row.numa].cores = append(m.numa[row.numa].cores, core)
		}
		if m.cores[core].numa != row.numa {
			return fmt.Errorf("core %d of socket %d is on NUMA nodes %d and %d", s.Core, s.Socket,
				m.numa[m.cores[core].numa].id, s.NUMA)
		}
		row.core = core
		m.addCPU(i, row, s)
	}
	return nil
}

// addCPU adds a CPU to its core and NUMA node.
func (m *Machine) addCPU(i int, row cpuRow, s CPUSpec) {
	core := &m.cores[row.core]
	core.cpus = append(core.cpus, CPU(i))
	m.byID[s.ID] = CPU(i)
	m.cpus = append(m.cpus, row)
	m.all.Add(i)
	if !s.Offline {
		m.online.Add(i)
		core.online++
	}
	if s.Isolated {
		m.isolated.Add(i)
	}
	if s.NoTick {
		m.noTick.Add(i)
	}
	m.numa[row.numa].cpus.Add(i)
}

// coreKey is what names a core: its id is unique only within its socket.
type coreKey struct{ socket, core int }

// validate refuses values that no kernel reports, and IDs that sets cannot hold.
func (c *CPUSpec) validate() error {
	switch {
	case c.ID < 0:
		return fmt.Errorf("CPU id %d is negative", c.ID)
	case c.ID >= cpuset.MaxID:
		return fmt.Errorf("CPU id %d is above the largest supported id %d", c.ID, cpuset.MaxID-1)
	case c.Socket < 0:
		return fmt.Errorf("CPU %d has socket %d, want 0 or more", c.ID, c.Socket)
	case c.Core < 0:
		return fmt.Errorf("CPU %d has core %d, want 0 or more", c.ID, c.Core)
	case c.Kind > Efficiency:
		return fmt.Errorf("CPU %d has core kind %d, want 0 to %d", c.ID, c.Kind, Efficiency)
	}
	return nil
}

// seal computes what follows from all rows. The machine does not change afterwards.
func (m *Machine) seal() {
	for i := range m.cores {
		m.threads = max(m.threads, len(m.cores[i].cpus))
	}
	for i := range m.numa {
		n := &m.numa[i]
		if first := n.cpus.First(); first >= 0 {
			n.socket = m.cpus[first].socket
			m.cpuNodes = append(m.cpuNodes, NUMA(i))
			m.withCPUs |= 1 << i
		}
	}
	for _, n := range m.cpuNodes {
		cores := 0
		for _, c := range m.numa[n].cores {
			cores += min(m.CoreOnline(c), 1)
		}
		m.mostCPUs = append(m.mostCPUs, m.numa[n].cpus.CountIn(&m.online))
		m.mostCores = append(m.mostCores, cores)
	}
	LargestFirst(m.mostCPUs)
	LargestFirst(m.mostCores)
	for i := range m.numa {
		n := &m.numa[i]
		n.siblings = 1 << i
		for o := range m.withCPUs.All() {
			if m.numa[o].socket == n.socket {
				n.siblings |= 1 << o
			}
		}
	}
}

// LargestFirst replaces counts by the sums of the k largest, k = 1….
func LargestFirst[T int | int64](counts []T) {
	slices.Sort(counts)
	slices.Reverse(counts)
	for i := 1; i < len(counts); i++ {
		counts[i] += counts[i-1]
	}
}
