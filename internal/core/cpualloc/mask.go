package cpualloc

import (
	"iter"
	"math/bits"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

type cpuSet = cpuset.Set

// allOf is the mask of the first n nodes.
func allOf(n int) NodeMask {
	if n >= 64 {
		return AllNodes
	}
	return 1<<n - 1
}

func (m NodeMask) has(i int) bool { return m&(1<<i) != 0 }

func (m NodeMask) len() int { return bits.OnesCount64(uint64(m)) }

// first is the position of the lowest node.
func (m NodeMask) first() int { return bits.TrailingZeros64(uint64(m)) }

// all yields the positions of the nodes in ascending order.
func (m NodeMask) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; m != 0; m &= m - 1 {
			if !yield(m.first()) {
				return
			}
		}
	}
}

// lowerThan orders masks of equal length by their lowest differing node: row 8 between sets of NUMA nodes.
func (m NodeMask) lowerThan(o NodeMask) bool {
	diff := m ^ o
	return m&(diff&-diff) != 0
}

// indexSet is a set of cores or L3 groups: a machine has at most one of each per CPU.
type indexSet[T ~uint16] [topo.MaxCPUs / 64]uint64

func (s *indexSet[T]) add(i T)      { s[i>>6] |= 1 << (i & 63) }
func (s *indexSet[T]) has(i T) bool { return s[i>>6]&(1<<(i&63)) != 0 }

type (
	coreSet = indexSet[topo.Core]
	l3Set   = indexSet[topo.L3]
)
