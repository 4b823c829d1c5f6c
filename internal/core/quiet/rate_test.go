package quiet_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/quiet"
)

// TestInterruptsASecond has two readings of the CPUs 2 and 3, ten seconds apart.
func TestInterruptsASecond(t *testing.T) {
	t.Parallel()
	const span = 10 * time.Second
	counts := func(sources map[string]quiet.Source, cpus ...int) quiet.Counts {
		return quiet.Counts{CPUs: cpus, Sources: sources}
	}
	both := func(name, handler string, fired ...uint64) quiet.Counts {
		return counts(map[string]quiet.Source{name: {Handler: handler, Fired: fired}}, 2, 3)
	}
	for name, c := range map[string]struct {
		before, now quiet.Counts
		span        time.Duration
		cpus        []int
		want        quiet.Rate
		unknown     bool
	}{
		"a device": {
			both("24", "eth0", 100, 7), both("24", "eth0", 150, 57), span,
			[]int{2, 3},
			quiet.Rate{Devices: 10, Busiest: "24 (eth0)"},
			false,
		},
		"on another CPU": {
			both("24", "eth0", 100, 7), both("24", "eth0", 150, 7), span, []int{3}, quiet.Rate{}, false,
		},
		"the kernel": {
			both("LOC", "interrupts", 0, 0), both("LOC", "interrupts", 0, 2500), span,
			[]int{2, 3},
			quiet.Rate{Kernel: 250},
			false,
		},
		"the timer of Arm": {
			both("11", "arch_timer", 0, 0), both("11", "arch_timer", 0, 2500), span,
			[]int{3},
			quiet.Rate{Kernel: 250},
			false,
		},
		"less than one is rounded up": {
			both("24", "", 5, 5), both("24", "", 5, 6), span, []int{2, 3}, quiet.Rate{Devices: 1, Busiest: "24"}, false,
		},
		"a counter that wraps counts from zero": {
			both("24", "eth0", 1<<32-10, 0), both("24", "eth0", 40, 0), span,
			[]int{2},
			quiet.Rate{Devices: 4, Busiest: "24 (eth0)"},
			false,
		},
		"a new interrupt counts from zero": {
			both("24", "eth0", 5, 5), both("25", "nvme0q1", 20, 0), span,
			[]int{2},
			quiet.Rate{Devices: 2, Busiest: "25 (nvme0q1)"},
			false,
		},
		"an interrupt that vanished": {
			both("24", "eth0", 5, 5), counts(nil, 2, 3), span, []int{2, 3}, quiet.Rate{}, false,
		},
		"of equal ones the lowest number": {
			counts(map[string]quiet.Source{}, 2),
			counts(map[string]quiet.Source{
				"100": {Fired: []uint64{10}}, "25": {Fired: []uint64{10}}, "26": {Fired: []uint64{10}},
				"4": {Fired: []uint64{9}},
			}, 2), span,
			[]int{2},
			quiet.Rate{Devices: 4, Busiest: "25"},
			false,
		},
		"a CPU that went offline": {
			both("24", "eth0", 0, 0), counts(map[string]quiet.Source{"24": {Fired: []uint64{30}}}, 3), span,
			[]int{2, 3},
			quiet.Rate{Devices: 3, Busiest: "24"},
			false,
		},
		"a CPU that came online": {
			before: counts(map[string]quiet.Source{"24": {Fired: []uint64{30}}}, 3), now: both("24", "eth0", 9, 30),
			span: span, cpus: []int{2, 3}, unknown: true,
		},
		"all CPUs are offline": {
			before: both("24", "eth0", 9, 30), now: counts(nil), span: span, cpus: []int{2, 3}, unknown: true,
		},
		"a first reading": {now: both("24", "eth0", 9, 9), span: span, cpus: []int{2}, unknown: true},
		"no time":         {before: both("24", "", 9, 9), now: both("24", "", 9, 9), cpus: []int{2}, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, known := c.now.Since(&c.before, c.span, c.cpus)
			if diff := cmp.Diff(c.want, got); diff != "" || known == c.unknown {
				t.Errorf("known %v (-want +got):\n%s", known, diff)
			}
		})
	}
}
