//go:build e2e_guest

package guest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/guest/vm"
)

// isolated is a machine that was booted with isolated CPUs.
var isolated = vm.Shape{
	Name: "isolated", Sockets: 2, Dies: 1, Cores: 3, Threads: 1, MemoryMiB: 768, Distance: [][]int{{10, 21}, {21, 10}},
	Kernel: "isolcpus=domain,managed_irq,4-5 nohz_full=4-5 rcu_nocbs=4-5",
}

// TestIsolation runs the tests of level 2 that set files of the machine, on a kernel that isolates CPUs.
func TestIsolation(t *testing.T) {
	g, err := found.image.Start(t.Context(), isolated, "", found.programs)
	testkit.Check(t, err)
	t.Cleanup(func() { testkit.Check(t, g.Stop()) })
	tally.mu.Lock()
	tally.guests++
	tally.mu.Unlock()
	for _, c := range []struct{ name, test string }{
		{"CPUs that the boot isolated are in no pool", "TestCPUsThatTheBootIsolatedAreInNoPool"},
		{"an interrupt leaves exclusive CPUs and comes back", "TestARealInterruptLeavesExclusiveCPUsAndComesBack"},
		{"an agent that is killed at any write leaves nothing changed", "TestAnAgentThatIsKilledAtAnyWrite"},
		{"a burst ends the throttling of a bursty load", "TestABurstEndsTheThrottlingOfABurstyLoad"},
	} {
		check(t, isolated, c.name, func(t *testing.T) {
			out := script(t, g, "cd /tmp && "+vm.Programs+"/cgroup.test -test.v -set-files -test.run '^"+c.test+"$'")
			if !strings.Contains(out, "--- PASS: "+c.test) {
				t.Fatalf("want --- PASS: %s\n%s", c.test, out)
			}
			t.Log(out)
		})
	}
}

// TestFigure measures what docs/guide/isolate.md shows, if TENON_FIGURE is a number of periods. Its machine is small,
// and its clock does not depend on what else the host does.
func TestFigure(t *testing.T) {
	periods := os.Getenv("TENON_FIGURE")
	if periods == "" {
		t.Skip("NOT RUN: the figure of isolation (TENON_FIGURE=500 make test-guest)")
	}
	shape := isolated
	shape.Name, shape.Cores, shape.Steady = "steady", 2, true
	shape.Kernel = "isolcpus=domain,managed_irq,3 nohz_full=3 rcu_nocbs=3"
	g, err := found.image.Start(t.Context(), shape, "", found.programs)
	testkit.Check(t, err)
	t.Cleanup(func() { testkit.Check(t, g.Stop()) })
	fmt.Println(script(t, g, "cd /tmp && "+vm.Programs+"/cgroup.test -test.v -set-files -figure "+periods+
		" -test.run '^TestLatencyOfAPeriodicTask$'"))
}

// kernelAgrees runs the tests of level 2 in the guest: the host may only have the other dialect of cgroups.
func kernelAgrees(t *testing.T, g *vm.Guest) {
	t.Helper()
	out := script(t, g, "cd /tmp && "+vm.Programs+"/cgroup.test -test.v -own-machine")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := lines[len(lines)-1]
	if !strings.HasPrefix(last, "level 2: ") || !strings.HasSuffix(last, "cases passed on cgroup v2") {
		t.Fatalf("the last line is %q, want level 2: N cases passed on cgroup v2\n%s", last, out)
	}
	t.Log(last)
}
