package cpualloc_test

import (
	"cmp"
	"testing"

	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// shape is a regular machine.
type shape struct {
	sockets, nodes, cores, threads int // nodes per socket, cores per node, threads per core
	coresPerL3                     int // 0 = one L3 per node
}

func (s shape) spec() topo.Spec {
	return grid.Machine{
		Sockets: s.sockets, Nodes: s.nodes, Cores: s.cores, Threads: s.threads,
		CoresL3: cmp.Or(s.coresPerL3, s.cores),
	}.Spec()
}

func (s shape) machine(tb testing.TB) *topo.Machine {
	tb.Helper()
	return grid.Build(tb, s.spec())
}

// seed000 is the machine of the worked examples: 2 sockets × 2 NUMA nodes × 4 cores × 2 threads, CPU c beside c+16.
var seed000 = shape{sockets: 2, nodes: 2, cores: 4, threads: 2}
