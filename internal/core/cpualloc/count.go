package cpualloc

import (
	"math/bits"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// MaxThreads is the number of CPUs on one core up to which CPU sets are allocated (POWER and SPARC have 8).
const MaxThreads = 8

// NodeCount is what one NUMA node has to give, the figures from which Feasible decides.
type NodeCount struct {
	// Free counts the free CPUs, FreeWhole those of them on whole free cores, FreeCores the cores with a free CPU.
	Free, FreeWhole, FreeCores int
}

// Add adds what another node has.
func (c *NodeCount) Add(o NodeCount) {
	c.Free += o.Free
	c.FreeWhole += o.FreeWhole
	c.FreeCores += o.FreeCores
}

// CountNodes appends one NodeCount for each NUMA node of m to dst. It allocates only when dst is too small.
func CountNodes(dst []NodeCount, m *topo.Machine, free *cpuset.Set) []NodeCount {
	for n := range m.NumNUMA() {
		dst = append(dst, CountNode(m, topo.NUMA(n), free))
	}
	return dst
}

// CountNode counts one NUMA node. A ledger that changes the CPUs of one node needs to count only that one again.
func CountNode(m *topo.Machine, n topo.NUMA, free *cpuset.Set) NodeCount {
	var count NodeCount
	for _, c := range m.NUMACores(n) {
		here := freeOf(m, c, free)
		if here == 0 {
			continue
		}
		count.Free += here
		count.FreeCores++
		if here == wholeSize(m, c) {
			count.FreeWhole += here
		}
	}
	return count
}

// wholeSize is the number of online CPUs of core c when the core can be given as a whole, else 0.
//
// Offline CPUs belong to no pod: a core is whole without them. But on one machine the sizes of whole cores
// must divide each other, so that n CPUs on whole cores exist exactly when n is a multiple of the largest size and the
// whole cores hold n CPUs in sum: that makes Feasible exact on hybrid machines. Sizes 1, 2, 4 and 8 beside the full
// size do; a core of which only 3 of 4 threads are online is never whole.
func wholeSize(m *topo.Machine, c topo.Core) int {
	size, threads := m.CoreOnline(c), m.ThreadsPerCore()
	if size == threads || bits.OnesCount(uint(size)) == 1 && threads%size == 0 {
		return size
	}
	return 0
}
