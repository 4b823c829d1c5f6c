package sim

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/tenon-project/tenon/internal/progress"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/view"
)

// Comparison is what becomes of the pods of a journal under two configurations.
type Comparison struct {
	File string    `json:"file"`
	With string    `json:"with"` // the file of the other configuration
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	Pods int       `json:"pods"` // that arrived without a node
	// Skipped are pods that all three have on the recorded nodes, by cause.
	Skipped map[string]int `json:"skipped,omitempty"`
	// Recorded is what the scheduler did. Replayed is what its configuration does in a replay, and Other what the other
	// one does there: their difference is that of the configurations alone.
	Recorded Course `json:"recorded"`
	Replayed Course `json:"replayed"`
	Other    Course `json:"other"`
	// AsRecorded is the number of pods that are replayed as recorded: on the same node, or without one.
	AsRecorded int `json:"asRecorded"`
	// Differences are the pods whose node differs between Replayed and Other, by name.
	Differences []PodDifference `json:"differences"`
}

// Course sums up what becomes of the pods.
type Course struct {
	Placed int `json:"placed"`
	// Unplaced pods have no node until they are deleted or the journal ends.
	Unplaced  int `json:"unplaced"`
	Preempted int `json:"preempted"`
	// MeanWait and LongestWait are in seconds. An unplaced pod waits until it is deleted or the journal ends.
	MeanWait    float64 `json:"meanWaitSeconds"`
	LongestWait float64 `json:"longestWaitSeconds"`
	// GPUs is nil for a cluster without GPUs that Tenon allocates.
	GPUs *GPUCourse `json:"gpus,omitempty"`
}

// GPUCourse is how many GPUs pods had, and how many of the others no expected pod could use, FGD's measure of
// fragmentation: on average over the time of the journal, and at its end.
type GPUCourse struct {
	Allocated       float64 `json:"allocated"`
	AllocatedAtEnd  float64 `json:"allocatedAtEnd"`
	Fragmented      float64 `json:"fragmented"`
	FragmentedAtEnd float64 `json:"fragmentedAtEnd"`
}

// PodDifference is a pod that the configurations place differently. A node is "" where the pod has none.
type PodDifference struct {
	Pod          string  `json:"pod"`
	Replayed     string  `json:"replayed"`
	ReplayedWait float64 `json:"replayedWaitSeconds"`
	Other        string  `json:"other"`
	OtherWait    float64 `json:"otherWaitSeconds"`
}

// comparison makes a Comparison of a journal.
type comparison struct {
	path  string
	until time.Time

	from, to time.Time
	skipped  map[string]int
	arrivals map[types.UID]*arrival
	meter    *deviceshare.Meter // nil until all pods are known
}

// Compare replays the arrivals of a journal, up to a time unless that is zero, with its own configuration and with the
// one of a file. Bad input is an *InputError.
func Compare(ctx context.Context, path string, until time.Time, with string, other *config.KubeSchedulerConfiguration,
) (Comparison, error) {
	ctx, cancel := context.WithCancel(withoutLog(ctx))
	defer cancel()
	c := &comparison{path: path, until: until, skipped: map[string]int{}, arrivals: map[types.UID]*arrival{}}
	if err := c.survey(ctx); err != nil {
		return Comparison{}, err
	}
	out := Comparison{File: path, With: with, Differences: []PodDifference{}}
	var loads [3]usage
	own, changed := &course{}, &course{config: other}
	err := c.record(ctx, &loads[0], func(*journal.Record, journal.Object) {}, func(*replay) {})
	for i, free := range []*course{own, changed} {
		if err == nil {
			err = c.run(ctx, free)
			loads[i+1] = free.load
		}
	}
	if err != nil {
		return Comparison{}, err
	}
	out.From, out.To, out.Skipped = c.from, c.to, c.skipped // pods that are left out below are added
	recorded := map[types.UID]*outcome{}
	for uid, a := range c.arrivals {
		before, after := own.outcomes[uid] != nil, changed.outcomes[uid] != nil
		if before != after {
			c.skipped[fmt.Sprintf("one of the configurations does not serve the scheduler name %q",
				a.pod.Spec.SchedulerName)]++
			delete(own.outcomes, uid)
			delete(changed.outcomes, uid)
		}
		if !before || !after {
			continue
		}
		recorded[uid] = &outcome{node: a.node, at: a.placed, left: a.ended, preempted: a.preempted}
		out.Pods++
	}
	out.Recorded = c.sum(recorded, &loads[0])
	out.Replayed, out.Other = c.sum(own.outcomes, &loads[1]), c.sum(changed.outcomes, &loads[2])
	for uid, was := range recorded {
		before, after := own.outcomes[uid], changed.outcomes[uid]
		if before.node == was.node {
			out.AsRecorded++
		}
		d := PodDifference{
			Pod:      c.arrivals[uid].pod.Namespace + "/" + c.arrivals[uid].pod.Name,
			Replayed: before.node, ReplayedWait: c.wait(uid, before), Other: after.node, OtherWait: c.wait(uid, after),
		}
		if d.Replayed != d.Other {
			out.Differences = append(out.Differences, d)
		}
	}
	slices.SortFunc(out.Differences, func(a, b PodDifference) int { return strings.Compare(a.Pod, b.Pod) })
	return out, nil
}

