//go:build e2e_cgroup

package cgroup

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/test/e2e/node/cgroup/rulebook"
)

// TestKernelsAgree runs every story on the simulated kernel in both dialects, and those of this machine's dialect to
// its own kernel.
func TestKernelsAgree(t *testing.T) {
	pair := grid.Machine{Cores: 2, NodeBytes: 1 << 30}.Build(t)
	for _, s := range rulebook.Stories() {
		for _, d := range s.Dialects {
			t.Run(fmt.Sprintf("simulated %v: %s", d, s.Name), func(t *testing.T) {
				passed(t)
				k, err := kernel.Open(kernel.Options{Dialect: d, Machine: pair})
				testkit.Check(t, err)
				s.Tell(t, rulebook.Simulated{Tree: k}, d)
			})
		}
		if !slices.Contains(s.Dialects, here.Dialect()) {
			continue
		}
		t.Run(fmt.Sprintf("real %v: %s", here.Dialect(), s.Name), func(t *testing.T) {
			passed(t)
			s.Tell(t, here, here.Dialect())
		})
	}
}

// TestTheKernelDescribedIsThisOne: a hybrid host's unified hierarchy must not be taken for cgroup v2.
func TestTheKernelDescribedIsThisOne(t *testing.T) {
	passed(t)
	for _, file := range []string{desired.CPUs, desired.Mems} {
		if text, err := here.Read("", file); err != nil || text == "" && here.Dialect() == desired.V1 {
			t.Errorf("%s of the test's group is %q, %v: want the root group's", file, text, err)
		}
	}
}
