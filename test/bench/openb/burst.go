package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/core/amount"
	use "github.com/tenon-project/tenon/internal/core/load"
)

// A burst on machines of 32 CPUs and 128 GiB.
const (
	burstNodes   = 50
	burstPods    = 500
	perSecond    = 10
	lateness     = time.Minute      // after which a pod uses what it will use
	interval     = time.Minute      // of reports
	burstEnds    = 10 * time.Minute // pods that wait are tried until then
	burstCPUs    = 32000
	burstMemory  = 128 << 30
	cpuThreshold = 65
)

// rule is how a burst is placed.
type rule struct {
	name string
	// load adds the score of LoadAwareScheduling, and its thresholds.
	load bool
	// blind counts reports alone: no estimates.
	blind bool
	// percentile asks for p95 of 5 minutes, which no report has before it is 5 minutes old.
	percentile bool
	// sums takes the estimates of all pods for a percentile that is not reported, as Koordinator does; else the larger
	// of these and of the last average counts.
	sums bool
}

var rules = []rule{
	{name: "stock"},
	{name: "reports, no estimates", load: true, blind: true},
	{name: "LoadAwareScheduling", load: true},
	{name: "the same, p95 asked for", load: true, percentile: true},
	{name: "Koordinator's rules, p95 asked for", load: true, percentile: true, sums: true},
}

type burstPod struct {
	request, uses int64
	started       time.Time
}

type burstNode struct {
	account *use.Node
	base    int64 // that runs since long ago
	asked   amount.Pair
	pods    []burstPod
	reports time.Duration // the second of the minute in which it reports
}

// uses returns the use of CPU at a time.
func (n *burstNode) uses(now time.Time) int64 {
	sum := n.base
	for _, p := range n.pods {
		if now.Sub(p.started) >= lateness {
			sum += p.uses
		} else {
			sum += p.uses / 10
		}
	}
	return sum
}

// burst returns the highest use of CPU of a node in percent, the deviation between nodes at the end in points, and how
// many pods have no node.
func burst(seed uint64, r rule) (highest, deviation float64, without int) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	start := time.Unix(1_000_000, 0)
	nodes := make([]burstNode, burstNodes)
	for i := range nodes {
		n := &nodes[i]
		*n = burstNode{
			account: use.NewNode(), base: burstCPUs * (5 + rnd.Int64N(50)) / 100,
			asked:   amount.Pair{burstCPUs * (10 + rnd.Int64N(50)) / 100, burstMemory / 4},
			reports: time.Duration(rnd.Int64N(60)) * time.Second,
		}
		n.account.Put(use.Pod{
			UID: "base", Name: "d/base", Assigned: start.Add(-time.Hour),
			Estimate: use.Estimate(use.Ask{Request: n.asked}, use.Percents{85, 70}),
		})
		n.report(start.Add(n.reports-interval), start, r)
	}
	var waiting []burstPod
	for s := range int(burstEnds / time.Second) {
		now := start.Add(time.Duration(s) * time.Second)
		for i := range nodes {
			if time.Duration(s)*time.Second%interval == nodes[i].reports {
				nodes[i].report(now, start, r)
			}
		}
		if arrived := s * perSecond; arrived < burstPods {
			for range perSecond {
				waiting = append(waiting, burstPod{request: 1000, uses: 200 + rnd.Int64N(1600)})
			}
		}
		waiting = slices.DeleteFunc(waiting, func(p burstPod) bool { return place(nodes, p, now, r) })
		for i := range nodes {
			highest = max(highest, 100*float64(nodes[i].uses(now))/burstCPUs)
		}
	}
	var sum, squares float64
	for i := range nodes {
		part := 100 * float64(nodes[i].uses(start.Add(burstEnds))) / burstCPUs
		sum, squares = sum+part, squares+part*part
	}
	mean := sum / burstNodes
	return highest, math.Sqrt(max(squares/burstNodes-mean*mean, 0)), len(waiting)
}