// survey reads the journal once, and learns which pods arrive and what GPUs they ask for.
func (c *comparison) survey(ctx context.Context) error {
	given, seeds := map[types.UID]bool{}, map[types.UID]uint32{}
	var pods []*corev1.Pod
	see := func(record *journal.Record, o journal.Object) {
		c.to = record.Time
		switch {
		case record.Snapshot != nil:
			c.from = record.Time
			for i := range record.Snapshot.Reserved {
				given[types.UID(record.Snapshot.Reserved[i].UID)] = true
			}
		case record.Decision != nil:
			seeds[types.UID(record.Decision.UID)] = record.Decision.Seed
		default:
			pod, ok := o.(*corev1.Pod)
			if !ok {
				return
			}
			a := c.arrivals[pod.UID]
			if a == nil && !given[pod.UID] && record.Event.Op == journal.Put {
				pods = append(pods, pod)
				a = c.arrive(pod, record.Time)
				given[pod.UID] = a == nil
			}
			if a != nil {
				a.observe(pod, record.Event.Op, record.Time)
			}
		}
	}
	return c.record(ctx, &usage{}, see, func(r *replay) {
		for uid, a := range c.arrivals {
			a.seed = seeds[uid]
		}
		c.meter = deviceshare.NewMeter(r.engine.store, pods)
	})
}

// arrive returns the arrival of a pod; nil for one that has a node, or whose decision needs what a journal lacks.
func (c *comparison) arrive(pod *corev1.Pod, at time.Time) *arrival {
	if pod.Spec.NodeName != "" {
		return nil
	}
	if hasVolumes(pod) || len(pod.Spec.ResourceClaims) > 0 {
		c.skipped["their pods have PersistentVolumeClaims or ResourceClaims"]++
		return nil
	}
	c.arrivals[pod.UID] = &arrival{pod: pod, at: at}
	return c.arrivals[pod.UID]
}

// record applies the journal as it is, without a decision. It calls see before each record, and done at the end.
func (c *comparison) record(ctx context.Context, load *usage, see func(*journal.Record, journal.Object),
	done func(*replay),
) error {
	var r *replay
	err := eachRecord(c.path, c.until, func(record *journal.Record, _ int) (err error) {
		if record.Snapshot != nil {
			if r, err = begin(ctx, record, nil); err != nil {
				return err
			}
			c.watch(r.engine, load)
		}
		o, err := r.decode(record)
		if err != nil {
			return err
		}
		see(record, o)
		load.pass(record.Time.Sub(r.at))
		r.reachRecord(record)
		switch {
		case record.Event != nil:
			err = r.event(ctx, record.Event, o)
		case record.Decision != nil:
			r.force(record.Decision)
		}
		if record.Gen >= r.loaded {
			load.read()
		}
		return err
	})
	if r != nil {
		defer r.engine.end()
	}
	if err == nil {
		done(r)
	}
	return err
}

// run runs a course of the journal.
func (c *comparison) run(ctx context.Context, free *course) error {
	free.arrivals, free.outcomes = c.arrivals, map[types.UID]*outcome{}
	err := eachRecord(c.path, c.until, func(record *journal.Record, _ int) error {
		if record.Snapshot != nil {
			if _, err := begin(ctx, record, free); err != nil && free.config != nil {
				return inputErrorf("--with: %v", err) // the journal's own configuration has begun before
			} else if err != nil {
				return err
			}
			c.watch(free.engine, &free.load)
		}
		return free.apply(ctx, record)
	})
	if free.replay != nil && free.engine != nil { // the core took the configuration
		free.engine.end()
	}
	return err
}

// watch makes a usage measure the GPUs of an engine.
func (c *comparison) watch(e *engine, load *usage) {
	if c.meter != nil {
		load.measure = c.meter.Watch(e.core.Cache, e.store)
	}
}

