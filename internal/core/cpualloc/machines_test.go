package cpualloc_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// grid is a regular machine. As Linux numbers them, all first threads come before all second ones.
type grid struct {
	sockets, nodes, cores, threads int // nodes per socket, cores per node, threads per core
	coresPerL3                     int // 0 = one L3 per node
}

func (g grid) spec() topo.Spec {
	var spec topo.Spec
	cores := g.sockets * g.nodes * g.cores
	perL3 := g.coresPerL3
	if perL3 == 0 {
		perL3 = g.cores
	}
	for thread := range g.threads {
		for core := range cores {
			node := core / g.cores
			spec.CPUs = append(spec.CPUs, topo.CPUSpec{
				ID: thread*cores + core, Core: core, L3: core / perL3, Socket: node / g.nodes, NUMA: node,
			})
		}
	}
	return spec
}

func (g grid) machine(tb testing.TB) *topo.Machine {
	tb.Helper()
	return machine(tb, g.spec())
}

func machine(tb testing.TB, spec topo.Spec) *topo.Machine {
	tb.Helper()
	m, err := topo.New(spec)
	if err != nil {
		tb.Fatalf("machine: %v", err)
	}
	return m
}

// seed000 is the machine of the worked examples: 2 sockets × 2 NUMA nodes × 4 cores × 2 threads, CPU c beside c+16.
var seed000 = grid{sockets: 2, nodes: 2, cores: 4, threads: 2}
