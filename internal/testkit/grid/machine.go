package grid

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// Machine describes a regular machine. A field that is zero stands for 1 unless its comment says otherwise. As Linux
// numbers the CPUs of x86, those of thread 0 come first: core c has the CPUs c, c+cores, c+2·cores, ….
type Machine struct {
	Arch    string // "" is unknown
	Sockets int
	Nodes   int // NUMA nodes of each socket
	Cores   int // of each NUMA node
	Threads int // of each core
	CoresL3 int // cores of each L3 group; 0: groups are unknown
	// Adjacent numbers the threads of a core one after the other.
	Adjacent bool
	Stride   int   // distance between the ids of CPUs
	NodeIDs  []int // ids of all NUMA nodes; nil: 0, 1, 2, …
	Offline  []int // CPUs that are offline, before Stride changes their ids
	// NodeBytes is the memory of each NUMA node. 0: the Spec says nothing of nodes, which are then those of the CPUs.
	NodeBytes int64
}

// Worked returns the machine of the worked examples: 2 sockets × 2 NUMA nodes × 4 cores × 2 threads, CPU c beside c+16.
func Worked() Machine { return Machine{Sockets: 2, Nodes: 2, Cores: 4, Threads: 2} }

// Spec returns what topo.New reads.
func (m Machine) Spec() topo.Spec {
	spec := topo.Spec{Arch: m.Arch}
	perSocket, perNode, threads := max(m.Nodes, 1), max(m.Cores, 1), max(m.Threads, 1)
	nodes := max(m.Sockets, 1) * perSocket
	cores := nodes * perNode
	id := func(node int) int {
		if m.NodeIDs != nil {
			return m.NodeIDs[node]
		}
		return node
	}
	for cpu := range cores * threads {
		core := cpu % cores
		if m.Adjacent {
			core = cpu / threads
		}
		l3 := -1
		if m.CoresL3 > 0 {
			l3 = core / m.CoresL3
		}
		node := core / perNode
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{
			ID: cpu * max(m.Stride, 1), Core: core, L3: l3, Socket: node / perSocket, NUMA: id(node),
			Offline: slices.Contains(m.Offline, cpu),
		})
	}
	for node := range nodes {
		if m.NodeBytes > 0 {
			spec.NUMA = append(spec.NUMA, topo.NUMASpec{ID: id(node), MemoryBytes: m.NodeBytes})
		}
	}
	return spec
}

// failer is a testing.TB or a *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Build returns the machine, and fails the test if topo.New refuses it.
func (m Machine) Build(tb failer) *topo.Machine {
	tb.Helper()
	return Build(tb, m.Spec())
}

// Build returns the machine of a Spec, and fails the test if topo.New refuses it.
func Build(tb failer, spec topo.Spec) *topo.Machine {
	tb.Helper()
	m, err := topo.New(spec)
	if err != nil {
		tb.Fatalf("machine of the test: %v", err)
	}
	return m
}
