package ledger_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

func worked(tb testing.TB) *topo.Machine {
	tb.Helper()
	return grid.Worked().Build(tb)
}

// drawMachine draws a small machine, at times with sparse ids and offline CPUs.
func drawMachine(t *rapid.T) *topo.Machine {
	return grid.Machine{
		Sockets: rapid.IntRange(1, 2).Draw(t, "sockets"),
		Nodes:   rapid.IntRange(1, 3).Draw(t, "NUMA nodes per socket"),
		Cores:   rapid.IntRange(1, 4).Draw(t, "cores per NUMA node"),
		Threads: rapid.IntRange(1, 2).Draw(t, "threads"),
		Stride:  rapid.IntRange(1, 2).Draw(t, "stride of ids"),
		Offline: rapid.SliceOfN(rapid.IntRange(1, 48), 0, 3).Draw(t, "offline"),
	}.Build(t)
}