// report reports the use of a node.
func (n *burstNode) report(now, start time.Time, r rule) {
	total := amount.Pair{n.uses(now), burstMemory / 5}
	report := &use.Report{Updated: now, Interval: interval, Use: &total, Pods: map[string]use.PodUse{
		"d/base": {Use: amount.Pair{n.base, burstMemory / 5}, Prod: true},
	}}
	for i, p := range n.pods {
		if p.started.Before(now) {
			part := p.uses
			if now.Sub(p.started) < lateness {
				part /= 10
			}
			report.Pods[fmt.Sprint("d/", i)] = use.PodUse{Use: amount.Pair{part, 1 << 30}, Prod: true}
		}
	}
	if r.percentile && now.Sub(start) >= 5*time.Minute {
		report.Aggregates = []use.Aggregate{{
			Duration: 5 * time.Minute, Use: map[use.Statistic]amount.Pair{use.P95: total},
		}}
	}
	n.account.SetReport(report)
}

// place puts a pod on the node with the highest score; false where none takes it.
func place(nodes []burstNode, p burstPod, now time.Time, r rule) bool {
	ask := amount.Pair{p.request, 1 << 30}
	all := amount.Pair{burstCPUs, burstMemory}
	pod := use.Pod{Assigned: now, Prod: true, Estimate: use.Estimate(use.Ask{Request: ask}, use.Percents{85, 70})}
	measure := use.Measure{}
	if r.percentile {
		measure = use.Measure{Statistic: use.P95, Duration: 5 * time.Minute}
	}
	limits := use.Rules{Aggregated: use.Percents{amount.CPU: cpuThreshold}, AggregatedBy: measure}
	scoring := use.Scoring{Weights: use.Weights{Resources: use.Percents{1, 1}}, By: measure}
	best, most := -1, int64(-1)
	for i := range nodes {
		n := &nodes[i]
		asked := n.asked.Plus(ask)
		if asked[amount.CPU] > burstCPUs {
			continue
		}
		score := stockScore(asked, all)
		if r.load {
			view := n.view(r)
			if _, exceeds := limits.Exceeds(view.With(pod), all, true); exceeds {
				continue
			}
			score += scoring.Score(view.With(pod), all, true)
		}
		if score > most {
			best, most = i, score
		}
	}
	if best < 0 {
		return false
	}
	n := &nodes[best]
	pod.UID = fmt.Sprint(len(n.pods))
	pod.Name = "d/" + pod.UID
	if !r.blind {
		n.account.Put(pod)
	}
	p.started = now
	n.asked, n.pods = n.asked.Plus(ask), append(n.pods, p)
	return true
}

// view returns the account as a rule counts it.
func (n *burstNode) view(r rule) use.View {
	v := n.account.View()
	if !r.sums || len(v.Report.Aggregates) > 0 {
		return v
	}
	sums := use.NewNode() // without a report the estimates of all pods are the use
	for p := range n.account.Pods() {
		sums.Put(p)
	}
	return sums.View()
}

// stockScore is the sum of LeastAllocated and of the balance of the requests, as kube-scheduler computes them.
func stockScore(asked, all amount.Pair) int64 {
	share := func(r amount.Resource) float64 { return float64(asked[r]) / float64(all[r]) }
	cpu, memory := share(amount.CPU), share(amount.Memory)
	return int64(100*(2-cpu-memory)/2) + int64(100*(1-math.Abs(cpu-memory)/2))
}

// bursts prints the median over seeds, with the least and the largest.
func bursts(out io.Writer, seeds int) {
	fmt.Fprintf(out, "| Rule | Highest CPU use of a node | Deviation between nodes | Pods without a node |\n|%s\n",
		strings.Repeat("---|", 4))
	for _, r := range rules {
		var highest, deviation, without []float64
		for s := range seeds {
			h, d, w := burst(uint64(firstSeed+s), r)
			highest, deviation = append(highest, h), append(deviation, d)
			without = append(without, float64(w))
		}
		fmt.Fprintf(out, "| %s | %s %% | %s points | %s |\n", r.name, span(highest, 1), span(deviation, 1),
			span(without, 0))
	}
}

func span(all []float64, digits int) string {
	slices.Sort(all)
	return fmt.Sprintf("%.*f (%.*f–%.*f)", digits, all[len(all)/2], digits, all[0], digits, all[len(all)-1])
}
