package ledger

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// OrdinaryMemory is the type of memory other than hugepages.
const OrdinaryMemory = "memory"

// MaxMemoryTypes is the number of memory types that an account keeps: ordinary memory, and hugepages in order of their
// names. No architecture has more than five.
const MaxMemoryTypes = 8

// mostBytes bounds what one NUMA node counts with, so that sums over all of them are exact.
const mostBytes = 1 << 56

// Memory is an amount of one type of memory on one NUMA node.
type Memory struct {
	NUMAID int    // kernel id
	Type   string // OrdinaryMemory, "hugepages-2Mi", …
	Bytes  int64
}

// MemorySummary is one type of memory in a Summary. Memory of NUMA nodes without CPUs takes no
// part.
type MemorySummary struct {
	Type string
	// Page is what the type is handed out in: the size of a hugepage in bytes, 1 for ordinary memory.
	Page int64
	// Free is what entries leave of each NUMA node's allocatable amount in bytes, in whole pages; 0 where they hold
	// more.
	Free []int64
	// Capacity holds, at k-1, the most that k NUMA nodes have when no pod holds any.
	Capacity []int64
}

func (s *MemorySummary) equal(o *MemorySummary) bool {
	return s.Type == o.Type && s.Page == o.Page && slices.Equal(s.Free, o.Free) && slices.Equal(s.Capacity, o.Capacity)
}

// MemoryOf returns the summary of one type of memory; nil when nothing is known of it on this machine.
func (s *Summary) MemoryOf(kind string) *MemorySummary {
	for i := range s.Memory {
		if s.Memory[i].Type == kind {
			return &s.Memory[i]
		}
	}
	return nil
}

// PageSize reads the size in bytes of a hugepage out of a type's name; 1 for ordinary memory and for names that cannot
// be read.
func PageSize(kind string) int64 {
	text, ok := strings.CutPrefix(kind, "hugepages-")
	if !ok {
		return 1
	}
	shift := 0
	for i, suffix := range [...]string{"Ki", "Mi", "Gi", "Ti"} {
		if number, found := strings.CutSuffix(text, suffix); found {
			text, shift = number, 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(text, 10, 20)
	if err != nil || n == 0 {
		return 1
	}
	return int64(n) << shift
}

// compareMemory orders by NUMA node, then type, ordinary memory first.
func compareMemory(a, b Memory) int {
	return cmp.Or(cmp.Compare(a.NUMAID, b.NUMAID), compareTypes(a.Type, b.Type))
}

func compareTypes(a, b string) int {
	if a != b && (a == OrdinaryMemory || b == OrdinaryMemory) {
		if a == OrdinaryMemory {
			return -1
		}
		return 1
	}
	return cmp.Compare(a, b)
}

// normalMemory sorts a list, adds up what it says twice of one type on one NUMA node, and drops amounts of nothing. It
// returns list itself where that is so already.
func normalMemory(list []Memory) []Memory {
	if len(list) == 0 {
		return nil
	}
	normal := list[0].Bytes > 0
	for i := 1; i < len(list) && normal; i++ {
		normal = list[i].Bytes > 0 && compareMemory(list[i-1], list[i]) < 0
	}
	if normal {
		return list
	}
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, compareMemory)
	out := sorted[:0]
	for _, m := range sorted {
		switch last := len(out) - 1; {
		case m.Bytes <= 0:
		case last >= 0 && compareMemory(out[last], m) == 0:
			out[last].Bytes += min(m.Bytes, math.MaxInt64-out[last].Bytes)
		default:
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// memoryTypes adds up what the facts say of each type by NUMA node with CPUs.
func memoryTypes(m *topo.Machine, list []Memory) []MemorySummary {
	var types []MemorySummary
	for _, a := range normalMemory(list) {
		node, ok := cpuNode(m, a.NUMAID)
		if !ok {
			continue
		}
		i, ok := slices.BinarySearchFunc(types, a.Type,
			func(t MemorySummary, kind string) int { return compareTypes(t.Type, kind) })
		if !ok {
			fresh := MemorySummary{Type: a.Type, Page: PageSize(a.Type), Free: make([]int64, m.NumNUMA())}
			types = slices.Insert(types, i, fresh)
		}
		types[i].Free[node] = min(a.Bytes, mostBytes) / types[i].Page * types[i].Page
	}
	types = types[:min(len(types), MaxMemoryTypes)]
	for i := range types {
		types[i].Capacity = slices.Clone(types[i].Free)
		largestFirst(types[i].Capacity)
		types[i].Capacity = types[i].Capacity[:m.NodesWithCPUs().Len()]
	}
	return types
}

// holding is one amount of an entry translated to a machine.
type holding struct {
	node  topo.NUMA
	kind  string
	bytes int64
}

func holdingsOf(m *topo.Machine, list []Memory) []holding {
	var out []holding
	for _, a := range list {
		if node, ok := cpuNode(m, a.NUMAID); ok {
			out = append(out, holding{node, a.Type, a.Bytes})
		}
	}
	return out
}

// chargeMemory computes what the entries leave of each type.
func (v *View) chargeMemory() {
	types := v.memory
	if len(types) == 0 {
		return
	}
	s := &v.summary
	s.Memory = slices.Clone(types)
	nodes := len(types[0].Free)
	free := make([]int64, 0, nodes*len(types))
	for i := range s.Memory {
		free = append(free, types[i].Free...)
		s.Memory[i].Free = free[i*nodes : (i+1)*nodes : (i+1)*nodes]
	}
	for _, a := range v.accounts {
		for _, h := range a.memory {
			if t := s.MemoryOf(h.kind); t != nil {
				t.Free[h.node] = max(t.Free[h.node]-h.bytes, 0)
			}
		}
	}
	for i := range s.Memory {
		if t := &s.Memory[i]; t.Page > 1 {
			for node := range t.Free {
				t.Free[node] -= t.Free[node] % t.Page
			}
		}
	}
}

// holdsMemory reports whether what a asks is free on every NUMA node.
func (v *View) holdsMemory(a *account) bool {
	for _, h := range a.memory {
		if t := v.summary.MemoryOf(h.kind); t != nil && t.Free[h.node] < h.bytes {
			return false
		}
	}
	return true
}
