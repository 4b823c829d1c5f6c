package cpualloc_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// TestLimitedKeepsWhatTheBindPolicyCanUse compares the CPUs with the counts, and the whole cores with the most that any
// choice of whole cores below the cap gives.
func TestLimitedKeepsWhatTheBindPolicyCanUse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, err := topo.New(drawSpec(t))
		if err != nil {
			t.Skip(err)
		}
		s := drawState(t, m)
		for range m.NumNUMA() {
			s.Caps = append(s.Caps, rapid.IntRange(0, 6).Draw(t, "cap"))
		}
		full, spread := s.Limited(cpualloc.FullPCPUs), s.Limited(cpualloc.SpreadByPCPUs)
		for _, limited := range []cpualloc.State{full, spread} {
			if !limited.Free.SubsetOf(&s.Free) || limited.Caps != nil {
				t.Fatalf("of free %v remain %v, caps %v", s.Free, limited.Free, limited.Caps)
			}
		}
		for i := range m.NumNUMA() {
			n := topo.NUMA(i)
			before, limit := cpualloc.CountNode(m, n, &s.Free), s.Caps[i]
			got := cpualloc.CountNode(m, n, &full.Free)
			got.FreeCores = cpualloc.CountNode(m, n, &spread.Free).FreeCores
			if want := before.Limited(m, n, &s.Free, s.Caps[i]); got != want {
				t.Fatalf("NUMA node %d: %+v, the count says %+v", i, got, want)
			}
			if got.Free != min(before.Free, limit) || got.FreeCores != min(before.FreeCores, limit) {
				t.Fatalf("NUMA node %d: cap %d makes %+v of %+v", i, limit, got, before)
			}
			if best := mostWhole(m, n, s.Free, s.Caps[i]); got.FreeWhole != best {
				t.Fatalf("NUMA node %d: cap %d keeps %d CPUs on whole cores, %d are possible", i, limit, got.FreeWhole,
					best)
			}
		}
	})
}

// mostWhole tries every sum of whole free cores.
func mostWhole(m *topo.Machine, n topo.NUMA, free cpuset.Set, limit int) int {
	sums := map[int]bool{0: true}
	for _, core := range m.NUMACores(n) {
		var only cpuset.Set
		for _, c := range m.CoreCPUs(core) {
			if free.Has(int(c)) {
				only.Add(int(c))
			}
		}
		size := cpualloc.CountNode(m, n, &only).FreeWhole
		for sum := limit - size; sum >= 0; sum-- {
			if sums[sum] {
				sums[sum+size] = true
			}
		}
	}
	for sum := limit; ; sum-- {
		if sums[sum] {
			return sum
		}
	}
}

// TestFewestSocketsOfMany asks for CPUs that a machine of 32 sockets has on 19 of them and no fewer.
func TestFewestSocketsOfMany(t *testing.T) {
	t.Parallel()
	m := shape{sockets: 32, nodes: 2, cores: 8, threads: 2}.machine(t)
	got, reason := cpualloc.Allocate(cpualloc.State{Machine: m, Free: m.Online()}, cpualloc.Request{Count: 600})
	nodes := m.NodesOf(&got.CPUs)
	if sockets := m.SocketsOf(nodes); !reason.OK() || got.CPUs.Len() != 600 || sockets != 19 {
		t.Errorf("%d CPUs on %d sockets, NUMA nodes %s: %+v", got.CPUs.Len(), sockets, nodes, reason)
	}
}
