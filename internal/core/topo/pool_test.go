package topo_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit/vary"
)

func TestPoolSharesEqualMachines(t *testing.T) {
	t.Parallel()
	var p topo.Pool[*topo.Machine]
	first := p.Intern(build(t, sparse()))
	if again := p.Intern(build(t, sparse())); again != first {
		t.Error("equal machines are two values")
	}
	spec := sparse()
	spec.Arch = "arm64"
	if other := p.Intern(build(t, spec)); other == first {
		t.Error("different machines are one value")
	}
}

func TestMachinesDifferByEveryFact(t *testing.T) {
	t.Parallel()
	m := build(t, sparse())
	spec, tried := sparse(), 0
	vary.Each(&spec, vary.Whole(map[int64]int64{2 << 20: 8}), func(field string) {
		other, err := topo.New(spec)
		if err != nil {
			return // no machine at all
		}
		tried++
		if m.Equal(other) || other.Equal(m) {
			t.Errorf("machines that differ by Spec%s are equal", field)
		}
	})
	if tried < 50 {
		t.Errorf("%d changes of a machine tried", tried)
	}
	if same := build(t, sparse()); !m.Equal(same) {
		t.Error("equal machines differ")
	}
}

func TestAssumedDistancesEqualReportedOnes(t *testing.T) {
	t.Parallel()
	cpus := []topo.CPUSpec{{ID: 0, NUMA: 0}, {ID: 1, Core: 1, NUMA: 1}}
	assumed := build(t, topo.Spec{CPUs: cpus})
	reported := build(t, topo.Spec{CPUs: cpus, NUMA: []topo.NUMASpec{
		{ID: 0, Distances: []int{10, 20}, Hugepages: map[int64]int64{}}, {ID: 1, Distances: []int{20, 10}},
	}})
	if !assumed.Equal(reported) {
		t.Error("a machine whose distances are assumed differs from one that reports the same")
	}
}

func large(tb testing.TB) topo.Spec {
	tb.Helper()
	var spec topo.Spec
	for i := range 512 {
		core := i % 256
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{
			ID: i, Core: core, L3: core / 8, Socket: core / 128,
			NUMA: core / 16,
		})
	}
	return spec
}

// BenchmarkIntern is what an unchanged topology of a node costs the pool.
func BenchmarkIntern(b *testing.B) {
	var p topo.Pool[*topo.Machine]
	p.Intern(build(b, large(b)))
	m := build(b, large(b))
	b.ReportAllocs()
	for b.Loop() {
		p.Intern(m)
	}
}

func BenchmarkNew(b *testing.B) {
	spec := large(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := topo.New(spec); err != nil {
			b.Fatal(err)
		}
	}
}

func TestQueriesAllocateNothing(t *testing.T) {
	m, second := build(t, large(t)), build(t, large(t))
	if got := testing.AllocsPerRun(10, func() {
		m.CPUByID(17)
		m.NUMACPUs(3)
		m.NUMACores(3)
		m.CoreCPUs(m.CoreOf(300))
		m.Distance(1, 2)
		m.Equal(second)
	}); got != 0 {
		t.Errorf("queries made %v allocations, want 0", got)
	}
}
