package suppress

import (
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// part is what best-effort pods may use of a NUMA node: of its CPUs that LSR pods have, or of the others.
type part struct {
	cores [][]int // those that have no place yet
	total int     // CPUs of all cores
	taken int     // CPUs of those that have a place
}

// Order returns the CPUs of pool in the order in which best-effort pods get them, each entry those of one core. lsr are
// CPUs that LSR pods have. The pool contains no CPU of an LSE pod.
func Order(m *topo.Machine, pool, lsr cpuset.Set) [][]int {
	byCore := map[topo.Core][]int{}
	for _, c := range pool.Slice() {
		byCore[m.CoreOf(topo.CPU(c))] = append(byCore[m.CoreOf(topo.CPU(c))], c)
	}
	byKey := map[[2]int]*part{}
	for _, core := range slices.Sorted(maps.Keys(byCore)) {
		cpus := byCore[core]
		key := [2]int{int(m.NUMAOf(topo.CPU(cpus[0]))), 0}
		if slices.ContainsFunc(cpus, lsr.Has) {
			key[1] = 1
		}
		if byKey[key] == nil {
			byKey[key] = &part{}
		}
		p := byKey[key]
		p.cores, p.total = append(p.cores, cpus), p.total+len(cpus)
	}
	keys := slices.SortedFunc(maps.Keys(byKey), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	order := make([][]int, 0, len(byCore))
	for all, placed := pool.Len(), 0; placed < all; {
		var next *part
		most := 0
		for _, key := range keys {
			p := byKey[key]
			if lacks := p.total*(placed+1) - p.taken*all; lacks > most {
				next, most = p, lacks
			}
		}
		order = append(order, next.cores[0])
		next.taken += len(next.cores[0])
		placed += len(next.cores[0])
		next.cores = next.cores[1:]
	}
	return order
}

// First returns the longest beginning of an order that has no more than n CPUs, and no fewer than MinCPUs as far as the
// order has them.
func First(order [][]int, n int) cpuset.Set {
	var set cpuset.Set
	size := 0
	for _, cpus := range order {
		if size >= MinCPUs && size+len(cpus) > n {
			break
		}
		for _, c := range cpus {
			set.Add(c)
		}
		size += len(cpus)
	}
	return set
}
