package topo

import (
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// Arch returns the GOARCH of the machine, "" when unknown.
func (m *Machine) Arch() string { return m.arch }

// NumCPUs counts all CPUs, the offline ones too.
func (m *Machine) NumCPUs() int { return len(m.cpus) }

// NumCores counts the cores.
func (m *Machine) NumCores() int { return len(m.cores) }

// NumNUMA counts the NUMA nodes, those without CPUs too.
func (m *Machine) NumNUMA() int { return len(m.numa) }

// NumSockets counts the sockets.
func (m *Machine) NumSockets() int { return len(m.sockets) }

// NumL3 counts the groups of CPUs that share a last-level cache.
func (m *Machine) NumL3() int { return len(m.l3s) }

// ThreadsPerCore returns the largest number of CPUs on one core. 1 = no SMT.
func (m *Machine) ThreadsPerCore() int { return m.threads }

// All returns every CPU, online or not.
func (m *Machine) All() cpuset.Set { return m.all }

// Online returns the CPUs that are online.
func (m *Machine) Online() cpuset.Set { return m.online }

// Isolated returns the CPUs that the boot has isolated, online or not. Threads on them remain where they started.
func (m *Machine) Isolated() cpuset.Set { return m.isolated }

// NoTick returns the CPUs on which the boot has stopped the tick, online or not.
func (m *Machine) NoTick() cpuset.Set { return m.noTick }

// CoreOf returns the core of a CPU.
func (m *Machine) CoreOf(c CPU) Core { return m.cpus[c].core }

// L3Of returns the last-level cache of a CPU.
func (m *Machine) L3Of(c CPU) L3 { return m.cpus[c].l3 }

// L3ID returns the kernel's id of a last-level cache; -1 when the machine does not report the caches of these CPUs,
// which then count as one group per socket and NUMA node.
func (m *Machine) L3ID(g L3) int { return m.l3s[g] }

// SocketOf returns the socket of a CPU.
func (m *Machine) SocketOf(c CPU) Socket { return m.cpus[c].socket }

// NUMAOf returns the NUMA node of a CPU.
func (m *Machine) NUMAOf(c CPU) NUMA { return m.cpus[c].numa }

// KindOf returns the kind of core that a CPU is on.
func (m *Machine) KindOf(c CPU) Kind { return m.cpus[c].kind }

// CoreCPUs returns the CPUs (threads) of a core, ascending.
func (m *Machine) CoreCPUs(c Core) []CPU { return m.cores[c].cpus }

// CoreOnline counts the online CPUs of a core.
func (m *Machine) CoreOnline(c Core) int { return int(m.cores[c].online) }

// CoreSocket returns the socket of a core.
func (m *Machine) CoreSocket(c Core) Socket { return m.cores[c].socket }

// CoreL3 returns the last-level cache of a core.
func (m *Machine) CoreL3(c Core) L3 { return m.cores[c].l3 }

// NUMACPUs returns the CPUs of a NUMA node; empty for a node of memory alone.
func (m *Machine) NUMACPUs(n NUMA) cpuset.Set { return m.numa[n].cpus }

// NUMACores returns the cores of a NUMA node in ascending order of their lowest CPU.
func (m *Machine) NUMACores(n NUMA) []Core { return m.numa[n].cores }

// NUMASocket returns the socket of a NUMA node's lowest CPU; socket 0 for a node without CPUs.
func (m *Machine) NUMASocket(n NUMA) Socket { return m.numa[n].socket }

// MemoryBytes returns the memory of a NUMA node.
func (m *Machine) MemoryBytes(n NUMA) int64 { return m.numa[n].memory }

// Hugepages returns page size in bytes to number of pages; nil for none.
func (m *Machine) Hugepages(n NUMA) map[int64]int64 { return m.numa[n].hugepages }

// Distance returns the SLIT distance from a to b.
func (m *Machine) Distance(a, b NUMA) int { return m.numa[a].dist[b] }

// CPUNodes returns the NUMA nodes that have CPUs, ascending.
func (m *Machine) CPUNodes() []NUMA { return m.cpuNodes }

// MostCPUs returns, at k-1, the most online CPUs that k NUMA nodes have.
func (m *Machine) MostCPUs() []int { return m.mostCPUs }

// MostCores returns, at k-1, the most cores with an online CPU that k NUMA nodes have.
func (m *Machine) MostCores() []int { return m.mostCores }

// CPUID returns the kernel's id of a CPU.
func (m *Machine) CPUID(c CPU) int { return m.cpus[c].id }

// NUMAID returns the kernel's id of a NUMA node.
func (m *Machine) NUMAID(n NUMA) int { return m.numa[n].id }

// SocketID returns the kernel's id of a socket.
func (m *Machine) SocketID(s Socket) int { return m.sockets[s] }

// CoreID returns the kernel's id of a CPU's core, which is unique only within its socket.
func (m *Machine) CoreID(c CPU) int { return m.cpus[c].coreID }

// CPUByID returns the CPU with a kernel's id; false when the machine has no such one.
func (m *Machine) CPUByID(id int) (CPU, bool) { c, ok := m.byID[id]; return c, ok }

// NUMAByID returns the NUMA node with a kernel's id; false when the machine has no such one.
func (m *Machine) NUMAByID(id int) (NUMA, bool) { n, ok := m.numaByID[id]; return n, ok }

// SocketByID returns the socket with a kernel's id; false when the machine has no such one.
func (m *Machine) SocketByID(id int) (Socket, bool) {
	i, ok := slices.BinarySearch(m.sockets, id)
	return Socket(i), ok
}

// ParseList reads a list of the kernel's CPU ids. unknown holds the ids that this machine does not have: they are left
// out of the set. An error is a malformed list.
func (m *Machine) ParseList(list string) (set cpuset.Set, unknown []int, err error) {
	ids, err := cpuset.ParseIDs(list)
	if err != nil {
		return cpuset.Set{}, nil, err
	}
	for _, id := range ids {
		if c, ok := m.byID[id]; ok {
			set.Add(int(c))
		} else {
			unknown = append(unknown, id)
		}
	}
	return set, unknown, nil
}

// FormatList writes a set in the kernel's CPU ids. Indices that the machine does not have are left out.
func (m *Machine) FormatList(s cpuset.Set) string {
	ids := s.Intersect(m.all).Slice() // ascending index is ascending id
	for i, c := range ids {
		ids[i] = m.cpus[c].id
	}
	return cpuset.FormatIDs(ids)
}

// Spec returns a description from which New builds an equal machine. It allocates.
func (m *Machine) Spec() Spec {
	spec := Spec{Arch: m.arch}
	for i, c := range m.cpus {
		spec.CPUs = append(spec.CPUs, CPUSpec{
			ID: c.id, Core: c.coreID, L3: m.l3s[c.l3], Socket: m.sockets[c.socket], NUMA: m.numa[c.numa].id,
			Kind: c.kind, Offline: !m.online.Has(i), Isolated: m.isolated.Has(i), NoTick: m.noTick.Has(i),
		})
	}
	for _, n := range m.numa {
		spec.NUMA = append(spec.NUMA, NUMASpec{
			ID: n.id, MemoryBytes: n.memory, Distances: slices.Clone(n.dist), Hugepages: maps.Clone(n.hugepages),
		})
	}
	return spec
}

// Pool makes equal values share one. The zero value is ready. It is not safe for concurrent use: the adapter that owns
// it holds its lock.
type Pool[T interface{ Equal(T) bool }] struct {
	known []T
}

// Intern returns the pooled value that equals v, or keeps and returns v.
func (p *Pool[T]) Intern(v T) T {
	if i := slices.IndexFunc(p.known, v.Equal); i >= 0 {
		return p.known[i]
	}
	p.known = append(p.known, v)
	return v
}

// Equal reports whether m and o describe the same machine: whether their Specs would be equal. Distances that were left
// out equal the ones that are assumed. nil equals nil alone.
func (m *Machine) Equal(o *Machine) bool {
	if m == o || m == nil || o == nil {
		return m == o
	}
	// Everything else of a Machine is derived from these.
	return m.arch == o.arch && m.online == o.online && m.isolated == o.isolated && m.noTick == o.noTick &&
		slices.Equal(m.cpus, o.cpus) && slices.Equal(m.sockets, o.sockets) && slices.Equal(m.l3s, o.l3s) &&
		slices.EqualFunc(m.numa, o.numa, func(a, b numaRow) bool {
			return a.id == b.id && a.memory == b.memory && slices.Equal(a.dist, b.dist) &&
				maps.Equal(a.hugepages, b.hugepages)
		})
}
