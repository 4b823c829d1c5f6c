package align

import (
	"iter"
	"slices"
	"strconv"
	"strings"

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
	Resource why.Resource
	// Page is what the resource is handed out in: the size of a hugepage in bytes, 1 for ordinary memory. Every need is
	// a multiple.
	Page int64
	// Free is what one more pod can have on each NUMA node, in whole pages; 0 where pods hold more than there is.
	Free []int64
	// Capacity holds, at k-1, the most that k NUMA nodes have when no pod holds any.
	Capacity []int64
	// Apart is what NUMA nodes without CPUs have in all. Pods are not placed there, so it is not counted down.
	Apart int64
}

// Equal reports whether two rows are the same.
func (r *Row) Equal(o *Row) bool {
	return r.Resource == o.Resource && r.Page == o.Page && r.Apart == o.Apart && slices.Equal(r.Free, o.Free) &&
		slices.Equal(r.Capacity, o.Capacity)
}

// Rows adds up the amounts that a machine has of each resource by NUMA node with CPUs.
func Rows(m *topo.Machine, amounts []Amount) []Row {
	var rows []Row
	for _, h := range Holds(m, Normal(amounts)) {
		page, ok := PageSize(h.Resource)
		if !ok {
			continue
		}
		i, ok := slices.BinarySearchFunc(rows, h.Resource,
			func(r Row, resource why.Resource) int { return compareResources(r.Resource, resource) })
		if !ok {
			rows = slices.Insert(rows, i, Row{Resource: h.Resource, Page: page, Free: make([]int64, m.NumNUMA())})
		}
		free := rows[i].Free
		free[h.Node] = min(free[h.Node]+min(h.N, most), most)
	}
	rows = rows[:min(len(rows), MaxRows)]
	for _, a := range amounts {
		_, known := m.NUMAByID(a.NUMAID)
		_, hasCPUs := m.CPUNodeByID(a.NUMAID)
		if r := Find(rows, a.Resource); r != nil && known && !hasCPUs {
			r.Apart = min(r.Apart+min(max(a.N, 0), most), most)
		}
	}
	capacities := make([]int64, 0, len(rows)*m.NumNUMA()) // in one piece: who reads one reads them all
	for i := range rows {
		r := &rows[i]
		r.wholePages()
		first := len(capacities)
		capacities = append(capacities, r.Free...)
		r.Capacity = capacities[first:]
		topo.LargestFirst(r.Capacity)
		r.Capacity = r.Capacity[:m.NodesWithCPUs().Len()]
	}
	return rows
}

// wholePages rounds what is free down to whole pages.
func (r *Row) wholePages() {
	if r.Page > 1 {
		for node := range r.Free {
			r.Free[node] -= r.Free[node] % r.Page
		}
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
			if r := Find(left, h.Resource); r != nil {
				r.Free[h.Node] = max(r.Free[h.Node]-h.N, 0)
			}
		}
	}
	for i := range left {
		left[i].wholePages()
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

// Has reports whether a pod can have holds: no NUMA node gives more than is free there.
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
		if sum > r.Free[h.Node] {
			return false
		}
	}
	return true
}

// PageSize returns what a resource is handed out in: the size of a hugepage in bytes, 1 for ordinary memory. It returns
// false for a resource that has no rows.
func PageSize(resource why.Resource) (int64, bool) {
	if !HasRows(resource) {
		return 0, false
	}
	return pageSize(resource), true
}

// HasRows reports whether a resource has rows: ordinary memory, and hugepages of each size.
func HasRows(resource why.Resource) bool {
	return resource == why.Memory || strings.HasPrefix(string(resource), hugepages)
}

// hugepages begins the names of huge pages.
const hugepages = "hugepages-"

// pageSize reads the size in bytes of a hugepage out of a resource's name; 1 for ordinary memory and for names that
// cannot be read.
func pageSize(resource why.Resource) int64 {
	text, ok := strings.CutPrefix(string(resource), hugepages)
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
