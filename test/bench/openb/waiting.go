package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sim"
)

// Sizes of the replay in time.
const (
	everyNode  = 24              // one of so many nodes of the trace
	smallPods  = 800             // drawn from the trace
	longestRun = 2 * time.Hour   // longer run times count as this
	gangPart   = 40              // percent of the GPU time that gangs ask for
	shortGang  = 5 * time.Minute // gangs run from this to longGang
	longGang   = 25 * time.Minute
	perMember  = 8 // GPUs of a member
)

// waitRule is a row of the replay in time: arguments of the plugin Coscheduling, and how much too long pods declare.
type waitRule struct {
	name, args string
	factor     time.Duration
}

func waitRules() []waitRule {
	rules := []waitRule{
		{"no hold", "maxOvertakes: 0, maxHolds: 0", 1},
		{"hold after 10 overtakes", "maxHolds: 0", 1},
		{"hold without backfill", "maxHolds: 1, enableBackfill: false", 1},
		{"EASY, exact", "maxHolds: 1", 1},
		{"EASY, ×2 too long", "maxHolds: 1", 2},
		{"EASY, ×5 too long", "maxHolds: 1", 5},
	}
	return rules
}

// timed is a pod of the trace, or all members of a gang, that arrives and runs.
type timed struct {
	pod
	members int // 0: no gang
	arrives time.Duration
	runs    time.Duration
}

func (w *timed) gpuTime() float64 {
	return float64(w.demand()) / fragment.Whole * float64(max(1, w.members)) * w.runs.Seconds()
}

// replayWaiting prints how long large and small jobs wait, by rule and load.
func replayWaiting(out io.Writer, t *trace, kind, times string, loads []int) error {
	t = t.thinned()
	jobs, err := t.timedJobs(times)
	if err != nil {
		return err
	}
	for _, load := range loads {
		until := spread(jobs, load, t.capacity) * 5 / 4 // the last ones have time to start
		for _, rule := range waitRules() {
			cfg, err := rule.config()
			if err != nil {
				return err
			}
			began := time.Now()
			text, err := t.manifests(jobs, rule.factor)
			if err != nil {
				return err
			}
			r, err := sim.Run(context.Background(), sim.Input{
				Paths: []string{"-"}, Stdin: text, Warn: io.Discard, Config: cfg, Until: sim.Until{After: until},
			})
			if err != nil {
				return fmt.Errorf("%s: %w", rule.name, err)
			}
			fmt.Fprintf(out, "waiting trace=%s load=%d rule=%q %s time=%.0fs\n", kind, load, rule.name,
				sumWaits(r.Timeline, jobs, until), time.Since(began).Seconds())
		}
	}
	return nil
}

// sumWaits sums up how long jobs waited. A gang starts with its last member; what has not started, waited to
// the end.
func sumWaits(t *sim.Timeline, jobs []timed, end time.Duration) string {
	starts := map[string]float64{}
	for _, e := range t.Events {
		if e.Event == sim.Started {
			job := e.Pod[strings.Index(e.Pod, "job-"):strings.LastIndex(e.Pod, "-")]
			starts[job] = max(starts[job], e.After)
		}
	}
	var small, large []float64
	waiting := 0
	for i, j := range jobs {
		start, started := starts[jobName(i)]
		if !started {
			start = end.Seconds()
			waiting++
		}
		if waited := max(0, start-j.arrives.Seconds()); j.members > 0 {
			large = append(large, waited)
		} else {
			small = append(small, waited)
		}
	}
	used := 0.0
	for _, u := range t.Use {
		if u.Resource == "GPUs" {
			used = 100 * u.Mean / u.Capacity
		}
	}
	text := func(waits []float64) string {
		mean, p95, _ := sim.SumUp(waits)
		return fmt.Sprintf("%d/%.1f/%.1f", len(waits), mean/60, p95/60)
	}
	return fmt.Sprintf("large=%s small=%s minutes (count/mean/p95) gpus=%.1f%% not-started=%d", text(large),
		text(small), used, waiting)
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
		Args: &runtime.Unknown{Raw: []byte("{" + r.args + "}"), ContentType: runtime.ContentTypeYAML},
	})
	return cfg, nil
}

// thinned returns one of everyNode nodes.
func (t *trace) thinned() *trace {
	out := *t
	out.nodes, out.capacity = nil, 0
	for i := 0; i < len(t.nodes); i += everyNode {
		out.nodes = append(out.nodes, t.nodes[i])
		out.capacity += t.nodes[i].gpus
	}
	return &out
}

// timedJobs draws pods of the trace with run times of a file, in the order of their creation, and gangs among them.
func (t *trace) timedJobs(times string) (jobs []timed, err error) {
	var runs []time.Duration
	err = table(times, func(row *row) {
		const most = 1 << 30
		created, deleted := row.number(8, 0, most), row.number(9, 0, most)
		runs = append(runs, min(time.Duration(deleted-created)*time.Second, longestRun))
	})
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(firstSeed, 1))
	work := 0.0
	for range smallPods {
		at := rng.IntN(len(t.pods))
		j := timed{pod: t.pods[at], runs: max(runs[at%len(runs)], time.Second)}
		j.arrives = time.Duration(rng.Int64N(1 << 40))
		work += j.gpuTime()
		jobs = append(jobs, j)
	}
	for gangs := 0.0; gangs < work*gangPart/(100-gangPart); {
		j := timed{members: 2, runs: shortGang + time.Duration(rng.Int64N(int64(longGang-shortGang)))}
		if rng.IntN(2) == 0 {
			j.members = 8
		}
		j.MilliCPU, j.memory, j.GPUs, j.Milli = 16000, 16<<10, perMember, fragment.Whole
		j.runs = j.runs.Truncate(time.Second)
		j.arrives = time.Duration(rng.Int64N(1 << 40))
		gangs += j.gpuTime()
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// spread lets jobs arrive evenly within the time in which all GPUs do 100/load of their work, which it returns, and
// keeps the order of their arrivals.
func spread(jobs []timed, load int, capacity int64) time.Duration {
	slices.SortStableFunc(jobs, func(a, b timed) int { return cmp.Compare(a.arrives, b.arrives) })
	work := 0.0
	for i := range jobs {
		work += jobs[i].gpuTime()
	}
	window := time.Duration(work / float64(capacity) * fragment.Whole * 100 / float64(load) * float64(time.Second))
	for i := range jobs {
		jobs[i].arrives = (window * time.Duration(i) / time.Duration(len(jobs))).Truncate(time.Second)
	}
	return window
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
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, j := range jobs {
		for m := range max(1, j.members) {
			o, err := j.object(fmt.Sprintf("%s-%d", jobName(i), m), "", t.models)
			if err != nil {
				return nil, err
			}
			metadata := o["metadata"].(object)
			metadata["creationTimestamp"] = start.Add(j.arrives).Format(time.RFC3339)
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
