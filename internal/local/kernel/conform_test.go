package kernel_test

import (
	"fmt"
	"testing"

	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/cgroup/rulebook"
)

// pair has CPUs 0 and 1 on one NUMA node.
func pair(t *testing.T) *topo.Machine {
	t.Helper()
	m, err := topo.New(topo.Spec{
		CPUs: []topo.CPUSpec{{ID: 0, Core: 0, L3: -1}, {ID: 1, Core: 1, L3: -1}},
		NUMA: []topo.NUMASpec{{MemoryBytes: 1 << 30}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRulesOfTheKernel runs every story of the rulebook on the simulated kernel; a test that needs root runs the same
// stories on a real one.
func TestRulesOfTheKernel(t *testing.T) {
	t.Parallel()
	for _, s := range rulebook.Stories() {
		for _, d := range s.Dialects {
			for _, dir := range []string{"", testkit.Dir(t)} {
				t.Run(fmt.Sprintf("%v: %s, on disk %t", d, s.Name, dir != ""), func(t *testing.T) {
					t.Parallel()
					k, err := kernel.Open(kernel.Options{Dir: dir, Dialect: d, Machine: pair(t)})
					if err != nil {
						t.Fatal(err)
					}
					s.Tell(t, rulebook.Simulated{Tree: k}, d)
				})
			}
		}
	}
}
