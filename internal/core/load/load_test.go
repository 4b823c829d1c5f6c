package load

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

type pair = amount.Pair

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func TestEstimate(t *testing.T) {
	t.Parallel()
	factors := Percents{amount.CPU: 85, amount.Memory: 70}
	for name, c := range map[string]struct {
		ask     Ask
		factors Percents
		want    pair
	}{
		"a pod that asks for nothing gets the defaults":   {Ask{}, factors, pair{250, 200 << 20}},
		"a pod of class mid that asks for nothing gets 0": {Ask{Mid: true}, factors, pair{}},
		"a request is scaled": {
			Ask{Request: pair{1000, 1000}}, factors, pair{850, 700},
		},
		"a limit above the request is scaled": {
			Ask{Request: pair{1000, 100}, Limit: pair{2000, 1000}}, factors, pair{1700, 700},
		},
		"halves are rounded up": {Ask{Request: pair{10, 5}}, factors, pair{9, 4}},
		"not more than the limit": {
			Ask{Request: pair{100, 100}, Limit: pair{100, 100}}, Percents{150, 200}, pair{100, 100},
		},
		"a default is not more than the limit, either": {
			Ask{Limit: pair{0, 0}}, factors, pair{250, 200 << 20},
		},
		"the largest request does not overflow": {
			Ask{Request: pair{Most, Most}}, Percents{1000, 1000}, pair{Most, Most},
		},
	} {
		if got := Estimate(c.ask, c.factors); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func report(updated int, pods map[string]PodUse) *Report {
	use := pair{5000, 5000}
	return &Report{Updated: at(updated), Interval: time.Minute, Use: &use, Pods: pods}
}

func TestWhenAPodLeavesTheEstimate(t *testing.T) {
	t.Parallel()
	used := map[string]PodUse{"d/a": {Use: pair{300, 300}}}
	small := map[string]PodUse{"d/a": {Use: pair{2000, 10}}}
	pod := func(assigned time.Time) Pod {
		return Pod{UID: "1", Name: "d/a", Estimate: pair{1000, 1000}, Assigned: assigned}
	}
	until := pod(at(0))
	until.Until = at(500)
	initializing := pod(at(0))
	initializing.Initializing = true
	for name, c := range map[string]struct {
		report *Report
		pod    Pod
		want   pair
	}{
		"no report":                        {nil, pod(at(0)), pair{1000, 1000}},
		"a report before the assignment":   {report(100, used), pod(at(101)), pair{6000, 6000}},
		"a report at the assignment":       {report(100, used), pod(at(100)), pair{6000, 6000}},
		"1 ns after it":                    {report(100, used), pod(at(100).Add(-1)), pair{5700, 5700}},
		"1 ns less than an interval after": {report(100, used), pod(at(40).Add(1)), pair{5700, 5700}},
		"an interval after":                {report(100, used), pod(at(40)), pair{5000, 5000}},
		"an interval and 1 ns after":       {report(100, used), pod(at(40).Add(-1)), pair{5000, 5000}},
		"the report does not have the pod": {report(1000, nil), pod(at(0)), pair{6000, 6000}},
		"more use than estimated":          {report(100, small), pod(at(50)), pair{5000, 5990}},
		"1 ns before the end of its time": {
			&Report{
				Updated: at(500).Add(-1), Interval: time.Minute, Use: &pair{5000, 5000}, Pods: used,
			},
			until,
			pair{5700, 5700},
		},
		"at the end of its time":        {report(500, used), until, pair{5000, 5000}},
		"its init containers still run": {report(900, used), initializing, pair{5700, 5700}},
	} {
		n := NewNode()
		n.SetReport(c.report)
		n.Put(c.pod)
		if got := n.View().Use(Measure{}); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// TestWhatPodsUseThatHaveEndedIsFree has a node whose average is 5000: the system uses 100, an application 200, a pod
// 300, and another one has ended.
func TestWhatPodsUseThatHaveEndedIsFree(t *testing.T) {
	t.Parallel()
	const free, average = 600, 5000
	for name, c := range map[string]struct {
		change func(r *Report, n *Node)
		want   int64
	}{
		"all that runs is reported": {func(*Report, *Node) {}, free},
		"something is not":          {func(r *Report, _ *Node) { r.Whole = false }, average},
		"a pod is not": {func(_ *Report, n *Node) {
			n.Put(Pod{UID: "2", Name: "d/b", Estimate: pair{7, 7}, Assigned: at(0)})
		}, average + 7},
		"until it has left": {func(_ *Report, n *Node) {
			n.Put(Pod{UID: "2", Name: "d/b", Estimate: pair{7, 7}, Assigned: at(0)})
			n.Remove("2")
		}, free},
		"a pod that has come since": {func(_ *Report, n *Node) {
			n.Put(Pod{UID: "2", Name: "d/b", Estimate: pair{7, 7}, Assigned: at(200)})
		}, free + 7},
		"the use of the node is not": {func(r *Report, _ *Node) { r.Use = nil }, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, n := report(100, map[string]PodUse{"d/a": {Use: pair{300, 300}}}), NewNode()
			r.System, r.Apps, r.Whole = pair{100, 100}, pair{200, 200}, true
			n.Put(Pod{UID: "1", Name: "d/a", Estimate: pair{40, 40}, Assigned: at(0)})
			c.change(r, n)
			n.SetReport(r)
			if got := n.View().Use(Measure{}); got != (pair{c.want, c.want}) {
				t.Errorf("got %v, want %d", got, c.want)
			}
		})
	}
}

// TestUseIsThatOfTheEnd simulates pods that start and end in the time of an average. A whole report gives what the node
// uses at its end, and any other one no less than the average does.
func TestUseIsThatOfTheEnd(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		const samples = 10
		system := rapid.Int64Range(0, 50).Draw(t, "system")
		r := &Report{Updated: at(samples), System: pair{system}, Pods: map[string]PodUse{}, Use: &pair{}}
		r.Whole = rapid.Bool().Draw(t, "whole")
		n, truth, sum, unreported, missing := NewNode(), system, system*samples, false, int64(0)
		for i := range rapid.IntRange(0, 5).Draw(t, "pods") {
			begin, end := rapid.IntRange(0, samples-1).Draw(t, "begin"), rapid.IntRange(0, 2*samples).Draw(t, "end")
			p := Pod{UID: fmt.Sprint(i), Name: fmt.Sprint("d/", i), Assigned: at(begin)}
			use := rapid.Int64Range(0, 50).Draw(t, "use")
			p.Estimate[amount.CPU] = rapid.Int64Range(0, 50).Draw(t, "estimate")
			sum += use * int64(max(min(end, samples)-begin, 0))
			if end < samples {
				continue
			}
			n.Put(p)
			truth += use
			if r.Whole && rapid.IntRange(0, 9).Draw(t, "is not reported") == 0 {
				unreported, missing = true, missing+p.Estimate[amount.CPU]
			} else {
				r.Pods[p.Name] = PodUse{Use: pair{use}}
			}
		}
		r.Use[amount.CPU] = sum / samples
		n.SetReport(r)
		got := n.View().Use(Measure{})[amount.CPU]
		want, what := truth, "as it is"
		if !r.Whole || unreported {
			want, what = r.Use[amount.CPU]+missing, "by the average"
		}
		if got != want {
			t.Fatalf("got %d, want %d, %s; report %+v of %d", got, want, what, r, *r.Use)
		}
		if truth != r.Use[amount.CPU] {
			seen[what]++
		}
	})
	if len(seen) < 2 {
		t.Errorf("outcomes %v, want uses that are not the average", seen)
	}
}

func TestMeasures(t *testing.T) {
	t.Parallel()
	r := report(1000, map[string]PodUse{"d/a": {}})
	r.Aggregates = []Aggregate{
		{5 * time.Minute, map[Statistic]pair{P95: {100, 100}, P50: {10, 10}}},
		{10 * time.Minute, map[Statistic]pair{P95: {200, 200}}},
		{30 * time.Minute, map[Statistic]pair{}},
	}
	n := NewNode()
	n.SetReport(r)
	n.Put(Pod{UID: "1", Name: "d/a", Estimate: pair{9000, 1}})
	for name, c := range map[string]struct {
		measure Measure
		want    pair
	}{
		"the last average":                {Measure{}, pair{5000, 5000}},
		"a percentile of a time":          {Measure{P95, 5 * time.Minute}, pair{100, 100}},
		"the longest that has a value":    {Measure{P95, 0}, pair{200, 200}},
		"the longest of a rare one":       {Measure{P50, 0}, pair{10, 10}},
		"no time has it: the average":     {Measure{P99, 0}, pair{5000, 5000}},
		"an unknown time: what is larger": {Measure{P95, time.Hour}, pair{9000, 5000}},
		"a time without the percentile":   {Measure{P50, 10 * time.Minute}, pair{9000, 5000}},
	} {
		if got := n.View().Use(c.measure); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestProductionPods(t *testing.T) {
	t.Parallel()
	n := NewNode()
	r := report(1000, map[string]PodUse{
		"d/prod": {pair{10, 10}, true}, "d/other": {pair{500, 500}, false}, "d/mixed": {pair{20, 20}, false},
		"d/gone": {pair{70, 70}, true},
	})
	r.System = pair{1, 1}
	n.SetReport(r)
	n.Put(Pod{UID: "1", Name: "d/prod", Prod: true, Estimate: pair{1000, 1000}})
	n.Put(Pod{UID: "2", Name: "d/other", Estimate: pair{1000, 1000}})
	n.Put(Pod{UID: "3", Name: "d/mixed", Prod: true, Estimate: pair{100, 100}})
	if got, want := n.View().ProdUse(), (pair{110, 110}); got != want {
		t.Errorf("got %v, want %v: by report, and by estimate where the report says another class", got, want)
	}
	rules := Rules{Prod: Percents{amount.CPU: 10}, ProdWithSystem: true, Usage: Percents{amount.CPU: 100}}
	if _, exceeds := rules.Exceeds(n.View(), pair{1000, 1000}, true); !exceeds {
		t.Error("111 of 1000 is 11 %, above 10 %")
	}
	rules.ProdWithSystem = false
	if e, exceeds := rules.Exceeds(n.View(), pair{1057, 1000}, true); exceeds {
		t.Errorf("%+v", e)
	}
}

func TestThresholds(t *testing.T) {
	t.Parallel()
	n := NewNode()
	r := report(1000, nil) // 5000
	r.Aggregates = []Aggregate{{time.Minute, map[Statistic]pair{P95: {8000, 8000}}}}
	n.SetReport(r)
	p95 := Measure{P95, time.Minute}
	own := func(cpu, memory int64) *Percents { return &Percents{cpu, memory} }
	for name, c := range map[string]struct {
		rules       Rules
		override    Override
		allocatable pair
		prod        bool
		want        string // "" where none is exceeded
	}{
		"no rules":       {allocatable: pair{1, 1}},
		"65.4 % is 65 %": {rules: Rules{Usage: Percents{amount.CPU: 65}}, allocatable: pair{7645, 9000}},
		"65.5 % is 66 %": {
			rules: Rules{Usage: Percents{amount.CPU: 65}}, allocatable: pair{7633, 9000}, want: "cpu 66>65",
		},
		"a resource that is off": {
			rules: Rules{Usage: Percents{amount.CPU: 0, amount.Memory: 99}}, allocatable: pair{1, 9000},
		},
		"memory": {
			rules: Rules{Usage: Percents{99, 50}}, allocatable: pair{9000, 5000}, want: "memory 100>50",
		},
		"a node without the resource": {rules: Rules{Usage: Percents{99, 50}}},
		"aggregated thresholds are instead of the plain ones": {
			rules:       Rules{Usage: Percents{amount.CPU: 1}, Aggregated: Percents{amount.CPU: 80}, AggregatedBy: p95},
			allocatable: pair{10000, 1},
		},
		"aggregated use above its threshold": {
			rules:       Rules{Aggregated: Percents{amount.CPU: 79}, AggregatedBy: p95},
			allocatable: pair{10000, 1}, want: "cpu 80>79 aggregated",
		},
		"production pods have their own": {
			rules:       Rules{Usage: Percents{amount.CPU: 1}, Prod: Percents{amount.CPU: 1}},
			allocatable: pair{10000, 1}, prod: true,
		},
		"production pods without their own have the others": {
			rules: Rules{Usage: Percents{amount.CPU: 1}}, allocatable: pair{10000, 1}, prod: true, want: "cpu 50>1",
		},
		"other pods have not those of production": {
			rules:       Rules{Usage: Percents{amount.CPU: 1}, Prod: Percents{amount.CPU: 99}},
			allocatable: pair{10000, 1}, want: "cpu 50>1",
		},
		"a node switches a threshold off": {
			rules:    Rules{Usage: Percents{amount.CPU: 1}},
			override: Override{Usage: own(0, 0)}, allocatable: pair{10000, 1},
		},
		"a node has a threshold of its own": {
			rules:    Rules{Usage: Percents{amount.CPU: 90}},
			override: Override{Usage: own(49, 0)}, allocatable: pair{10000, 1}, want: "cpu 50>49",
		},
		"a node's aggregated thresholds leave the plain ones unread": {
			rules:    Rules{Usage: Percents{amount.CPU: 1}},
			override: Override{Aggregated: own(79, 0), AggregatedBy: p95}, allocatable: pair{10000, 1},
			want: "cpu 80>79 aggregated",
		},
		"a node's production thresholds leave those of other pods": {
			rules:    Rules{Usage: Percents{amount.CPU: 49}},
			override: Override{Prod: own(99, 0)}, allocatable: pair{10000, 1}, want: "cpu 50>49",
		},
		"the largest use does not overflow": {
			rules: Rules{Usage: Percents{amount.CPU: 100}}, allocatable: pair{1, 1}, want: "cpu 500000>100",
		},
	} {
		got := ""
		if e, exceeds := c.rules.Of(c.override).Exceeds(n.View(), c.allocatable, c.prod); exceeds {
			got = fmt.Sprintf("%s %d>%d", e.Resource, e.Percent, e.Threshold)
			if e.ByAggregated {
				got += " aggregated"
			}
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestOldReports(t *testing.T) {
	t.Parallel()
	fresh, old, never := report(1000, nil), report(820, nil), &Report{}
	now := at(1000)
	e := Expiry{After: 180 * time.Second}
	ignore, pass := Expiry{After: e.After, Ignore: true}, Expiry{After: e.After, Pass: true}
	for name, c := range map[string]struct {
		expiry Expiry
		report *Report
		want   Outcome
		scores bool
	}{
		"no report":                           {e, nil, Skipped, false},
		"a fresh report":                      {e, fresh, Counts, true},
		"1 ns less than too old":              {Expiry{After: e.After + 1}, old, Counts, true},
		"an old report":                       {e, old, Refused, false},
		"a report that was never made":        {e, never, Refused, false},
		"old reports count":                   {ignore, old, Counts, false},
		"old reports let pods pass":           {pass, old, Skipped, false},
		"old reports let pods pass, fresh":    {pass, fresh, Counts, true},
		"reports never expire":                {Expiry{}, old, Counts, true},
		"reports expire after 1 ns":           {Expiry{After: 1}, old, Refused, false},
		"one that was never made is expired":  {Expiry{}, never, Refused, false},
		"the clock was set back by an hour":   {e, report(4600, nil), Counts, true},
		"old reports count, one was not made": {ignore, never, Counts, false},
	} {
		if got := c.expiry.Check(c.report, now); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
		if got := c.expiry.Scores(c.report, now); got != c.scores {
			t.Errorf("%s: scores: got %t", name, got)
		}
	}
}

func TestScore(t *testing.T) {
	t.Parallel()
	n := NewNode()
	r := report(1000, map[string]PodUse{"d/a": {pair{1000, 1000}, true}}) // 5000, 5000
	r.Aggregates = []Aggregate{{time.Minute, map[Statistic]pair{P95: {8000, 8000}}}}
	n.SetReport(r)
	n.Put(Pod{UID: "1", Name: "d/a", Prod: true})
	even := Weights{Resources: Percents{1, 1}}
	for name, c := range map[string]struct {
		scoring     Scoring
		allocatable pair
		want        int64
	}{
		"the mean of what is left": {Scoring{Weights: even}, pair{10000, 20000}, 62},
		"by weights": {
			Scoring{Weights: Weights{Resources: Percents{3, 1}}}, pair{10000, 20000}, 56,
		},
		"the scarcest resource decides": {Scoring{Weights: Weights{Dominant: 1}}, pair{10000, 20000}, 50},
		"both":                          {Scoring{Weights: Weights{Percents{1, 1}, 1}}, pair{10000, 20000}, 58},
		"no weights":                    {Scoring{}, pair{10000, 20000}, 0},
		"more used than there is":       {Scoring{Weights: even}, pair{4000, 20000}, 37},
		"a resource that is not there":  {Scoring{Weights: even}, pair{0, 10000}, 25},
		"a percentile":                  {Scoring{Weights: even, By: Measure{P95, 0}}, pair{10000, 10000}, 20},
		"of production pods alone":      {Scoring{Weights: even, Prod: true}, pair{10000, 10000}, 90},
	} {
		if got := c.scoring.Score(n.View(), c.allocatable, true); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

func drawAmounts(t *rapid.T, name string) pair {
	return pair{rapid.Int64Range(0, 50).Draw(t, name), rapid.Int64Range(0, 50).Draw(t, name)}
}

func drawPod(t *rapid.T) Pod {
	id := rapid.IntRange(0, 5).Draw(t, "pod")
	return Pod{
		UID: fmt.Sprint(id), Name: fmt.Sprint("d/", id%4), Estimate: drawAmounts(t, "estimate"),
		Prod: rapid.Bool().Draw(t, "prod"), Assigned: at(rapid.IntRange(0, 10).Draw(t, "assigned")),
		Until: at(rapid.IntRange(0, 10).Draw(t, "until")), Initializing: rapid.IntRange(0, 5).Draw(t, "init") == 0,
	}
}

func drawReport(t *rapid.T) *Report {
	if rapid.IntRange(0, 4).Draw(t, "lost") == 0 {
		return nil
	}
	r := &Report{
		Updated: at(rapid.IntRange(0, 12).Draw(t, "updated")), Interval: 3 * time.Second, Pods: map[string]PodUse{},
		System: drawAmounts(t, "system"),
	}
	use := r.System
	for id := range 5 {
		if rapid.Bool().Draw(t, "reported") {
			one := PodUse{drawAmounts(t, "use"), rapid.Bool().Draw(t, "prod")}
			r.Pods[fmt.Sprint("d/", id)] = one
			use = use.Plus(one.Use)
		}
	}
	r.Use = &use
	return r
}

func TestTheSystemUsesWhatTheReportSays(t *testing.T) {
	t.Parallel()
	use := pair{100, 1 << 20}
	if got := (View{Report: &Report{System: use}}).System(); got != use {
		t.Errorf("the system uses %v, want %v", got, use)
	}
	if got := (View{}).System(); got != (pair{}) {
		t.Errorf("without a report it uses %v", got)
	}
}

// counted returns the use of a node, counting each pod once: system, what is reported of pods that are not assigned,
// and each assigned pod.
func counted(r *Report, pods map[string]Pod) pair {
	var sum pair
	if r != nil {
		sum = r.System
	}
	left := map[string]pair{}
	if r != nil {
		for name, p := range r.Pods {
			left[name] = p.Use
		}
	}
	byName := map[string][]Pod{}
	for _, p := range pods {
		byName[p.Name] = append(byName[p.Name], p)
	}
	for _, p := range pods {
		if r == nil || !r.Updated.After(p.Assigned) {
			sum = sum.Plus(p.Estimate)
			continue
		}
		use, reported := r.Pods[p.Name]
		if !reported {
			sum = sum.Plus(p.Estimate)
			continue
		}
		delete(left, p.Name)
		early := r.Updated.Sub(p.Assigned) < r.Interval || r.Updated.Before(p.Until) || p.Initializing
		for i := range sum {
			if early {
				sum[i] += max(p.Estimate[i], use.Use[i])
			} else {
				sum[i] += use.Use[i]
			}
		}
	}
	for _, ghost := range left {
		sum = sum.Plus(ghost)
	}
	return sum
}

func TestEachPodCountsOnceInAnyOrderOfEvents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, pods := NewNode(), map[string]Pod{}
		var r *Report
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0, 1:
				p := drawPod(t)
				for _, other := range pods { // the API server has one pod of a name
					if other.Name == p.Name && other.UID != p.UID {
						n.Remove(other.UID)
						delete(pods, other.UID)
					}
				}
				n.Put(p)
				pods[p.UID] = p
			case 2:
				uid := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "removed"))
				n.Remove(uid)
				delete(pods, uid)
			case 3:
				r = drawReport(t)
				n.SetReport(r)
			}
			if got, want := n.View().Use(Measure{}), counted(r, pods); got != want {
				t.Fatalf("got %v, want %v: report %+v, pods %+v", got, want, r, pods)
			}
			fresh := NewNode()
			for _, p := range pods {
				fresh.Put(p)
			}
			fresh.SetReport(r)
			if fresh.View() != n.View() {
				t.Fatalf("got %+v, want that of a new account %+v", n.View(), fresh.View())
			}
		}
		uids := slices.Sorted(maps.Keys(pods))
		rand.New(rand.NewPCG(1, uint64(len(uids)))).Shuffle(len(uids), func(i, j int) {
			uids[i], uids[j] = uids[j], uids[i]
		})
		for _, uid := range uids {
			n.Remove(uid)
		}
		if v := n.View(); v != (View{Report: r}) {
			t.Fatalf("without pods the account has %+v", v)
		}
	})
}

func TestLostMetricsNeverMakeANodeLookEmptier(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := NewNode()
		for range rapid.IntRange(0, 5).Draw(t, "pods") {
			n.Put(drawPod(t))
		}
		r := drawReport(t)
		n.SetReport(r)
		before := n.View()
		allocatable, prod := pair{200, 200}, rapid.Bool().Draw(t, "prod pod")
		scoring := Scoring{Weights: Weights{Percents{1, 2}, 1}, Prod: rapid.Bool().Draw(t, "by prod")}
		expiry := Expiry{After: time.Minute}
		score := func(v View, now time.Time) int64 {
			if !expiry.Scores(v.Report, now) {
				return 0
			}
			return scoring.Score(v, allocatable, prod)
		}
		n.SetReport(nil)
		if got, was := score(n.View(), at(13)), score(before, at(13)); got > was {
			t.Fatalf("without a report the score is %d, before it was %d", got, was)
		}
		if r == nil {
			return
		}
		if got := score(before, at(1000)); got != 0 {
			t.Fatalf("with an expired report the score is %d", got)
		}
		partial := *r
		partial.Pods = maps.Clone(r.Pods)
		for name := range r.Pods {
			if rapid.Bool().Draw(t, "lost") {
				delete(partial.Pods, name)
			}
		}
		n.SetReport(&partial)
		for i, got := range n.View().Use(Measure{}) {
			if was := before.Use(Measure{})[i]; got < was {
				t.Fatalf("%s: without reports of some pods %d, before %d", amount.Resource(i), got, was)
			}
		}
	})
}
