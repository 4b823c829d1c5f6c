package topo_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/topo"
)

func TestPoolSharesEqualMachines(t *testing.T) {
	t.Parallel()
	var p topo.Pool
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
	for name, change := range map[string]func(*topo.Spec){
		"architecture": func(s *topo.Spec) { s.Arch = "arm64" },
		"CPU id":       func(s *topo.Spec) { s.CPUs[0].ID = 40 },
		"core id":      func(s *topo.Spec) { s.CPUs[0].Core, s.CPUs[2].Core = 5, 5 },
		"core":         func(s *topo.Spec) { s.CPUs[0].Core = 5 },
		"cache":        func(s *topo.Spec) { s.CPUs[0].L3 = 5 },
		"die":          func(s *topo.Spec) { s.CPUs[0].Die = 5 },
		"socket id": func(s *topo.Spec) {
			for i := range 4 {
				s.CPUs[i].Socket = 4
			}
		},
		"kind":      func(s *topo.Spec) { s.CPUs[0].Kind = topo.Efficiency },
		"offline":   func(s *topo.Spec) { s.CPUs[0].Offline = true },
		"isolated":  func(s *topo.Spec) { s.CPUs[0].Isolated = true },
		"NUMA node": func(s *topo.Spec) { s.NUMA = append(s.NUMA[:0:0], topo.NUMASpec{ID: 5}) },
		"NUMA id":   func(s *topo.Spec) { s.NUMA[1].ID = 6 },
		"memory":    func(s *topo.Spec) { s.NUMA[1].MemoryBytes++ },
		"distance":  func(s *topo.Spec) { s.NUMA[1].Distances[0]++ },
		"hugepages": func(s *topo.Spec) { s.NUMA[1].Hugepages[2<<20]++ },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := sparse()
			change(&spec)
			other := build(t, spec)
			if m.Equal(other) || other.Equal(m) || m.Fingerprint() == other.Fingerprint() {
				t.Errorf("machines that differ by %s are equal", name)
			}
		})
	}
	if same := build(t, sparse()); !m.Equal(same) || m.Fingerprint() != same.Fingerprint() {
		t.Error("equal machines differ")
	}
}

func TestAssumedDistancesEqualToldOnes(t *testing.T) {
	t.Parallel()
	cpus := []topo.CPUSpec{{ID: 0, NUMA: 0}, {ID: 1, Core: 1, NUMA: 1}}
	assumed := build(t, topo.Spec{CPUs: cpus})
	told := build(t, topo.Spec{CPUs: cpus, NUMA: []topo.NUMASpec{
		{ID: 0, Distances: []int{10, 20}, Hugepages: map[int64]int64{}}, {ID: 1, Distances: []int{20, 10}},
	}})
	if !assumed.Equal(told) {
		t.Error("a machine whose distances are assumed differs from one that tells the same")
	}
}

func large(tb testing.TB) topo.Spec {
	tb.Helper()
	var spec topo.Spec
	for i := range 512 {
		core := i % 256
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{ID: i, Core: core, L3: core / 8, Die: -1, Socket: core / 128, NUMA: core / 16})
	}
	return spec
}

// BenchmarkIntern is what an unchanged topology of a node costs the pool.
func BenchmarkIntern(b *testing.B) {
	var p topo.Pool
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
	m, twin := build(t, large(t)), build(t, large(t))
	if got := testing.AllocsPerRun(10, func() {
		m.CPUByID(17)
		m.NUMACPUs(3)
		m.NUMACores(3)
		m.CoreCPUs(m.CoreOf(300))
		m.Distance(1, 2)
		m.Equal(twin)
	}); got != 0 {
		t.Errorf("queries made %v allocations, want 0", got)
	}
}
