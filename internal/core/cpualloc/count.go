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
		count.addCore(freeOf(m, c, free), wholeSize(m, c))
	}
	return count
}

// addCore adds a core with free CPUs, which can be given as a whole if these are whole.
func (c *NodeCount) addCore(free, whole int) {
	if free == 0 {
		return
	}
	c.Free += free
	c.FreeCores++
	if free == whole {
		c.FreeWhole += free
	}
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

// Limited returns s with Caps applied as fewer free CPUs: on every NUMA node that has more free CPUs than its cap,
// exactly that many remain free: those that Allocate gives for the bind policy, which so loses least.
func (s State) Limited(bind Bind) State {
	for n, limit := range s.Caps {
		here := s.Machine.NUMACPUs(topo.NUMA(n)).Intersect(s.Free)
		if here.Len() > limit {
			all := State{Machine: s.Machine, Free: here, NoTick: s.NoTick}
			kept, _ := Allocate(all, Request{Count: limit, Bind: bind})
			s.Free = s.Free.Minus(here).Union(kept.CPUs)
		}
	}
	s.Caps = nil
	return s
}

// Limited returns what CountNode would say of the free CPUs that State.Limited leaves on node n when limit is its cap,
// for each figure under the bind policy that reads it. c is the count of free.
func (c NodeCount) Limited(m *topo.Machine, n topo.NUMA, free *cpuset.Set, limit int) NodeCount {
	if c.Free <= limit {
		return c
	}
	c.Free, c.FreeCores = limit, min(c.FreeCores, limit)
	if c.FreeWhole <= limit {
		return c
	}
	var whole [MaxThreads + 1]int // whole free cores by size
	for _, core := range m.NUMACores(n) {
		if size := wholeSize(m, core); size > 0 && size <= MaxThreads && freeOf(m, core, free) == size {
			whole[size]++
		}
	}
	left := limit
	for size := MaxThreads; size > 0; size-- {
		left -= size * min(whole[size], left/size)
	}
	c.FreeWhole = limit - left
	return c
}

// freeOf counts the free CPUs of a core.
func freeOf(m *topo.Machine, core topo.Core, free *cpuset.Set) int {
	n := 0
	for _, c := range m.CoreCPUs(core) {
		if free.Has(int(c)) {
			n++
		}
	}
	return n
}
