package ledger

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
)

// frame is what follows from the facts alone. Views of the same facts share one.
type frame struct {
	facts Facts // Invariant: Given is sorted by UID.

	// base is ONLINE without what no pod ever gets: the LS pool of an empty node before KSTATIC.
	base cpuset.Set
	// kubeletReserved is RESERVED_K, empty unless the kubelet is static.
	kubeletReserved cpuset.Set
	floor           int

	// capacity and coreCapacity hold, at k-1, the most online CPUs and cores that k NUMA nodes can have.
	capacity, coreCapacity []int
	// memory is each type of memory while no pod holds any.
	memory []MemorySummary
}

func newFrame(f Facts) *frame {
	m := f.Machine
	f.Given, f.Memory = slices.Clone(kubelet.Sorted(f.Given)), slices.Clone(normalMemory(f.Memory))
	fr := &frame{facts: f}
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

// largestFirst replaces counts by the sums of the k largest, k = 1….
func largestFirst[T int | int64](counts []T) {
	slices.Sort(counts)
	slices.Reverse(counts)
	for i := 1; i < len(counts); i++ {
		counts[i] += counts[i-1]
	}
}
