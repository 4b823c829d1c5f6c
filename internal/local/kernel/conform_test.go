package kernel_test

import (
	"fmt"
	"testing"

	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/test/e2e/node/cgroup/rulebook"
)

// TestRulesOfTheKernel runs every story of the rulebook on the simulated kernel; a test that needs root runs the same
// stories on a real one.
func TestRulesOfTheKernel(t *testing.T) {
	t.Parallel()
	for _, s := range rulebook.Stories() {
		for _, d := range s.Dialects {
			for _, dir := range []string{"", testkit.Dir(t)} {
				t.Run(fmt.Sprintf("%v: %s, on disk %t", d, s.Name, dir != ""), func(t *testing.T) {
					t.Parallel()
					pair := grid.Machine{Cores: 2, NodeBytes: 1 << 30}.Build(t)
					k, err := kernel.Open(kernel.Options{Dir: dir, Dialect: d, Machine: pair})
					testkit.Check(t, err)
					s.Tell(t, rulebook.Simulated{Tree: k}, d)
				})
			}
		}
	}
}
