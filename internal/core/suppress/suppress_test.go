package suppress_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		"a change below 1 % is not made":        {500_000, 5099, 10_000, 500_000},
		"nor one downwards":                     {500_000, 4901, 10_000, 500_000},
		"a change of 1 % is":                    {500_000, 4900, 10_000, 490_000},
		"never below 2 ms":                      {500_000, 0, 10_000, suppress.MinQuota},
		"bad: a negative amount is the minimum": {500_000, -5, 10_000, suppress.MinQuota},
		"bad: a node without CPUs":              {500_000, 5000, 0, 500_000},
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
			if nextQuota < suppress.MinQuota || nextQuota > max(allowed*100, suppress.MinQuota)+capacity ||
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

// TestVictimsIsTheShortestBeginningOfTheOrder compares with a search that tries all beginnings.
func TestVictimsIsTheShortestBeginningOfTheOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.Int64Range(-1, 3)
		var pods []suppress.Pod
		for i := range rapid.IntRange(0, 7).Draw(t, "pods") {
			pods = append(pods, suppress.Pod{
				ID: fmt.Sprint(i), EvictionPriority: small.Draw(t, "eviction"), Priority: small.Draw(t, "priority"),
				SubPriority: small.Draw(t, "sub"), Request: small.Draw(t, "request"), Use: small.Draw(t, "use"),
				Evicting: rapid.Bool().Draw(t, "evicting"), Kept: rapid.Bool().Draw(t, "kept"),
			})
		}
		need := rapid.Int64Range(-2, 10).Draw(t, "need")
		use := func(p suppress.Pod) int64 { return p.Use }
		got := suppress.Victims(slices.Clone(pods), need, use)
		freed := int64(0)
		for _, p := range pods {
			if p.Evicting {
				freed += max(p.Use, 0)
			}
		}
		for i, p := range got {
			if freed >= need {
				t.Fatalf("%v: %v is one too many for %d", pods, got, need)
			}
			if p.Kept || p.Evicting || p.Use <= 0 {
				t.Fatalf("%+v is a victim", p)
			}
			freed += p.Use
			for _, other := range pods { // no pod before it in the order is left out
				first := other.EvictionPriority < p.EvictionPriority ||
					other.EvictionPriority == p.EvictionPriority && other.Priority < p.Priority
				if first && !other.Kept && !other.Evicting && other.Use > 0 && !slices.Contains(got[:i], other) {
					t.Fatalf("%+v was left out before %+v", other, p)
				}
			}
		}
		others := slices.ContainsFunc(pods, func(p suppress.Pod) bool {
			return !p.Kept && !p.Evicting && p.Use > 0 && !slices.Contains(got, p)
		})
		if freed < need && others {
			t.Fatalf("%v: %v releases %d of %d, and others are left", pods, got, freed, need)
		}
		slices.Reverse(pods)
		if diff := cmp.Diff(got, suppress.Victims(pods, need, use)); diff != "" {
			t.Fatalf("the order of the pods counts:\n%s", diff)
		}
	})
}

func TestTheOrderOfVictims(t *testing.T) {
	t.Parallel()
	pods := []suppress.Pod{
		{ID: "large", Priority: 5000, Request: 100, Use: 100},
		{ID: "over", Priority: 5000, Request: 10, Use: 50},
		{ID: "norequest", Priority: 5000, Use: 1},
		{ID: "asked", EvictionPriority: -1, Priority: 5999, Request: 9, Use: 9},
		{ID: "high", Priority: 5999, Use: 100},
		{ID: "sub", Priority: 5000, SubPriority: -1, Request: 9, Use: 9},
		{ID: "kept", Kept: true, Use: 100},
		{ID: "ends", Evicting: true, Use: 100},
	}
	var got []string
	for _, p := range suppress.Victims(pods, 1<<40, func(p suppress.Pod) int64 { return p.Use }) {
		got = append(got, p.ID)
	}
	if diff := cmp.Diff([]string{"asked", "sub", "norequest", "over", "large", "high"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMemoryRelease(t *testing.T) {
	t.Parallel()
	for text, test := range map[string]struct {
		m    suppress.Memory
		want int64
	}{
		"below the threshold":                {suppress.Memory{1000, 699, 70, 68}, 0},
		"down to the lower percent":          {suppress.Memory{1000, 750, 70, 68}, 70},
		"bad: a lower one above the upper":   {suppress.Memory{1000, 750, 70, 90}, 50},
		"bad: more used than there is":       {suppress.Memory{1000, 5000, 70, 68}, 320},
		"bad: no memory":                     {suppress.Memory{0, 5, 70, 68}, 0},
		"bad: a negative use":                {suppress.Memory{1000, -5, 0, 0}, 0},
		"bad: a threshold of 101 is of 100":  {suppress.Memory{1000, 999, 101, 50}, 0},
		"bad: a negative threshold is of 0":  {suppress.Memory{1000, 10, -7, -9}, 10},
		"bad: a threshold that is not there": {suppress.Memory{1000, 0, 0, 0}, 0},
	} {
		if got := test.m.Release(); got != test.want {
			t.Errorf("%s: got %d, want %d", text, got, test.want)
		}
	}
}

func TestSatisfactionRelease(t *testing.T) {
	t.Parallel()
	for text, test := range map[string]struct {
		s    suppress.Satisfaction
		want int64
	}{
		"satisfied":                      {suppress.Satisfaction{Limit: 6000, Request: 10_000, Use: 6000}, 0},
		"not satisfied, and idle":        {suppress.Satisfaction{Limit: 5000, Request: 10_000, Use: 4000}, 0},
		"not satisfied, and busy":        {suppress.Satisfaction{Limit: 5000, Request: 10_000, Use: 4500}, 3000},
		"nothing is requested":           {suppress.Satisfaction{Limit: 5000, Use: 5000}, 0},
		"bad: a limit of 0 is not known": {suppress.Satisfaction{Request: 10_000, Use: 5000}, 0},
		"bad: negative requests":         {suppress.Satisfaction{Limit: 5, Request: -10, Use: 5}, 0},
	} {
		if got := test.s.Release(60, 80, 90); got != test.want {
			t.Errorf("%s: got %d, want %d", text, got, test.want)
		}
	}
}
