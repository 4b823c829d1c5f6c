package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/forecast"
	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sim"
)

// Sizes of the replay in time.
const (
	everyNode    = 8                // one of so many nodes of the trace
	fewNodes     = 32               // the same where jobs go through the scheduler as well
	shortestRun  = 5 * time.Minute  // pods that ran for less are left out
	longestRun   = 2 * time.Hour    // longer run times count as this
	gangPart     = 25               // percent of the GPU time that gangs ask for
	shortestGang = 10 * time.Minute // gangs run at least so long
	perMember    = 8                // GPUs of a member of a gang
	maxOvertakes = 10               // the default
	orders       = 3                // of arrivals

	estimateEvery = 30 * time.Minute
)

// period is the time of a replay. The nodes are empty at first, and jobs arrive until the end. Those count that arrive
// from one time to another.
type period struct{ from, to, end time.Duration }

var (
	longPeriod  = period{2 * time.Hour, 10 * time.Hour, 12 * time.Hour}
	shortPeriod = period{2 * time.Hour, 5 * time.Hour, 6 * time.Hour}
)

// replayStart is when a replay in time starts.
var replayStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// waitRule is a row of the replay in time: who holds nodes, and how much too long jobs declare their run times.
type waitRule struct {
	name      string
	holds     gang.HoldRules
	overtakes int // after which a gang holds nodes whatever the rules say; 0: never
	factor    time.Duration
}

func waitRules() []waitRule {
	easy := gang.HoldRules{Most: 1, Order: gang.ByPriority, Backfill: true, Below: math.MinInt32}
	full := easy
	full.Backfill = false
	return []waitRule{
		{"no hold", gang.HoldRules{}, 0, 1},
		{"hold without backfill", full, maxOvertakes, 1},
		{"EASY, exact", easy, maxOvertakes, 1},
		{"EASY, ×2 too long", easy, maxOvertakes, 2},
		{"EASY, ×5 too long", easy, maxOvertakes, 5},
	}
}

// args are the rule as arguments of the plugin Coscheduling.
func (r waitRule) args() string {
	return fmt.Sprintf("{maxHolds: %d, enableBackfill: %t, maxOvertakes: %d}", r.holds.Most, r.holds.Backfill,
		r.overtakes)
}

// timed is a pod of the trace, or all members of a gang, that arrives and runs.
type timed struct {
	pod
	members int // 0: no gang
	arrives time.Duration
	runs    time.Duration
}

// gpus is what all members ask for.
func (j *timed) gpus() float64 {
	return float64(j.demand()) / fragment.Whole * float64(max(1, j.members))
}

func (j *timed) gpuTime() float64 { return j.gpus() * j.runs.Seconds() }

// replayWaits replays traces in time, and writes the tables to a file unless it is "". With through, small clusters go
// through the scheduler as well, and nothing is written.
func replayWaits(out io.Writer, nodes string, pods []string, times, percents, results string, through bool) error {
	loads, err := waitingLoads(percents)
	if err != nil {
		return err
	}
	runs, err := runTimes(times)
	if err != nil {
		return err
	}
	var tables []waitTable
	var t *trace
	for _, path := range pods {
		if t, err = load(nodes, path); err != nil {
			return err
		}
		if through {
			if err := compareWaiting(out, t.thinned(fewNodes, shortPeriod), runs, loads); err != nil {
				return err
			}
			continue
		}
		t = t.thinned(everyNode, longPeriod)
		table, err := replayWaiting(out, t, kindOf(path), runs, loads)
		if err != nil {
			return err
		}
		tables = append(tables, table)
	}
	if results == "" || through {
		return nil
	}
	return writeWaits(results, t, tables)
}

// replayWaiting measures how long large and small jobs wait, by load and rule, and prints each row.
func replayWaiting(out io.Writer, t *trace, kind string, runs []time.Duration, loads []int) (table waitTable,
	err error,
) {
	table = waitTable{Name: kind, Columns: waitColumns()}
	for _, load := range loads {
		for _, rule := range waitRules() {
			began := time.Now()
			var w waitSum
			for seed := range uint64(orders) {
				jobs := t.timedJobs(runs, load, firstSeed+seed)
				all, err := t.played(jobs, rule, rand.New(rand.NewPCG(firstSeed+seed, 0)))
				if err != nil {
					return table, fmt.Errorf("%s: %w", rule.name, err)
				}
				w.add(t, jobs, all)
			}
			row := w.cells(load, rule.name, t)
			fmt.Fprintf(out, "waiting trace=%s %s time=%.0fs\n", kind, strings.Join(row, " | "),
				time.Since(began).Seconds())
			table.Rows = append(table.Rows, row)
		}
	}
	return table, nil
}

