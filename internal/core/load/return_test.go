package load

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPodsAvoidTheNodeThatHasEvictedTheirPredecessor(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_000_000, 0)
	type eviction struct {
		workload, node string
		minute         int
	}
	first := eviction{"w", "a", 0}
	for name, c := range map[string]struct {
		evicted        []eviction
		workload, node string
		minute         int
		want           bool
	}{
		"nothing is evicted":               {nil, "w", "a", 0, false},
		"at once":                          {[]eviction{first}, "w", "a", 0, true},
		"for five minutes":                 {[]eviction{first}, "w", "a", 4, true},
		"no longer":                        {[]eviction{first}, "w", "a", 5, false},
		"another node":                     {[]eviction{first}, "w", "b", 0, false},
		"another workload":                 {[]eviction{first}, "v", "a", 0, false},
		"twice as long the second time":    {[]eviction{first, {"w", "a", 6}}, "w", "a", 15, true},
		"and no longer than that":          {[]eviction{first, {"w", "a", 6}}, "w", "a", 16, false},
		"the second time elsewhere":        {[]eviction{first, {"w", "b", 1}}, "w", "b", 10, true},
		"the first node as before":         {[]eviction{first, {"w", "b", 1}}, "w", "a", 5, false},
		"one eviction that is seen again":  {[]eviction{first, first, first}, "w", "a", 5, false},
		"two nodes at once":                {[]eviction{first, {"w", "b", 0}}, "w", "b", 4, true},
		"two nodes at once count as one":   {[]eviction{first, {"w", "b", 0}}, "w", "b", 5, false},
		"an earlier one that is seen late": {[]eviction{{"w", "a", 6}, {"w", "b", 0}}, "w", "b", 4, true},
		"at most 40 minutes": {
			[]eviction{first, {"w", "a", 1}, {"w", "a", 2}, {"w", "a", 3}, {"w", "a", 4}, {"w", "a", 5}},
			"w", "a", 45, false,
		},
		"after an hour the next one is the first": {[]eviction{first, {"w", "a", 60}}, "w", "a", 65, false},
		"before it is the second":                 {[]eviction{first, {"w", "a", 59}}, "w", "a", 65, true},
		"another workload's is forgotten as well": {
			[]eviction{first, {"v", "a", 60}, {"w", "a", 61}}, "w", "a", 66, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r Returns
			at := func(minute int) time.Time { return start.Add(time.Duration(minute) * time.Minute) }
			for _, e := range c.evicted {
				r.Evicted(e.workload, e.node, at(e.minute))
			}
			if got := r.Avoids(c.workload, c.node, at(c.minute)); got != c.want {
				t.Errorf("%s avoids %s in minute %d: %v, want %v", c.workload, c.node, c.minute, got, c.want)
			}
			if r.Knows("x") || len(c.evicted) > 0 && !r.Knows(c.evicted[len(c.evicted)-1].workload) {
				t.Error("known are not the workloads whose pods were evicted")
			}
		})
	}
}

// TestALoopOfEvictionsSlowsDown follows a pod that each of a few nodes evicts as soon as it may run there: no node
// evicts it twice within five minutes, and each at most four times in an hour.
func TestALoopOfEvictionsSlowsDown(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var r Returns
		nodes := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "nodes")]
		evicted, last := map[string]time.Time{}, 0
		for step := range 360 {
			now := time.Unix(1_000_000+int64(step)*10, 0)
			for _, node := range nodes {
				if r.Avoids("w", node, now) || !rapid.Bool().Draw(t, "runs") {
					continue
				}
				if before, again := evicted[node]; again && now.Sub(before) < firstAvoidance {
					t.Fatalf("%s evicts after %v again", node, now.Sub(before))
				}
				r.Evicted("w", node, now)
				evicted[node], last = now, last+1
				break
			}
		}
		if most := 4 * len(nodes); last > most {
			t.Fatalf("%d evictions in an hour on %d nodes, want at most %d", last, len(nodes), most)
		}
	})
}
