package kubelet

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// cpuLayout is a machine as the kubelet's CPU manager knows it, from cAdvisor: the online CPUs and nothing else. A core
// is named after its lowest online CPU, so cores are in that order. It is immutable.
type cpuLayout struct {
	online cpuset.Set
	// perCore, perSocket and perL3 are what the kubelet takes for the size of a core, a socket and an L3 group: the
	// average, rounded down. Units of another size exist (hybrid machines, offline CPUs).
	perCore, perSocket, perL3 int
	// socketFirst: a socket holds NUMA nodes, not the reverse.
	socketFirst bool

	coreOf  []uint16   // by CPU; of online CPUs only
	cores   [][]uint16 // their online threads, ascending
	nodes   []cpuUnit  // NUMA nodes with online CPUs, ascending
	sockets []cpuUnit  // with online CPUs, ascending
	l3s     []cpuUnit  // ascending by the kubelet's id of the group
	// maxThreads is the most online CPUs that one core has.
	maxThreads int

	// capacity counts online CPUs by dense NUMA index.
	capacity []uint16
}

// cpuUnit is a NUMA node, socket or L3 group.
type cpuUnit struct {
	id    int // dense index of topo; of an L3 group what the kubelet calls it
	cpus  cpuset.Set
	size  int
	cores []uint16 // ascending
	// Units inside this one, ascending: the sockets and L3 groups of a NUMA node, the NUMA nodes of a socket. Where
	// units do not nest, one is in several.
	nodes, sockets, l3s []cpuPart
}

// cpuPart is what one unit holds of another.
type cpuPart struct {
	unit uint16
	cpus cpuset.Set
}

// newCPULayout returns the online CPUs of a machine by cores, caches, NUMA nodes and sockets.
func newCPULayout(m *topo.Machine) *cpuLayout {
	l := &cpuLayout{online: m.Online(), coreOf: make([]uint16, m.NumCPUs())}
	l.addCores(m)
	nodes, sockets := map[int]*cpuUnit{}, map[int]*cpuUnit{}
	for i := range l.cores {
		first := topo.CPU(l.cores[i][0])
		l.enter(nodes, int(m.NUMAOf(first)), i)
		l.enter(sockets, int(m.SocketOf(first)), i)
	}
	l.nodes, l.sockets = sortedUnits(nodes), sortedUnits(sockets)
	l.addL3s(m)
	for i := range l.nodes {
		l.nodes[i].sockets = l.nodes[i].parts(l.sockets)
		l.nodes[i].l3s = l.nodes[i].parts(l.l3s)
	}
	for i := range l.sockets {
		l.sockets[i].nodes = l.sockets[i].parts(l.nodes)
	}
	l.perCore = l.online.Len() / len(l.cores)
	l.perSocket = l.online.Len() / len(l.sockets)
	l.perL3 = l.online.Len() / len(l.l3s)
	l.socketFirst = len(l.sockets) < len(l.nodes)
	l.capacity = make([]uint16, m.NumNUMA())
	for i := range l.nodes {
		l.capacity[l.nodes[i].id] = uint16(l.nodes[i].size)
	}
	return l
}

// addCores lists the cores with their online threads.
func (l *cpuLayout) addCores(m *topo.Machine) {
	at := make([]int, m.NumCores())
	for c := l.online.First(); c >= 0; c = l.online.Next(c + 1) {
		core := &at[m.CoreOf(topo.CPU(c))]
		if *core == 0 {
			l.cores = append(l.cores, nil)
			*core = len(l.cores)
		}
		threads := &l.cores[*core-1]
		*threads = append(*threads, uint16(c))
		l.coreOf[c] = uint16(*core - 1)
		l.maxThreads = max(l.maxThreads, len(*threads))
	}
}

// enter adds a core to the unit with an ID, and creates the unit at its first core.
func (l *cpuLayout) enter(units map[int]*cpuUnit, id, core int) {
	u := units[id]
	if u == nil {
		u = &cpuUnit{id: id}
		units[id] = u
	}
	u.cores = append(u.cores, uint16(core))
	for _, c := range l.cores[core] {
		u.cpus.Add(int(c))
	}
	u.size += len(l.cores[core])
}

// addL3s groups cores as cAdvisor and the kubelet do: a cache that has as many CPUs as the core's NUMA node would have
// if all its cores were like this one belongs to the node, and then, as where the cache is not known, the kubelet takes
// the socket for the group. A socket and a cache with the same number become one group.
func (l *cpuLayout) addL3s(m *topo.Machine) {
	sharing := make([]int, m.NumL3())
	for c := range l.online.All() {
		sharing[m.L3Of(topo.CPU(c))]++
	}
	cores := make([]int, m.NumNUMA()) // by dense NUMA index
	for i := range l.nodes {
		cores[l.nodes[i].id] = len(l.nodes[i].cores)
	}
	groups := map[int]*cpuUnit{}
	for i := range l.cores {
		threads := l.cores[i]
		first := topo.CPU(threads[0])
		l3 := m.L3Of(first)
		group := m.L3ID(l3)
		if group < 0 || sharing[l3] == cores[m.NUMAOf(first)]*len(threads) {
			group = m.SocketID(m.SocketOf(first))
		}
		l.enter(groups, group, i)
	}
	l.l3s = sortedUnits(groups)
}

// sortedUnits returns units in the order of the kernel's IDs.
func sortedUnits(units map[int]*cpuUnit) []cpuUnit {
	sorted := make([]cpuUnit, 0, len(units))
	for _, u := range units {
		sorted = append(sorted, *u)
	}
	slices.SortFunc(sorted, func(a, b cpuUnit) int { return cmp.Compare(a.id, b.id) })
	return sorted
}

// parts returns the units of another kind that share CPUs with u, with the shared CPUs.
func (u *cpuUnit) parts(units []cpuUnit) []cpuPart {
	var parts []cpuPart
	for i := range units {
		if u.cpus.Overlaps(&units[i].cpus) {
			parts = append(parts, cpuPart{uint16(i), u.cpus.Intersect(units[i].cpus)})
		}
	}
	return parts
}
