package align_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

const (
	huge2 = why.Resource("hugepages-2Mi")
	huge1 = why.Resource("hugepages-1Gi")
	// most is what one NUMA node counts with at most.
	most = int64(1) << 56
)

// apart builds a machine with NUMA nodes 0 and 1 that have CPUs, and node 2 that has none.
func apart(t *testing.T) *topo.Machine {
	t.Helper()
	spec := grid.Machine{Sockets: 2, Cores: 2, NodeBytes: 1}.Spec()
	spec.NUMA = append(spec.NUMA, topo.NUMASpec{ID: 2, MemoryBytes: 1})
	return grid.Build(t, spec)
}

func memory(numa int, n int64) align.Amount {
	return align.Amount{NUMAID: numa, Resource: why.Memory, N: n}
}

func pages(numa int, resource why.Resource, n int64) align.Amount {
	return align.Amount{NUMAID: numa, Resource: resource, N: n}
}

func TestNormal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ list, want []align.Amount }{
		"nothing":  {},
		"in order": {[]align.Amount{memory(0, 1), pages(0, huge1, 2), pages(0, huge2, 3), memory(1, 4)}, nil},
		"by node":  {[]align.Amount{memory(1, 4), memory(0, 1)}, []align.Amount{memory(0, 1), memory(1, 4)}},
		"memory first": {
			[]align.Amount{pages(0, huge2, 3), memory(0, 1)},
			[]align.Amount{memory(0, 1), pages(0, huge2, 3)},
		},
		"then by name": {
			[]align.Amount{pages(0, huge2, 3), pages(0, huge1, 1)},
			[]align.Amount{pages(0, huge1, 1), pages(0, huge2, 3)},
		},
		"said twice": {[]align.Amount{memory(0, 1), memory(0, 2)}, []align.Amount{memory(0, 3)}},
		"said twice, far apart": {
			[]align.Amount{memory(0, 1), memory(1, 5), memory(0, 2)},
			[]align.Amount{memory(0, 3), memory(1, 5)},
		},
		"the first is nothing": {[]align.Amount{memory(0, 0), memory(1, 1)}, []align.Amount{memory(1, 1)}},
		"a later one is nothing": {
			[]align.Amount{memory(0, 1), memory(1, 0), memory(2, 1)}, []align.Amount{memory(0, 1), memory(2, 1)},
		},
		"less than nothing":    {[]align.Amount{memory(0, -5), memory(0, 2)}, []align.Amount{memory(0, 2)}},
		"all of it is nothing": {[]align.Amount{memory(0, 0), memory(1, -1)}, []align.Amount{}},
		"beyond what is counted": {
			[]align.Amount{memory(0, math.MaxInt64-1), memory(0, 7)}, []align.Amount{memory(0, math.MaxInt64)},
		},
	} {
		before, want := slices.Clone(c.list), c.want
		if want == nil {
			want = c.list
		}
		got := align.Normal(c.list)
		if !slices.Equal(want, got) || len(want) == 0 && got != nil {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
		if !slices.Equal(before, c.list) {
			t.Errorf("%s: the list became %v", name, c.list)
		}
	}
	list := []align.Amount{memory(0, 1), memory(1, 1)}
	if got := align.Normal(list); &got[0] != &list[0] {
		t.Error("a list in order was copied")
	}
}

func TestResizeKeepsWhatCannotBeDivided(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		list []align.Amount
		n    int64
	}{
		"none of the resource":    {[]align.Amount{pages(0, huge2, 2)}, 7},
		"amounts of nothing":      {[]align.Amount{memory(0, 0)}, 7},
		"a negative amount":       {[]align.Amount{memory(0, 4), memory(1, -1)}, 7},
		"a negative sum":          {[]align.Amount{memory(0, 4)}, -1},
		"a sum beyond all counts": {[]align.Amount{memory(0, math.MaxInt64), memory(1, math.MaxInt64)}, 7},
		"the sum that it has":     {[]align.Amount{memory(1, 4), memory(0, 3)}, 7},
	} {
		if got := align.Resize(c.list, why.Memory, c.n); !slices.Equal(got, c.list) {
			t.Errorf("%s: got %v", name, got)
		}
	}
	want := []align.Amount{memory(1, 3)}
	if got := align.Resize([]align.Amount{memory(0, 0), memory(1, 9)}, why.Memory, 3); !slices.Equal(got, want) {
		t.Errorf("nothing on the first node: got %v, want %v", got, want)
	}
	if got := align.Resize([]align.Amount{memory(0, 2), memory(1, 1)}, why.Memory, 0); got != nil {
		t.Errorf("resized to nothing: got %v", got)
	}
}

