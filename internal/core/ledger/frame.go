package ledger

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/tenancy"
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
	// rows are those of resources while no pod holds any.
	rows []align.Row
}

// framesKept is how many different facts Frames remembers: more than the kinds of node of most clusters.
const framesKept = 16

// Frames remembers what follows from facts, so that nodes with equal facts share one value. The zero value is ready. It
// is not safe for concurrent use.
type Frames struct {
	last [framesKept]*frame
	next int // the place of last that the next new frame takes
}

// frame returns what follows from facts.
func (s *Frames) frame(f Facts) *frame {
	for _, fr := range s.last {
		if fr != nil && fr.facts.Equal(&f) {
			return fr
		}
	}
	fr := newFrame(f)
	s.last[s.next] = fr
	s.next = (s.next + 1) % framesKept
	return fr
}

// newFrame returns what follows from the facts of a node alone, whatever its pods.
func newFrame(f Facts) *frame {
	m := f.Machine
	f.Given, f.Amounts = slices.Clone(tenancy.SortGrants(f.Given)), slices.Clone(align.Normal(f.Amounts))
	fr := &frame{facts: f}
	if m == nil {
		return fr
	}
	online := m.Online()
	cpu := &f.Model.Config.CPU
	if cpu.Static {
		fr.kubeletReserved = cpu.Reserved.Intersect(online)
	}
	fr.base = online.Minus(f.NodeReserved).Minus(f.System)
	if cpu.StrictReservation {
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
		fr.capacity = append(fr.capacity, count.Free)
		fr.coreCapacity = append(fr.coreCapacity, count.FreeCores)
	}
	align.LargestFirst(fr.capacity)
	align.LargestFirst(fr.coreCapacity)
	fr.rows = align.Rows(m, f.Amounts)
	return fr
}