// compareWaiting prints rows of a small cluster and one order of arrivals, as replayed and by the scheduler itself.
func compareWaiting(out io.Writer, t *trace, runs []time.Duration, loads []int) error {
	for _, load := range loads {
		jobs := t.timedJobs(runs, load, firstSeed)
		for _, rule := range []waitRule{waitRules()[0], waitRules()[2]} {
			replayed, err := t.played(jobs, rule, rand.New(rand.NewPCG(firstSeed, 0)))
			if err != nil {
				return err
			}
			scheduled, err := t.scheduled(jobs, rule)
			if err != nil {
				return fmt.Errorf("%s: %w", rule.name, err)
			}
			for i, all := range [][]played{replayed, scheduled} {
				var w waitSum
				w.add(t, jobs, all)
				source := []string{"replay", "scheduler"}[i]
				fmt.Fprintf(out, "waiting by=%s %s\n", source, strings.Join(w.cells(load, rule.name, t), " | "))
			}
		}
	}
	return nil
}

// scheduled returns what the scheduler makes of jobs under a rule. A gang starts with its last member.
func (t *trace) scheduled(jobs []timed, rule waitRule) ([]played, error) {
	cfg, err := rule.config()
	if err != nil {
		return nil, err
	}
	text, err := t.manifests(jobs, rule.factor)
	if err != nil {
		return nil, err
	}
	r, err := sim.Run(context.Background(), sim.Input{
		Paths: []string{"-"}, Stdin: text, Warn: io.Discard, Config: cfg, Until: sim.Until{After: t.end},
		EstimateEvery: estimateEvery,
	})
	if err != nil {
		return nil, err
	}
	all := slices.Repeat([]played{unplayed}, len(jobs))
	jobOf := func(pod string) *played {
		_, name, _ := strings.Cut(pod, "job-")
		var i int
		_, _ = fmt.Sscanf(name, "%d", &i)
		return &all[i]
	}
	first := r.Timeline.From.Sub(replayStart) // of the arrivals
	after := func(seconds float64) time.Duration { return first + time.Duration(seconds*float64(time.Second)) }
	for _, e := range r.Timeline.Events {
		if e.Event != sim.Started {
			continue
		}
		if p := jobOf(e.Pod); p.start == forecast.Never {
			p.start = after(e.After)
		} else {
			p.start = max(p.start, after(e.After))
		}
	}
	for _, e := range r.Timeline.Estimates {
		p := jobOf(e.Pods[0])
		p.estimated, p.expected = after(e.After), after(e.Earliest)
	}
	return all, nil
}

// gpuTime is what all GPUs can do in the time that is measured, in GPU seconds.
func (t *trace) gpuTime() float64 {
	return float64(t.capacity) / fragment.Whole * (t.to - t.from).Seconds()
}

func jobName(i int) string { return fmt.Sprintf("job-%04d", i) }

// config returns the default configuration with the arguments of a rule.
func (r waitRule) config() (*config.KubeSchedulerConfiguration, error) {
	cfg, err := app.DefaultConfig([]string{corev1.DefaultSchedulerName})
	if err != nil {
		return nil, err
	}
	profile := &cfg.Profiles[0]
	profile.PluginConfig = slices.DeleteFunc(profile.PluginConfig, func(c config.PluginConfig) bool {
		return c.Name == coscheduling.Name
	})
	profile.PluginConfig = append(profile.PluginConfig, config.PluginConfig{
		Name: coscheduling.Name,
		Args: &runtime.Unknown{Raw: []byte(r.args()), ContentType: runtime.ContentTypeYAML},
	})
	return cfg, nil
}

// thinned returns one of so many nodes, for a replay in time.
func (t *trace) thinned(every int, in period) *trace {
	out := *t
	out.period = in
	out.nodes, out.capacity = nil, 0
	for i := 0; i < len(t.nodes); i += every {
		out.nodes = append(out.nodes, t.nodes[i])
		out.capacity += t.nodes[i].gpus
	}
	return &out
}