// wait returns how many seconds a pod waits for its node.
func (c *comparison) wait(uid types.UID, s *outcome) float64 {
	until := s.at
	if s.node == "" {
		if until = c.to; !s.left.IsZero() {
			until = s.left
		}
	}
	return until.Sub(c.arrivals[uid].at).Seconds()
}

// sum sums up what becomes of pods.
func (c *comparison) sum(outcomes map[types.UID]*outcome, load *usage) (out Course) {
	for uid, s := range outcomes {
		if s.node == "" {
			out.Unplaced++
		} else {
			out.Placed++
		}
		if s.preempted {
			out.Preempted++
		}
		wait := c.wait(uid, s)
		out.MeanWait += wait / float64(len(outcomes))
		out.LongestWait = max(out.LongestWait, wait)
	}
	out.MeanWait = round(out.MeanWait)
	if now := load.now; now.GPUs > 0 {
		seconds := max(load.seconds, 1e-9)
		out.GPUs = &GPUCourse{
			Allocated: round(load.used / seconds), AllocatedAtEnd: float64(now.Used) / 1000,
			Fragmented: round(load.lost / seconds), FragmentedAtEnd: float64(now.Lost) / 1000,
		}
	}
	return out
}

// round rounds to thousandths, which also hides the order in which numbers were added.
func round(x float64) float64 { return math.Round(x*1000) / 1000 }

// mostDifferences bounds the pods that the text lists.
const mostDifferences = 20

func (c *Comparison) print(out io.Writer, format string) error {
	if format == "json" {
		return printJSON(out, c)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s: %s to %s, %s\n\n", c.File, c.From.UTC().Format(time.RFC3339),
		c.To.UTC().Format(time.RFC3339), view.Count(c.Pods, "new pod"))
	with := filepath.Base(c.With)
	rows := [][]string{{"", "RECORDED", "REPLAYED", "WITH " + with}}
	add := func(name, format string, value func(*Course) any) {
		row := []string{name}
		for _, one := range []*Course{&c.Recorded, &c.Replayed, &c.Other} {
			row = append(row, fmt.Sprintf(format, value(one)))
		}
		rows = append(rows, row)
	}
	add("pods placed", "%d", func(c *Course) any { return c.Placed })
	add("pods not placed", "%d", func(c *Course) any { return c.Unplaced })
	add("pods preempted", "%d", func(c *Course) any { return c.Preempted })
	add("mean wait", "%.3fs", func(c *Course) any { return c.MeanWait })
	add("longest wait", "%.3fs", func(c *Course) any { return c.LongestWait })
	if c.Recorded.GPUs != nil {
		add("allocated GPUs, mean", "%.3f", func(c *Course) any { return c.GPUs.Allocated })
		add("allocated GPUs, end", "%.3f", func(c *Course) any { return c.GPUs.AllocatedAtEnd })
		add("fragmented GPUs, mean", "%.3f", func(c *Course) any { return c.GPUs.Fragmented })
		add("fragmented GPUs, end", "%.3f", func(c *Course) any { return c.GPUs.FragmentedAtEnd })
	}
	alignRows(&text, rows, progress.Width(out))
	fmt.Fprintf(&text, "\nreplayed as recorded: %d of %d\n", c.AsRecorded, c.Pods)
	for _, cause := range slices.Sorted(maps.Keys(c.Skipped)) {
		fmt.Fprintf(&text, "not compared: %d: %s\n", c.Skipped[cause], cause)
	}
	fmt.Fprintf(&text, "placed differently with %s: %d of %d\n", with, len(c.Differences), c.Pods)
	if len(c.Differences) > 0 {
		rows = [][]string{{"POD", "REPLAYED", "WAIT", "WITH", "WAIT"}}
		for _, d := range c.Differences[:min(len(c.Differences), mostDifferences)] {
			rows = append(rows, []string{
				d.Pod, cmp.Or(d.Replayed, "-"), fmt.Sprintf("%.3fs", d.ReplayedWait), cmp.Or(d.Other, "-"),
				fmt.Sprintf("%.3fs", d.OtherWait),
			})
		}
		text.WriteByte('\n')
		alignRows(&text, rows, progress.Width(out))
	}
	if more := len(c.Differences) - mostDifferences; more > 0 {
		fmt.Fprintf(&text, "and %d more: -o json lists all\n", more)
	}
	_, err := io.WriteString(out, view.WrapLines(text.String(), progress.Width(out)))
	return err
}
