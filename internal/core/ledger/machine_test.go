package ledger_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// shape is a regular machine: CPU c of thread 0 has its siblings at c+cores, c+2·cores…, as Linux numbers x86.
type shape struct {
	sockets, numaPerSocket, coresPerNUMA, threads int
	stride                                        int // kernel ids are stride apart, 1 = dense
	offline                                       map[int]bool
}

func (s shape) spec() topo.Spec {
	cores := s.sockets * s.numaPerSocket * s.coresPerNUMA
	var spec topo.Spec
	for i := range cores * s.threads {
		core := i % cores
		numa := core / s.coresPerNUMA
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{
			ID: i * s.stride, Core: core, L3: -1, Socket: numa / s.numaPerSocket, NUMA: numa,
			Offline: s.offline[i],
		})
	}
	return spec
}

func build(tb testing.TB, s shape) *topo.Machine {
	tb.Helper()
	m, err := topo.New(s.spec())
	if err != nil {
		tb.Fatalf("topo.New: %v", err)
	}
	return m
}

// worked is the machine of the worked example of seed 000: 2 sockets × 2 NUMA nodes × 4 cores × 2 threads.
func worked(tb testing.TB) *topo.Machine {
	tb.Helper()
	return build(tb, shape{2, 2, 4, 2, 1, nil})
}

// drawMachine draws a small machine, at times with sparse ids and offline CPUs.
func drawMachine(t *rapid.T) *topo.Machine {
	s := shape{
		sockets:       rapid.IntRange(1, 2).Draw(t, "sockets"),
		numaPerSocket: rapid.IntRange(1, 3).Draw(t, "NUMA nodes per socket"),
		coresPerNUMA:  rapid.IntRange(1, 4).Draw(t, "cores per NUMA node"),
		threads:       rapid.IntRange(1, 2).Draw(t, "threads"),
		stride:        rapid.IntRange(1, 2).Draw(t, "stride of ids"),
		offline:       map[int]bool{},
	}
	for _, c := range rapid.SliceOfN(rapid.IntRange(1, 48), 0, 3).Draw(t, "offline") {
		s.offline[c] = true
	}
	m, err := topo.New(s.spec())
	if err != nil {
		t.Fatalf("topo.New: %v", err)
	}
	return m
}
