package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/forecast"
	"github.com/tenon-project/tenon/internal/core/gang"
)

// TestLargeJobsWaitLessWhereNodesAreHeld, also where declared times are too long. No more GPUs are used than there are.
func TestLargeJobsWaitLessWhereNodesAreHeld(t *testing.T) {
	t.Parallel()
	loaded := made(t).thinned(4, longPeriod)
	rng := rand.New(rand.NewPCG(1, 1))
	var runs []time.Duration
	for range 100 {
		runs = append(runs, shortestRun+time.Duration(rng.IntN(100))*time.Minute)
	}
	jobs := loaded.timedJobs(runs, 95, 1)
	fewer := loaded.timedJobs(runs, 80, 1)
	sorted := slices.IsSortedFunc(jobs, func(a, b timed) int { return int(a.arrives - b.arrives) })
	if len(fewer) >= len(jobs) || !sorted {
		t.Errorf("%d jobs at 80 percent, %d at 95, or not in the order of their arrival", len(fewer), len(jobs))
	}
	large := map[string]float64{}
	for _, rule := range waitRules() {
		play := func() []played {
			all, err := loaded.played(jobs, rule, rand.New(rand.NewPCG(2, 2)))
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		all := play()
		if diff := cmp.Diff(all, play(), cmp.AllowUnexported(played{})); diff != "" {
			t.Errorf("%s: (-first +second) %s", rule.name, diff)
		}
		for i, p := range all {
			if p.start < jobs[i].arrives || p.start > loaded.end && p.start != forecast.Never {
				t.Fatalf("%s: job %d arrives after %s and starts after %s", rule.name, i, jobs[i].arrives, p.start)
			}
			used := 0.0
			for j, o := range all {
				if o.start <= p.start && p.start < o.start+jobs[j].runs && o.start < forecast.Never {
					used += jobs[j].gpus()
				}
			}
			if p.start < forecast.Never && used > float64(loaded.capacity)/1000+1e-6 {
				t.Fatalf("%s: %.1f GPUs are used after %s", rule.name, used, p.start)
			}
		}
		var w waitSum
		w.add(loaded, jobs, all)
		for _, s := range w.large.waited {
			large[rule.name] += s
		}
		if got, want := len(w.cells(95, rule.name, loaded)), len(waitColumns()); got != want {
			t.Errorf("%d cells, want %d", got, want)
		}
	}
	for rule, waited := range large {
		if rule != "no hold" && waited > large["no hold"]*2/3 {
			t.Errorf("%s: gangs wait for %.0f s, without holds %.0f s", rule, waited, large["no hold"])
		}
	}
}

// TestWhatAPodMayUseBesideAHold: a node has four GPUs. A job has two of them for an hour, and one that needs three
// holds the node until then.
func TestWhatAPodMayUseBesideAHold(t *testing.T) {
	t.Parallel()
	hour := clockAt(time.Hour)
	whole := func(gpus int64) *pod {
		p := &pod{}
		p.GPUs, p.Milli = gpus, 1000
		return p
	}
	for gpus, want := range map[int64]bool{1: false, 2: true} {
		c := &cluster{nodes: []node{{}}, round: 1, ratings: make([][]rating, 1), chooser: &policy{
			score: func(n *node, p *pod) (int64, uint64, bool) { return 0, suitable(n, p), n.fits(p) },
		}}
		c.nodes[0].Free = []int64{1000, 1000, 1000, 1000}
		p := &player{cluster: c, running: []*runningJob{{declared: time.Hour, parts: []holding{{whole(2), 0, 3}}}}}
		c.nodes[0].take(whole(2), 3)
		held := &waitingJob{timed: &timed{pod: *whole(3)}, on: []int{0}, hold: gang.Hold{Start: hour}}
		for at, bars := range [][]*waitingJob{nil, {held}} {
			if got := p.leavesTooLittle(bars, whole(gpus), 0); got != (want && at > 0) {
				t.Errorf("%d GPUs beside %d holds: takes what is needed: %t", gpus, at, got)
			}
		}
	}
}
