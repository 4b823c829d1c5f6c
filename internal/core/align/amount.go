package align

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Need is an amount of a resource that a pod asks for, wherever it is.
type Need struct {
	Resource why.Resource
	N        int64
}

// Amount is an amount of a resource on one NUMA node: what there is, or what a pod holds.
type Amount struct {
	NUMAID   int // kernel id
	Resource why.Resource
	N        int64 // bytes
}

// Hold is an amount that a pod holds, on a known machine.
type Hold struct {
	Node topo.NUMA
	Amount
}

// Holds translates amounts to a machine. What is on NUMA nodes without CPUs, or unknown ones, is left out.
func Holds(m *topo.Machine, amounts []Amount) []Hold {
	var out []Hold
	for _, a := range amounts {
		if node, ok := m.CPUNodeByID(a.NUMAID); ok {
			out = append(out, Hold{node, a})
		}
	}
	return out
}

// compare orders by NUMA node, then resource, ordinary memory first.
func compare(a, b Amount) int {
	return cmp.Or(cmp.Compare(a.NUMAID, b.NUMAID), compareResources(a.Resource, b.Resource))
}

// compareResources orders memory first, then by name.
func compareResources(a, b why.Resource) int {
	if a != b && (a == why.Memory || b == why.Memory) {
		if a == why.Memory {
			return -1
		}
		return 1
	}
	return cmp.Compare(a, b)
}

// Normal sorts a list, adds up what it says twice, and drops amounts of nothing. It returns list itself where that is
// so already.
func Normal(list []Amount) []Amount {
	if len(list) == 0 {
		return nil
	}
	normal := list[0].N > 0
	for i := 1; i < len(list) && normal; i++ {
		normal = list[i].N > 0 && compare(list[i-1], list[i]) < 0
	}
	if normal {
		return list
	}
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, compare)
	out := sorted[:0]
	for _, a := range sorted {
		switch last := len(out) - 1; {
		case a.N <= 0:
		case last >= 0 && compare(out[last], a) == 0:
			out[last].N = amount.Plus(out[last].N, a.N)
		default:
			out = append(out, a)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Resize returns amounts of which those of a resource add up to n, in proportion to what they were: what a pod holds
// after a resize on the NUMA nodes that it was given before. What does not divide is on the first of them. It returns
// the list itself where they add up to n already, and where there are none.
func Resize(list []Amount, resource why.Resource, n int64) []Amount {
	first, sum := -1, uint64(0)
	for i := range list {
		if list[i].Resource != resource {
			continue
		}
		if list[i].N < 0 {
			return list
		}
		if first < 0 {
			first = i
		}
		sum += uint64(list[i].N)
	}
	if n < 0 || sum == 0 || sum > math.MaxInt64 || sum == uint64(n) {
		return list
	}
	out, rest := slices.Clone(list), n
	for i := range out {
		if out[i].Resource == resource {
			high, low := bits.Mul64(uint64(out[i].N), uint64(n))
			part, _ := bits.Div64(high, low, sum) // at most n
			out[i].N = int64(part)
			rest -= out[i].N
		}
	}
	out[first].N += rest
	return Normal(out)
}
