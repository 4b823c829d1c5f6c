//go:build e2e_cgroup

package cgroup

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/testkit"
)

var figure = flag.Int("figure", 0, "periods of 1 ms to measure for docs/guide/isolate.md; 0 for none")

// TestLatencyOfAPeriodicTask measures how late a task wakes up that sleeps for 1 ms, beside best-effort processes that
// burn all CPUs that they may use, and one that makes the network card interrupt without a pause. The interrupt has the
// CPU of the task as its only one at the beginning of each step, as irqbalance may choose. It prints YAML.
func TestLatencyOfAPeriodicTask(t *testing.T) {
	if *figure == 0 {
		t.Skip("NOT RUN: the figure of isolation (TENON_FIGURE=500 make test-guest)")
	}
	needsOwnMachine(t)
	reading, err := host.Read(machineRoot, "amd64")
	testkit.Check(t, err)
	isolated := reading.Machine.Isolated().Slice()
	if len(isolated) == 0 {
		t.Fatal("the boot isolated no CPU")
	}
	file := "/proc/irq/" + receiving(t) + "/smp_affinity_list"
	for round := range 3 {
		for _, step := range []struct {
			name  string
			role  qos.Role
			cpu   int
			steer bool
			hogs  bool
		}{
			{"nothing else runs", qos.Exclusive, 2, false, false},
			{"shared pool", qos.SharedPool, 2, false, true},
			{"cpuset", qos.Exclusive, 2, false, true},
			{"cpuset, interrupts", qos.Exclusive, 2, true, true},
			{"cpuset, interrupts, isolcpus", qos.Exclusive, isolated[0], true, true},
		} {
			testkit.Check(t, os.WriteFile(file, fmt.Append(nil, step.cpu), 0o600))
			result := measureLateness(t, step.role, step.cpu, step.steer, step.hogs)
			fmt.Printf("- {round: %d, step: %q, cpu: %d, %s}\n", round, step.name, step.cpu, result)
		}
	}
}

// measureLateness runs one step.
func measureLateness(t *testing.T, role qos.Role, cpu int, steer, hogs bool) (result string) {
	t.Helper()
	t.Run("step", func(t *testing.T) {
		n := newNode(t)
		n.engine.SetFacts(ledger.Facts{Machine: n.m, MinSharedCPUs: -1, Isolated: n.m.Isolated(), NoTick: n.m.NoTick()})
		n.engine.Prune(none)
		list := ""
		if role == qos.Exclusive {
			list = fmt.Sprint(cpu)
		}
		task := n.bind("task", role, list)
		n.must(n.run(task))
		online := n.m.Online()
		for i := range online.Len() {
			if !hogs {
				break
			}
			hog := n.bind(fmt.Sprint("be", i), qos.BEPool, "")
			n.must(n.run(hog))
			order := "burn"
			if i == 0 {
				order = "storm"
			}
			_, err := here.tasks[hog.pid].say(order)
			n.must(err)
		}
		s, dir := newSteering(t), t.TempDir()
		s.pods[0].CPUs = []int{cpu}
		if steer {
			s.look(nil, dir, true)
		}
		var err error
		result, err = here.tasks[task.pid].say(fmt.Sprint("periodic ", *figure))
		s.look(nil, dir, false)
		n.must(err)
	})
	return result
}
