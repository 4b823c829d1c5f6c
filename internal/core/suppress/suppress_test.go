package suppress_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/suppress"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func TestAllowed(t *testing.T) {
	t.Parallel()
	limits := suppress.Limits{ThresholdPercent: 65}
	tests := map[string]struct {
		use    suppress.Use
		limits suppress.Limits
		want   int64
	}{
		"what others leave below the threshold": {
			suppress.Use{Capacity: 100_000, NonBE: 30_000, System: 5000}, limits, 30_000,
		},
		"the reservation counts where the system uses less": {
			suppress.Use{Capacity: 100_000, NonBE: 30_000, System: 5000, Reserved: 10_000}, limits, 25_000,
		},
		"nothing is left": {suppress.Use{Capacity: 10_000, NonBE: 9000}, limits, 0},
		"nothing is left, and a minimum": {
			suppress.Use{Capacity: 10_000, NonBE: 9000}, suppress.Limits{ThresholdPercent: 65, MinPercent: 10}, 1000,
		},
		"bad: a negative threshold is 0": {
			suppress.Use{Capacity: 10_000}, suppress.Limits{ThresholdPercent: -5}, 0,
		},
		"bad: a threshold of 101 is 100": {
			suppress.Use{Capacity: 10_000}, suppress.Limits{ThresholdPercent: 101}, 10_000,
		},
		"bad: a minimum of 200 is the whole node": {
			suppress.Use{Capacity: 10_000, NonBE: 10_000}, suppress.Limits{MinPercent: 200}, 10_000,
		},
		"bad: a negative use, of a counter that went back, frees nothing": {
			suppress.Use{Capacity: 10_000, NonBE: -50_000, System: -1}, limits, 6500,
		},
		"bad: a use beyond the node": {suppress.Use{Capacity: 10_000, NonBE: math.MaxInt64}, limits, 0},
		"bad: a node without CPUs":   {suppress.Use{NonBE: 5}, limits, 0},
		"bad: a negative capacity":   {suppress.Use{Capacity: -10_000}, limits, 0},
		"bad: the largest capacity": {
			suppress.Use{Capacity: math.MaxInt64}, suppress.Limits{ThresholdPercent: 100}, math.MaxInt64,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := test.use.Allowed(test.limits); got != test.want {
				t.Errorf("%+v with %+v: got %d, want %d", test.use, test.limits, got, test.want)
			}
		})
	}
}

