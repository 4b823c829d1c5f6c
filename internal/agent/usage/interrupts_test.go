package usage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/usage"
)

// fired sets how often a network card and the timer have fired on some CPUs since the boot.
func (n *node) fired(cpus string, card, timer int) {
	n.t.Helper()
	columns := strings.Count(cpus, "CPU")
	row := func(name string, count int) string {
		line := name + ":"
		for range columns {
			line += fmt.Sprintf(" %d", count)
		}
		return line
	}
	n.write("proc/interrupts", cpus+"\n"+row("24", card)+" PCI-MSIX 0-edge eth0\n"+row("LOC", timer)+
		" Local timer interrupts\n")
}

// TestInterruptsAreReportedOfPodsWithCPUsOfTheirOwn has a report each ten seconds.
func TestInterruptsAreReportedOfPodsWithCPUsOfTheirOwn(t *testing.T) {
	t.Parallel()
	rate := func(devices, kernel int64) *slo.InterruptRate {
		r := &slo.InterruptRate{Devices: devices, Kernel: kernel}
		if devices > 0 {
			r.Busiest = "24 (eth0)"
		}
		return r
	}
	const every = "CPU0 CPU1 CPU2 CPU3"
	two, fire := []int{2, 3}, func(n *node) { n.fired(every, 150, 2600) }
	for name, c := range map[string]struct {
		cpus [2][]int // of the pod, at the two reports
		then func(n *node)
		want *slo.InterruptRate
	}{
		"its CPUs":             {[2][]int{two, two}, fire, rate(10, 500)},
		"none of its own":      {[2][]int{nil, nil}, fire, nil},
		"since this report":    {[2][]int{nil, two}, fire, nil},
		"other CPUs than then": {[2][]int{{1}, two}, fire, nil},
		"nothing fires":        {[2][]int{two, two}, func(*node) {}, rate(0, 0)},
		"one went offline": {
			[2][]int{two, two}, func(n *node) { n.fired("CPU0 CPU1 CPU2", 150, 2600) }, rate(5, 250),
		},
		"the file is gone": {[2][]int{two, two}, func(n *node) {
			if err := os.Remove(filepath.Join(n.dir, "proc/interrupts")); err != nil {
				t.Error(err)
			}
		}, nil},
		"the file cannot be read": {[2][]int{two, two}, func(n *node) {
			if err := os.Remove(filepath.Join(n.dir, "proc/interrupts")); err != nil {
				t.Error(err)
			}
			n.mkdir("proc/interrupts")
		}, nil},
		"the file is of another kind": {
			[2][]int{two, two}, func(n *node) { n.write("proc/interrupts", "none\n") }, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, false)
			n.fired(every, 100, 100)
			report := func(cpus []int) *slo.InterruptRate {
				for range 10 {
					n.pod("p", n.now.Sub(start).Seconds()/10, 100, 10)
					n.tick(time.Second)
				}
				status := n.c.Status(nil, []usage.Pod{{UID: "p", Name: "p", CPUs: cpus}}, n.now)
				if status == nil || len(status.PodsMetric) != 1 {
					t.Fatalf("the report is %+v, want one pod", status)
				}
				return status.PodsMetric[0].Extension().Interrupts
			}
			if got := report(c.cpus[0]); got != nil {
				t.Errorf("the first report says %+v, want nothing", got)
			}
			c.then(n)
			if diff := cmp.Diff(c.want, report(c.cpus[1])); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
