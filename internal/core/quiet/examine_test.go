package quiet_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/quiet"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// TestMeasuresAreFoundInTheOrderOfWorth has CPUs 0-7 on cores of two threads, c and c+4, and asks about a set of CPUs.
func TestMeasuresAreFoundInTheOrderOfWorth(t *testing.T) {
	t.Parallel()
	set := cpuset.MustParse
	all := quiet.Facts{
		Isolated: set("2-3,6-7"), NoTick: set("2-3,6-7"), NoCallbacks: set("2-3,6-7"), SparesManaged: true,
	}
	for name, c := range map[string]struct {
		cpus    string
		change  func(*quiet.Facts)
		offline string
		lacking map[quiet.Measure]string
	}{
		"all measures hold": {cpus: "2,6"},
		"one CPU is not isolated": {
			cpus: "1-2,5-6", lacking: map[quiet.Measure]string{
				quiet.Isolation: "1,5", quiet.Tick: "1,5", quiet.Callbacks: "1,5",
			},
		},
		"the tick is on": {
			cpus: "2,6", change: func(f *quiet.Facts) { f.NoTick = set("6") },
			lacking: map[quiet.Measure]string{quiet.Tick: "2"},
		},
		"callbacks of CPUs without a tick are elsewhere anyway": {
			cpus: "2,6", change: func(f *quiet.Facts) { f.NoCallbacks = cpuset.Set{} },
		},
		"callbacks": {
			cpus: "2,6", change: func(f *quiet.Facts) { f.NoTick, f.NoCallbacks = set("2"), cpuset.Set{} },
			lacking: map[quiet.Measure]string{quiet.Tick: "6", quiet.Callbacks: "6"},
		},
		"irqbalance runs": {
			cpus: "2,6", change: func(f *quiet.Facts) { f.Balancer = true },
			lacking: map[quiet.Measure]string{quiet.Interrupts: "2,6"},
		},
		"a governor that saves power": {
			cpus: "2,6", change: func(f *quiet.Facts) { f.Slow = []string{"powersave"} },
			lacking: map[quiet.Measure]string{quiet.Frequency: "2,6"},
		},
		"the sibling is another pod's": {cpus: "2", lacking: map[quiet.Measure]string{quiet.Threads: "2"}},
		"the sibling is offline":       {cpus: "2", offline: "6"},
		"an interrupt that cannot be moved": {
			cpus: "2,6", change: func(f *quiet.Facts) { f.Fixed = set("0,6") },
			lacking: map[quiet.Measure]string{quiet.Managed: "6"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s topo.Spec
			offline := cpuset.Set{}
			if c.offline != "" {
				offline = set(c.offline)
			}
			for id := range 8 {
				s.CPUs = append(s.CPUs, topo.CPUSpec{ID: id, Core: id % 4, L3: -1, Offline: offline.Has(id)})
			}
			facts := all
			if c.change != nil {
				c.change(&facts)
			}
			for i, r := range quiet.Examine(grid.Build(t, s), &facts, set(c.cpus)) {
				if want := c.lacking[r.Measure]; int(r.Measure) != i || r.Lacking.String() != want ||
					r.Holds() != (want == "") {
					t.Errorf("measure %d is %s and lacks %q, want %q", i, r.Measure, r.Lacking, want)
				}
			}
		})
	}
}