func TestRowsAddUpByNode(t *testing.T) {
	t.Parallel()
	m := apart(t)
	got := align.Rows(m, []align.Amount{
		pages(1, huge2, 5<<20), memory(1, 10), memory(0, 3), memory(0, 4), pages(0, huge1, 1<<30-1),
		memory(2, 6), memory(2, -6), memory(9, 100),
		{NUMAID: 0, Resource: "example.com/fpga", N: 1},
	})
	want := []align.Row{
		{Resource: why.Memory, Page: 1, Free: []int64{7, 10, 0}, Capacity: []int64{10, 17}, Apart: 6},
		{Resource: huge1, Page: 1 << 30, Free: []int64{0, 0, 0}, Capacity: []int64{0, 0}},
		{Resource: huge2, Page: 2 << 20, Free: []int64{0, 4 << 20, 0}, Capacity: []int64{4 << 20, 4 << 20}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := align.Rows(m, nil); got != nil {
		t.Errorf("of nothing: got %v", got)
	}
	got = align.Rows(m, []align.Amount{memory(0, most+5), memory(2, math.MaxInt64), memory(2, 1)})
	want = []align.Row{
		{Resource: why.Memory, Page: 1, Free: []int64{most, 0, 0}, Capacity: []int64{most, most}, Apart: most},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("more than is counted (-want +got):\n%s", diff)
	}
}

func TestRowsAreBounded(t *testing.T) {
	t.Parallel()
	var amounts []align.Amount
	for _, size := range []string{"1Ki", "2Ki", "3Ki", "4Ki", "5Ki", "6Ki", "7Ki", "8Ki", "9Ki"} {
		amounts = append(amounts, pages(0, why.Resource("hugepages-"+size), 1<<20))
	}
	rows := align.Rows(apart(t), append(amounts, memory(0, 1)))
	if len(rows) != align.MaxRows || rows[0].Resource != why.Memory || rows[7].Resource != "hugepages-7Ki" {
		t.Errorf("got %v", rows)
	}
}

func TestLeaveTakesWhatPodsHold(t *testing.T) {
	t.Parallel()
	m := apart(t)
	rows := align.Rows(m, []align.Amount{memory(0, 10), memory(1, 20), pages(1, huge2, 8<<20)})
	before := []align.Row{rows[0], rows[1]}
	for i := range before {
		before[i].Free = slices.Clone(before[i].Free)
	}
	left := align.Leave(rows, m, slices.Values([][]align.Hold{
		align.Holds(m, []align.Amount{memory(0, 4), memory(1, 5), pages(1, huge2, 1<<20), memory(2, 9), memory(7, 9)}),
		align.Holds(m, []align.Amount{memory(0, 7), pages(0, huge1, 1<<30)}),
		align.Holds(m, []align.Amount{memory(1, 2)}),
	}))
	want := [][]int64{{0, 13, 0}, {0, 6 << 20, 0}}
	if len(left) != 2 || !slices.Equal(left[0].Free, want[0]) || !slices.Equal(left[1].Free, want[1]) {
		t.Errorf("got %v, want %v", left, want)
	}
	for i := range rows {
		if !rows[i].Equal(&before[i]) {
			t.Errorf("the rows became %v", rows[i])
		}
	}
	if got := align.Leave(nil, m, slices.Values([][]align.Hold{})); got != nil {
		t.Errorf("of no rows: got %v", got)
	}
}

func TestRowsAreEqual(t *testing.T) {
	t.Parallel()
	row := func() align.Row {
		return align.Row{Resource: huge2, Page: 2, Free: []int64{1}, Capacity: []int64{3}, Apart: 4}
	}
	a, b := row(), row()
	if !a.Equal(&b) {
		t.Error("two equal rows are not")
	}
	for name, change := range map[string]func(*align.Row){
		"resource": func(r *align.Row) { r.Resource = huge1 },
		"page":     func(r *align.Row) { r.Page++ },
		"free":     func(r *align.Row) { r.Free[0]++ },
		"capacity": func(r *align.Row) { r.Capacity[0]++ },
		"apart":    func(r *align.Row) { r.Apart++ },
	} {
		other := row()
		change(&other)
		if a.Equal(&other) {
			t.Errorf("%s: two different rows are equal", name)
		}
	}
}

func TestHas(t *testing.T) {
	t.Parallel()
	m := apart(t)
	rows := align.Rows(m, []align.Amount{memory(0, 10), memory(1, 4), pages(0, huge2, 2<<20)})
	for name, c := range map[string]struct {
		holds []align.Amount
		want  bool
	}{
		"nothing":                       {nil, true},
		"all that is free":              {[]align.Amount{memory(0, 10)}, true},
		"one more than is free":         {[]align.Amount{memory(0, 11)}, false},
		"on the other node":             {[]align.Amount{memory(1, 5)}, false},
		"on each node what is free":     {[]align.Amount{memory(0, 10), memory(1, 4)}, true},
		"twice on one node, together":   {[]align.Amount{memory(0, 5), memory(0, 5)}, true},
		"twice on one node, too much":   {[]align.Amount{memory(0, 6), memory(0, 5)}, false},
		"of two resources":              {[]align.Amount{memory(0, 10), pages(0, huge2, 2<<20)}, true},
		"the second resource, too much": {[]align.Amount{memory(0, 10), pages(0, huge2, 4<<20)}, false},
		"a resource without a row":      {[]align.Amount{pages(0, huge1, 1<<30), memory(0, 11)}, false},
		"a resource without a row only": {[]align.Amount{pages(0, huge1, 1<<30)}, true},
		"amounts that would overflow":   {[]align.Amount{memory(0, math.MaxInt64), memory(0, math.MaxInt64)}, false},
	} {
		if got := align.Has(rows, align.Holds(m, c.holds)); got != c.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
