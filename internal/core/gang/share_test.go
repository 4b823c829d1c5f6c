package gang_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/gang"
)

// TestFailedRoundsTakeAQuarterOfTheLoop: a scheduling loop has gangs that are always to be tried, and pods that start
// alone. In each period in which such pods wait without interruption, failed rounds take a quarter at most, but for the
// last one that begins in it.
func TestFailedRoundsTakeAQuarterOfTheLoop(t *testing.T) {
	t.Parallel()
	waited, alternated := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var share gang.LoopShare
		var arrivals []int // of pods that start alone, in ascending order; those that have begun are removed
		came := 0
		for range rapid.IntRange(0, 60).Draw(t, "pods") {
			came += rapid.SampledFrom([]int{0, 0, 1, 2, 10, 300}).Draw(t, "arrives after")
			arrivals = append(arrivals, came)
		}
		now, busy := 0, -1         // busy is when the period began; -1 while no pod waits
		failedRounds, last := 0, 0 // time of failed rounds that began in the period, and of the last of these
		at := func(ms int) time.Time { return time.Unix(100, 0).Add(time.Duration(ms) * time.Millisecond) }
		for range 100 {
			waits := len(arrivals) > 0 && arrivals[0] <= now
			switch {
			case !waits:
				busy, failedRounds, last = -1, 0, 0
			case busy < 0:
				busy = now
			}
			spent := share.IsSpent(at(now))
			if spent && waits || rapid.IntRange(0, 3).Draw(t, "alone first") == 0 && waits {
				arrivals = arrivals[1:]
				now += rapid.IntRange(1, 3).Draw(t, "cycle takes")
				waited++
				continue
			}
			took, failed := rapid.IntRange(1, 50).Draw(t, "round takes"), rapid.Bool().Draw(t, "fails")
			share.Begin(at(now))
			now += took
			share.End(failed, at(now))
			share.End(true, at(now+1000)) // no round is under way
			if failed != share.IsSpent(at(now)) && !spent {
				t.Fatalf("after a round that failed %t: spent %t", failed, !failed)
			}
			if busy >= 0 && failed {
				if failedRounds += last; 4*failedRounds > now-took-busy {
					t.Fatalf("failed rounds took %d of %d ms in which pods waited", failedRounds, now-took-busy)
				}
				last = took
				alternated++
			}
		}
	})
	if !testing.Short() && (waited < 100 || alternated < 100) {
		t.Errorf("%d cycles and %d failed rounds beside pods that wait: too few to mean anything", waited, alternated)
	}
}