func TestNextCPUs(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		now           int
		allowed       int64
		usable, total int
		want          int
	}{
		"shrinks at once":                            {60, 10_999, 64, 64, 10},
		"grows by a tenth of the node":               {10, 60_000, 64, 64, 16},
		"grows by one on a small node":               {2, 4000, 4, 4, 3},
		"never below two":                            {10, 0, 64, 64, 2},
		"the minimum is granted at once":             {0, 0, 64, 64, 2},
		"one, where there is one":                    {1, 0, 1, 64, 1},
		"none, where LSE pods have all":              {2, 64_000, 0, 64, 0},
		"no more than it may use":                    {60, 64_000, 8, 64, 8},
		"bad: a negative amount is 0":                {8, -9000, 64, 64, 2},
		"bad: a huge amount is bounded by the step":  {8, math.MaxInt64, 64, 64, 14},
		"bad: it has more than the machine has CPUs": {600, 64_000, 64, 64, 64},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			size := suppress.Size{Usable: test.usable, Total: test.total, Threads: 1}
			if got := suppress.NextCPUs(test.now, test.allowed, size); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestNextQuota(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ now, allowed, capacity, want int64 }{
		"the first one is not bounded":          {0, 5000, 10_000, 500_000},
		"shrinks at once":                       {900_000, 1000, 10_000, 100_000},
		"grows by a tenth of the node":          {100_000, 9000, 10_000, 200_000},
		"growth below 1 % is not made":          {500_000, 5099, 10_000, 500_000},
		"growth of 1 % is":                      {500_000, 5100, 10_000, 510_000},
		"shrinks by less than 1 %":              {500_000, 4999, 10_000, 499_900},
		"never below 2 ms":                      {500_000, 0, 10_000, suppress.MinQuota},
		"bad: a negative amount is the minimum": {500_000, -5, 10_000, suppress.MinQuota},
		"the least quota grows by steps too":    {1, 5000, 10_000, 100_001},
		"bad: a node without CPUs":              {500_000, 6000, 0, 500_001},
		"bad: a node with less than no CPUs":    {500_000, 6000, -10_000, 500_001},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := suppress.NextQuota(test.now, test.allowed, test.capacity); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestGrowthReachesWhatIsAllowedAndShrinkingIsImmediate follows both policies over random loads.
func TestGrowthReachesWhatIsAllowedAndShrinkingIsImmediate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(1, 256).Draw(t, "total")
		usable := rapid.IntRange(0, total).Draw(t, "usable")
		size := suppress.Size{Usable: usable, Total: total, Threads: rapid.IntRange(1, 2).Draw(t, "threads")}
		capacity := int64(total) * 1000
		cpus, quota := usable, capacity*100
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			u := suppress.Use{
				Capacity: capacity, NonBE: rapid.Int64Range(0, capacity).Draw(t, "used"),
				System: rapid.Int64Range(0, capacity/4).Draw(t, "system"),
			}
			l := suppress.Limits{ThresholdPercent: rapid.Int64Range(0, 100).Draw(t, "percent")}
			allowed := u.Allowed(l)
			if sum := allowed + u.NonBE + u.System; allowed > 0 && sum*100 > capacity*l.ThresholdPercent {
				t.Fatalf("%+v: %d allowed is more than %d %%", u, allowed, l.ThresholdPercent)
			}
			next := suppress.NextCPUs(cpus, allowed, size)
			if floor := min(suppress.MinCPUs, usable); next < floor || next > usable ||
				int64(next) > max(allowed/1000, int64(floor)) || next > max(cpus, floor)+max(total/10, size.Threads) {
				t.Fatalf("%d CPUs after %d with %d allowed of %d on %d", next, cpus, allowed, usable, total)
			}
			nextQuota := suppress.NextQuota(quota, allowed, capacity)
			if nextQuota < suppress.MinQuota || nextQuota > max(allowed*100, suppress.MinQuota) ||
				nextQuota > max(quota, suppress.MinQuota)+capacity*10 {
				t.Fatalf("quota %d after %d with %d allowed on %d", nextQuota, quota, allowed, capacity)
			}
			cpus, quota = next, nextQuota
		}
		for range total + 1 { // an idle node
			cpus = suppress.NextCPUs(cpus, capacity, size)
		}
		if cpus != usable {
			t.Fatalf("%d CPUs on an idle node, want %d", cpus, usable)
		}
	})
}

// TestOrderIsProportional compares each beginning of the order with the shares that it is to have, and checks that
// no core is divided.
func TestOrderIsProportional(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		threads := rapid.IntRange(1, 2).Draw(t, "threads")
		m := grid.Machine{
			Sockets: rapid.IntRange(1, 2).Draw(t, "sockets"), Cores: rapid.IntRange(1, 12).Draw(t, "cores"),
			Threads: threads, NodeBytes: 1 << 30,
		}.Build(t)
		var pool, lsr cpuset.Set
		for _, c := range m.Online().Slice() {
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0: // of an LSE pod
			case 1:
				lsr.Add(c)
				pool.Add(c)
			default:
				pool.Add(c)
			}
		}
		order := suppress.Order(m, pool, lsr)
		totals := map[string]int{}
		key := func(cpus []int) string {
			kind := slices.ContainsFunc(cpus, lsr.Has)
			return fmt.Sprint(m.NUMAOf(topo.CPU(cpus[0])), kind)
		}
		all := 0
		for _, cpus := range order {
			totals[key(cpus)] += len(cpus)
			all += len(cpus)
			for _, c := range cpus {
				if m.CoreOf(topo.CPU(c)) != m.CoreOf(topo.CPU(cpus[0])) {
					t.Fatalf("%v are of several cores", cpus)
				}
			}
		}
		if got := suppress.First(order, pool.Len()); got != pool {
			t.Fatalf("the whole order is %v, want the pool %v", got, pool)
		}
		taken, sum := map[string]int{}, 0
		for _, cpus := range order {
			taken[key(cpus)] += len(cpus)
			sum += len(cpus)
			for k, total := range totals {
				// No part is a core ahead of its share.
				if ahead := float64(taken[k]) - float64(total*sum)/float64(all); ahead > float64(threads) {
					t.Fatalf("%d of %d CPUs of part %s after %d of %d: %v", taken[k], total, k, sum, all, order)
				}
			}
		}
		var last cpuset.Set
		for n := range all + 2 {
			set := suppress.First(order, n)
			if !last.SubsetOf(&set) || set.Len() > max(n, suppress.MinCPUs+threads-1) ||
				set.Len() < min(suppress.MinCPUs, all) {
				t.Fatalf("first %d are %v after %v", n, set, last)
			}
			last = set
		}
	})
}
