package cpualloc

import (
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

type cpuSet = cpuset.Set

// indexSet is a set of cores or L3 groups: a machine has at most one of each per CPU.
type indexSet[T ~uint16] [topo.MaxCPUs / 64]uint64

func (s *indexSet[T]) add(i T)      { s[i>>6] |= 1 << (i & 63) }
func (s *indexSet[T]) has(i T) bool { return s[i>>6]&(1<<(i&63)) != 0 }

type (
	coreSet = indexSet[topo.Core]
	l3Set   = indexSet[topo.L3]
)
