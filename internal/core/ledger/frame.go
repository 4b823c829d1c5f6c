package ledger

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// frame is what follows from the facts alone. Views of the same facts share one.
type frame struct {
	facts Facts // Invariant: Given is sorted by UID.

	// base is ONLINE without what no pod ever gets: the LS pool of an empty node before KSTATIC.
	base cpuset.Set
	// kubeletReserved is RESERVED_K, empty unless the kubelet is static.
	kubeletReserved cpuset.Set
	floor           int
	// kubeletFree is what a static kubelet could pin besides what is reported, before pods of which nothing is; -1 when
	// its policy is not static.
	kubeletFree int

	// capacity and coreCapacity hold, at k-1, the most online CPUs and cores that k NUMA nodes can have.
	capacity, coreCapacity []int
	// memory is each type of memory while no pod holds any.
	memory []MemorySummary
}

func newFrame(f Facts) *frame {
	m := f.Machine
	f.Given, f.Memory = slices.Clone(kubelet.Sorted(f.Given)), slices.Clone(normalMemory(f.Memory))
	fr := &frame{facts: f, kubeletFree: -1}
	if m == nil {
		return fr
	}
	online := m.Online()
	if f.Kubelet.Static {
		fr.kubeletReserved = f.Kubelet.Reserved.Intersect(online)
	}
	fr.base = online.Minus(f.NodeReserved).Minus(f.System)
	if f.Kubelet.StrictReservation {
		fr.base = fr.base.Minus(fr.kubeletReserved)
	}
	fr.floor = f.MinSharedCPUs
	if fr.floor < 0 {
		fr.floor = fr.kubeletReserved.Len()
		if fr.floor == 0 {
			fr.floor = m.ThreadsPerCore()
		}
	}
	fr.kubeletFree = fr.freeForKubelet()
	for _, n := range m.CPUNodes() {
		count := cpualloc.CountNode(m, n, &online)
		fr.capacity = append(fr.capacity, int(count.Free))
		fr.coreCapacity = append(fr.coreCapacity, int(count.FreeCores))
	}
	largestFirst(fr.capacity)
	largestFirst(fr.coreCapacity)
	fr.memory = memoryTypes(m, f.Memory)
	return fr
}

// freeForKubelet counts as the kubelet does: its own reservation and pins are gone, Tenon's exclusive CPUs are not its
// business. With full-pcpus-only only whole cores count.
func (fr *frame) freeForKubelet() int {
	f, m := &fr.facts, fr.facts.Machine
	if !f.Kubelet.Static {
		return -1
	}
	free := m.Online().Minus(fr.kubeletReserved)
	for i := range f.Given {
		free = free.Minus(f.Given[i].CPUs)
	}
	if !f.Kubelet.FullPCPUsOnly {
		return free.Len()
	}
	whole := 0
	for core := range m.NumCores() {
		whole += wholeCPUs(m, topo.Core(core), &free)
	}
	return whole
}

// wholeCPUs returns the number of online CPUs of a core when all of them are in free, else 0.
func wholeCPUs(m *topo.Machine, core topo.Core, free *cpuset.Set) int {
	n, online := 0, m.Online()
	for _, c := range m.CoreCPUs(core) {
		switch {
		case free.Has(int(c)):
			n++
		case online.Has(int(c)):
			return 0
		}
	}
	return n
}

// largestFirst replaces counts by the sums of the k largest, k = 1….
func largestFirst[T int | int64](counts []T) {
	slices.Sort(counts)
	slices.Reverse(counts)
	for i := 1; i < len(counts); i++ {
		counts[i] += counts[i-1]
	}
}