// runTimes reads how long pods of a trace ran.
func runTimes(path string) (runs []time.Duration, err error) {
	err = table(path, func(row *row) {
		const most = 1 << 30
		created, deleted := row.number(8, 0, most), row.number(9, 0, most)
		runs = append(runs, min(max(time.Duration(deleted-created), 1)*time.Second, longestRun))
	})
	return runs, err
}

// timedJobs draws pods of the trace with run times, and gangs, until they ask for a part of what all GPUs can do, in
// percent, and returns them in the order of their arrival. Half of the GPU time of gangs is that of 16 GPUs, half that
// of 64. Jobs of a smaller load are among those of a greater one.
func (t *trace) timedJobs(runs []time.Duration, load int, seed uint64) (jobs []timed) {
	whole := float64(t.capacity) / fragment.Whole * t.end.Seconds() * float64(load) / 100
	draw := func(stream uint64, part float64, next func(rng *rand.Rand) timed) {
		rng := rand.New(rand.NewPCG(seed, stream))
		for work := 0.0; work < whole*part/100; {
			j := next(rng)
			j.arrives = time.Duration(rng.Int64N(int64(t.end))).Truncate(time.Second)
			work += j.gpuTime()
			jobs = append(jobs, j)
		}
	}
	draw(1, 100-gangPart, func(rng *rand.Rand) timed {
		for {
			at := rng.IntN(len(t.pods))
			if j := (timed{pod: t.pods[at], runs: runs[at%len(runs)]}); j.runs >= shortestRun {
				return j
			}
		}
	})
	member := t.gangMember()
	for _, members := range []int{2, 8} {
		draw(uint64(members), gangPart/2.0, func(rng *rand.Rand) timed {
			j := timed{pod: member, members: members}
			for j.runs < shortestGang {
				j.runs = runs[rng.IntN(len(runs))]
			}
			return j
		})
	}
	slices.SortStableFunc(jobs, func(a, b timed) int { return cmp.Compare(a.arrives, b.arrives) })
	return jobs
}

// gangMember returns a member of a gang, whose kind the trace has from then on.
func (t *trace) gangMember() pod {
	p := pod{memory: 16 << 10}
	p.MilliCPU, p.GPUs, p.Milli = 16000, perMember, fragment.Whole
	p.kind = slices.IndexFunc(t.specs, func(w fragment.Weighted) bool { return w.Spec == p.Spec })
	if p.kind < 0 {
		p.kind = len(t.specs)
		t.specs = append(slices.Clip(t.specs), fragment.Weighted{Spec: p.Spec})
	}
	return p
}

// manifests are the nodes and the jobs, which declare factor times their run times.
func (t *trace) manifests(jobs []timed, factor time.Duration) (io.Reader, error) {
	var in bytes.Buffer
	write := json.NewEncoder(&in)
	add := func(o any) error {
		err := write.Encode(o)
		in.WriteString("---\n")
		return err
	}
	var failed []error
	for i := range t.nodes {
		node, devices := t.nodes[i].objects(t.models)
		failed = append(failed, add(node), add(devices))
	}
	for i, j := range jobs {
		for m := range max(1, j.members) {
			o, err := j.object(fmt.Sprintf("%s-%d", jobName(i), m), "", t.models)
			if err != nil {
				return nil, err
			}
			metadata := o["metadata"].(object)
			metadata["creationTimestamp"] = replayStart.Add(j.arrives).Format(time.RFC3339)
			annotations := metadata["annotations"].(object)
			annotations[annotation.ExpectedRuntime] = (factor * j.runs).String()
			annotations[annotation.SimulateKey] = fmt.Sprintf(`{"runFor":%q}`, j.runs)
			if j.members > 0 {
				metadata["labels"] = object{
					"pod-group.scheduling.sigs.k8s.io/name":          fmt.Sprintf("gang-%04d", i),
					"pod-group.scheduling.sigs.k8s.io/min-available": fmt.Sprint(j.members),
				}
			}
			failed = append(failed, add(o))
		}
	}
	return &in, errors.Join(failed...)
}

// waitingLoads reads percentages between commas.
func waitingLoads(text string) (loads []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		var load int
		if _, err := fmt.Sscanf(part, "%d", &load); err != nil || load < 1 || load > 1000 {
			return nil, fmt.Errorf("-waiting %s is not allowed: use percentages of 1 to 1000 such as 80,95,110", text)
		}
		loads = append(loads, load)
	}
	return loads, nil
}
