package align

import (
	"iter"
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// MaxRows is the number of resources that an account keeps: ordinary memory, and the others in order of their names. No
// architecture has more than four sizes of hugepages.
const MaxRows = 8

// most bounds what one NUMA node counts with, so that sums over all of them are exact.
const most = 1 << 56

// Row is one resource of a machine, by NUMA node. What NUMA nodes without CPUs have takes part in Apart alone.
type Row struct {
	Kind
	// Free is what one more pod can have on each NUMA node, in whole pages; 0 where pods hold more than there is.
	Free []int64
	// Capacity holds, at k-1, the most that k NUMA nodes have when no pod holds any.
	Capacity []int64
	// Apart is what NUMA nodes without CPUs have in all. Pods are not placed there, so it is not counted down.
	Apart int64

	// Units are what there is, Held what pods hold of them, by NUMA node; nil without a Chooser.
	Units, Held [][]Amount
}

// Equal reports whether two rows are the same.
func (r *Row) Equal(o *Row) bool {
	return r.Kind == o.Kind && r.Apart == o.Apart && slices.Equal(r.Free, o.Free) &&
		slices.Equal(r.Capacity, o.Capacity) &&
		slices.EqualFunc(r.Units, o.Units, slices.Equal[[]Amount]) &&
		slices.EqualFunc(r.Held, o.Held, slices.Equal[[]Amount])
}

// Rows adds up the amounts that a machine has of each resource by NUMA node with CPUs.
func Rows(t *Table, m *topo.Machine, amounts []Amount) []Row {
	var rows []Row
	for _, h := range Holds(m, Normal(amounts)) {
		kind, ok := t.Kind(h.Resource)
		if !ok {
			continue
		}
		i, ok := slices.BinarySearchFunc(rows, h.Resource,
			func(r Row, resource why.Resource) int { return compareResources(r.Resource, resource) })
		if !ok {
			rows = slices.Insert(rows, i, Row{Kind: kind, Free: make([]int64, m.NumNUMA())})
		}
		r := &rows[i]
		r.Free[h.Node] = min(r.Free[h.Node]+min(h.N, most), most)
		if kind.Chooser != nil {
			r.Units = grow(r.Units, m)
			r.Units[h.Node] = append(r.Units[h.Node], h.Amount)
		}
	}
	rows = rows[:min(len(rows), MaxRows)]
	for _, a := range amounts {
		_, known := m.NUMAByID(a.NUMAID)
		_, hasCPUs := m.CPUNodeByID(a.NUMAID)
		if r := Find(rows, a.Resource); r != nil && known && !hasCPUs {
			r.Apart = min(r.Apart+min(max(a.N, 0), most), most)
		}
	}
	for i := range rows {
		r := &rows[i]
		r.computeTotals()
		r.Capacity = slices.Clone(r.Free)
		LargestFirst(r.Capacity)
		r.Capacity = r.Capacity[:m.NodesWithCPUs().Len()]
	}
	return rows
}

// grow returns lists by NUMA node, and makes them at the first use.
func grow(byNode [][]Amount, m *topo.Machine) [][]Amount {
	if byNode == nil {
		return make([][]Amount, m.NumNUMA())
	}
	return byNode
}

// computeTotals computes what each node has free: units that can be used together, in whole pages.
func (r *Row) computeTotals() {
	for node := range r.Units {
		var held []Amount
		if r.Held != nil {
			held = r.Held[node]
		}
		r.Free[node] = r.Chooser.Room(r.Units[node], held)
	}
	if r.Page > 1 {
		for node := range r.Free {
			r.Free[node] -= r.Free[node] % r.Page
		}
	}
}

// LargestFirst replaces counts by the sums of the k largest, k = 1….
func LargestFirst[T int | int64](counts []T) {
	slices.Sort(counts)
	slices.Reverse(counts)
	for i := 1; i < len(counts); i++ {
		counts[i] += counts[i-1]
	}
}

// Leave returns rows of which pods hold the given amounts. rows are those of Rows, and do not change.
func Leave(rows []Row, m *topo.Machine, pods iter.Seq[[]Hold]) []Row {
	if len(rows) == 0 {
		return nil
	}
	left := slices.Clone(rows)
	nodes := m.NumNUMA()
	free := make([]int64, 0, nodes*len(rows))
	for i := range left {
		free = append(free, rows[i].Free...)
		left[i].Free = free[i*nodes : (i+1)*nodes : (i+1)*nodes]
	}
	for holds := range pods {
		for i := range holds {
			h := &holds[i]
			switch r := Find(left, h.Resource); {
			case r == nil:
			case r.Chooser == nil:
				r.Free[h.Node] = max(r.Free[h.Node]-h.N, 0)
			default:
				r.Held = grow(r.Held, m)
				r.Held[h.Node] = append(r.Held[h.Node], h.Amount)
			}
		}
	}
	for i := range left {
		left[i].computeTotals()
	}
	return left
}

// Find returns the row of a resource; nil when nothing is known of it on this machine.
func Find(rows []Row, resource why.Resource) *Row {
	for i := range rows {
		if rows[i].Resource == resource {
			return &rows[i]
		}
	}
	return nil
}

// Has reports whether a pod can have holds: no NUMA node gives more than is free there, and no unit more than pods
// leave of it.
func Has(rows []Row, holds []Hold) bool {
	for i := range holds {
		h := &holds[i]
		r := Find(rows, h.Resource)
		if r == nil {
			continue
		}
		sum := int64(0)
		for j := range holds {
			if o := &holds[j]; o.Resource == h.Resource && o.Node == h.Node {
				sum += min(o.N, most)
			}
		}
		if sum > r.Free[h.Node] || r.Chooser != nil && h.N > r.left(h) {
			return false
		}
	}
	return true
}

// left returns what is free of the unit of a hold.
func (r *Row) left(h *Hold) int64 {
	sum := sumOf(r.Units[h.Node], h.Unit)
	if r.Held != nil {
		sum -= sumOf(r.Held[h.Node], h.Unit)
	}
	return sum
}

// sumOf adds up the amounts of one unit.
func sumOf(list []Amount, unit string) int64 {
	sum := int64(0)
	for i := range list {
		if list[i].Unit == unit {
			sum += list[i].N
		}
	}
	return sum
}

// Choose returns what a pod takes that has n of the row on a NUMA node, at most what is free there.
func (r *Row) Choose(m *topo.Machine, node topo.NUMA, n int64) []Amount {
	switch {
	case r.Chooser == nil:
		return []Amount{{NUMAID: m.NUMAID(node), Resource: r.Resource, N: n}}
	case r.Held == nil:
		return r.Chooser.Choose(r.Units[node], nil, n)
	}
	return r.Chooser.Choose(r.Units[node], r.Held[node], n)
}
