package sim

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/forecast"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/view"
)

// Until is when a simulation ends in which time passes. The zero value is that of one in which no time passes.
type Until struct {
	After time.Duration // from its start
	At    time.Time     // instead of After, unless it is zero
}

// ParseUntil reads a duration or a time.
func ParseUntil(text string) (u Until, err error) {
	if u.At, err = time.Parse(time.RFC3339, text); err == nil {
		return u, nil
	}
	if u.After, err = time.ParseDuration(text); err != nil || u.After <= 0 {
		return u, inputErrorf("--until %s is not allowed: use a duration above 0 such as 90m or 48h, or a time such "+
			"as 2026-11-26T10:00:00Z", text)
	}
	return u, nil
}

// end returns when a simulation ends that starts at a time.
func (u Until) end(start time.Time) (time.Time, error) {
	end := cmp.Or(u.At, start.Add(u.After))
	if end.After(start) {
		return end, nil
	}
	return end, inputErrorf("--until %s is not allowed: the simulation starts at %s, the latest time in its input",
		end.Format(time.RFC3339), start.Format(time.RFC3339))
}

// Kinds of a TimelineEvent.
const (
	Arrived = "Arrived" // it was created after the simulation had started
	Started = "Started"
	Ended   = "Ended" // also the State of a pod whose run time was over
)

// Timeline is what happens in a simulation in which time passes.
type Timeline struct {
	From   time.Time       `json:"from"`
	To     time.Time       `json:"to"`
	Events []TimelineEvent `json:"events"`
	Waits  Waits           `json:"waits"`
	// Use is what pods request of each resource, on average over the time.
	Use []Use `json:"use"`
	// WithoutEnd are pods that run to the end since they declare no run time, Outlived those that ran for longer than
	// they declare when the simulation started, and have no deadline. Both are namespace/name.
	WithoutEnd []string `json:"withoutEnd"`
	Outlived   []string `json:"outlived"`
	// Estimates are those of Input.EstimateEvery, in the order in which they were made.
	Estimates []Estimate `json:"-"`
}

// TimelineEvent is what happens to a pod. Times are in seconds; that of the event counts from the start.
type TimelineEvent struct {
	After float64 `json:"afterSeconds"`
	Event string  `json:"event"`
	Pod   string  `json:"pod"` // namespace/name
	Gang  string  `json:"gang,omitempty"`
	Node  string  `json:"node,omitempty"`
	// Waited is since the pod was created, or since the start. RunTime is absent where it is not declared. Only pods
	// that start have them.
	Waited  float64       `json:"waitedSeconds,omitempty"`
	RunTime *view.RunTime `json:"runTime,omitempty"`
}

// Waits sums up how long pods wait, in seconds.
type Waits struct {
	Started int     `json:"started"`
	Mean    float64 `json:"meanSeconds"`
	P95     float64 `json:"p95Seconds"`
	Longest float64 `json:"longestSeconds"`
	// Waiting counts pods that have not started at the end, and LongestWaiting is how long one of them has waited.
	Waiting        int     `json:"waiting"`
	LongestWaiting float64 `json:"longestWaitingSeconds"`
}

// Use is what is used of a resource. CPUs and GPUs are whole ones, memory is in bytes.
type Use struct {
	Resource string  `json:"resource"`
	Mean     float64 `json:"mean"`
	Capacity float64 `json:"capacity"`
}

// timeline lets time pass for an engine, and records what happens.
type timeline struct {
	*passage
	out      Timeline
	world    *world
	arrivals []*corev1.Pod // to come, by time
	waits    map[types.UID]time.Time
	ended    map[types.UID]Pod // as they were before
	used     map[corev1.ResourceName]float64
	seconds  map[corev1.ResourceName]float64 // used, times seconds, until counted
	counted  time.Time
	expected *estimates // nil where none are made
}

// newTimeline watches an engine that has not decided yet about the pods that are queued.
func newTimeline(e *engine, w *world, queued []pod) (t *timeline, err error) {
	t = &timeline{
		passage: e.time, world: w, waits: map[types.UID]time.Time{}, ended: map[types.UID]Pod{},
		used: map[corev1.ResourceName]float64{}, seconds: map[corev1.ResourceName]float64{}, counted: e.time.at,
	}
	t.out = Timeline{From: t.at, Events: []TimelineEvent{}, Use: []Use{}, WithoutEnd: []string{}, Outlived: []string{}}
	if t.out.To, err = w.until.end(t.at); err != nil {
		return nil, err
	}
	var all []*corev1.Pod
	for _, p := range queued {
		all = append(all, p.Pod)
		if t.waits[p.UID] = p.CreationTimestamp.Time; p.CreationTimestamp.IsZero() {
			t.waits[p.UID] = t.at
		}
		if t.isLater(p.Pod) {
			t.arrivals = append(t.arrivals, p.Pod)
		}
	}
	slices.SortStableFunc(t.arrivals, func(a, b *corev1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for _, p := range w.existing {
		if o, runs, _ := e.api.pods.GetStore().Get(p.Pod); runs {
			t.start(o.(*corev1.Pod), true)
		}
	}
	t.load.measure = deviceshare.NewMeter(e.store, all).Watch(e.core.Cache, e.store)
	t.load.read()
	t.left = t.end
	deleted := e.api.deleted
	e.api.deleted = func(p *corev1.Pod) {
		deleted(p)
		if p.Spec.NodeName != "" {
			t.count(p, -1)
			t.add(Preempted, p)
		}
	}
	e.api.pods.handlers = append(e.api.pods.handlers, cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, now any) {
		if p := now.(*corev1.Pod); old.(*corev1.Pod).Spec.NodeName == "" && p.Spec.NodeName != "" {
			t.start(p, false)
		}
	}})
	return t, nil
}

// isLater reports whether a pod is created after the start.
func (t *timeline) isLater(p *corev1.Pod) bool { return p.CreationTimestamp.After(t.out.From) }

// run lets all time pass.
func (t *timeline) run(ctx context.Context) error {
	for len(t.arrivals) > 0 && !t.arrivals[0].CreationTimestamp.After(t.out.To) {
		at := t.arrivals[0].CreationTimestamp.Time
		if err := t.passWithEstimates(ctx, at); err != nil {
			return err
		}
		for len(t.arrivals) > 0 && t.arrivals[0].CreationTimestamp.Time.Equal(at) {
			t.add(Arrived, t.arrivals[0])
			t.engine.api.create(t.engine.api.pods, t.arrivals[0])
			t.arrivals = t.arrivals[1:]
		}
		if err := t.decideAll(ctx); err != nil {
			return err
		}
	}
	return t.passWithEstimates(ctx, t.out.To)
}

// add records an event of a pod.
func (t *timeline) add(event string, p *corev1.Pod) *TimelineEvent {
	t.out.Events = append(t.out.Events, TimelineEvent{
		After: t.at.Sub(t.out.From).Seconds(), Event: event, Pod: p.Namespace + "/" + p.Name,
		Gang: t.engine.gangs.GangOf(p), Node: p.Spec.NodeName,
	})
	return &t.out.Events[len(t.out.Events)-1]
}

// start records that a pod runs, since before the simulation or from now on, and when it will end.
func (t *timeline) start(p *corev1.Pod, before bool) {
	t.count(p, 1)
	declared := t.declared(p)
	runs, ran := declared.RunTime(), time.Duration(0)
	if before {
		ran = t.at.Sub(convert.Started(p))
	} else {
		e := t.add(Started, p)
		e.Waited, e.RunTime = t.at.Sub(t.waits[p.UID]).Seconds(), view.RunTimeOf(runs)
		delete(t.waits, p.UID)
	}
	left := runs.Ends(ran).Late
	if left == forecast.Never && runs.IsDeclared() { // it has outlived what it declares
		if end := declared.Deadline(); end < forecast.Never {
			left = max(0, end-ran)
		}
	}
	if s, _, err := annotation.ParseSimulate(p.Annotations[annotation.SimulateKey]); err == nil && s.RunFor != nil {
		left = max(0, s.RunFor.Duration-ran) // what it does, whatever it declares
	}
	if p.DeletionTimestamp != nil {
		left = max(0, p.DeletionTimestamp.Sub(t.at))
	}
	switch name := p.Namespace + "/" + p.Name; {
	case left < forecast.Never:
		t.leave(departure{t.at.Add(left), p})
	case runs.IsDeclared():
		t.out.Outlived = append(t.out.Outlived, name)
	default:
		t.out.WithoutEnd = append(t.out.WithoutEnd, name)
	}
}

// declared returns what is declared about the run time of a pod.
func (t *timeline) declared(p *corev1.Pod) forecast.Declaration {
	d := convert.Declared(p, t.world.jobOf(p))
	d.Quota = kube.Ask(t.engine.quotas, func(a *quota.Account) time.Duration { return a.RunTime(string(p.UID)) })
	return d
}

// end records a pod that is about to leave.
func (t *timeline) end(p *corev1.Pod) {
	t.count(p, -1)
	t.add(Ended, p)
	t.ended[p.UID] = t.engine.outcome(p, Ended)
	maps.Copy(t.ended[p.UID].Annotations, p.Annotations)
}

// known returns what a pod was before it ended, or else what has become of it. A nil timeline knows none.
func (t *timeline) known(p pod, out Pod) Pod {
	ended, has := Pod{}, false
	if t != nil {
		ended, has = t.ended[p.UID]
	}
	if !has {
		return out
	}
	maps.DeleteFunc(ended.Annotations, func(key, value string) bool { return p.given[key] == value })
	return ended
}

// count adds what a pod requests to what is used, or takes it from there, after the time until now was counted.
func (t *timeline) count(p *corev1.Pod, sign float64) {
	passed := t.at.Sub(t.counted).Seconds()
	for name, amount := range t.used {
		t.seconds[name] += passed * amount
	}
	t.counted = t.at
	for name, amount := range resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}) {
		t.used[name] += sign * amount.AsApproximateFloat64()
	}
}

// result returns the timeline after its end.
func (t *timeline) result() *Timeline {
	t.count(&corev1.Pod{}, 0)
	capacity, seconds := map[corev1.ResourceName]float64{}, t.out.To.Sub(t.out.From).Seconds()
	for _, n := range t.world.nodes {
		for name, amount := range n.Status.Allocatable {
			capacity[name] += amount.AsApproximateFloat64()
		}
	}
	for _, d := range t.world.devices { // whose GPUs are measured
		for name := range convert.Capacity(d) {
			delete(capacity, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.used)) {
		if capacity[name] > 0 {
			t.out.Use = append(t.out.Use, Use{string(name), round(t.seconds[name] / seconds), capacity[name]})
		}
	}
	if gpus := t.load.now.GPUs; gpus > 0 {
		t.out.Use = append(t.out.Use, Use{"GPUs", round(t.load.used / seconds), float64(gpus)})
	}
	var waited []float64
	for i := range t.out.Events {
		if e := &t.out.Events[i]; e.Event == Started {
			waited = append(waited, e.Waited)
		}
	}
	w := &t.out.Waits
	w.Started, w.Waiting = len(waited), len(t.waits)-len(t.arrivals)
	w.Mean, w.P95, w.Longest = SumUp(waited)
	for _, since := range t.waits {
		w.LongestWaiting = max(w.LongestWaiting, t.out.To.Sub(since).Seconds())
	}
	slices.Sort(t.out.WithoutEnd)
	slices.Sort(t.out.Outlived)
	return &t.out
}

// SumUp returns the mean, the 95th percentile and the greatest of some seconds, in thousandths; 0 for none.
func SumUp(seconds []float64) (mean, p95, longest float64) {
	if len(seconds) == 0 {
		return 0, 0, 0
	}
	sorted := slices.Sorted(slices.Values(seconds))
	for _, s := range sorted {
		mean += s / float64(len(sorted))
	}
	return round(mean), round(sorted[(len(sorted)*95+99)/100-1]), round(sorted[len(sorted)-1])
}

// secondsText writes a duration of seconds.
func secondsText(seconds float64) string {
	return time.Duration(math.Round(seconds * float64(time.Second))).String()
}

// draw writes a line for each event, and one for all pods of a gang to which the same happens at once.
func (t *Timeline) draw(out *bytes.Buffer, width int) {
	fmt.Fprintf(out, "\nfrom %s for %s\n", t.From.UTC().Format(time.RFC3339), t.To.Sub(t.From))
	rows := [][]string{{"AFTER", "EVENT", "NAME", "WAITED", "RUNS", "NODE"}}
	for i := 0; i < len(t.Events); {
		first := &t.Events[i]
		nodes, n := []string{first.Node}, 1
		for ; first.Gang != "" && i+n < len(t.Events) && first.isBeside(&t.Events[i+n]); n++ {
			nodes = append(nodes, t.Events[i+n].Node)
		}
		name := first.Pod
		if n > 1 {
			slices.Sort(nodes)
			name = fmt.Sprintf("gang %s (%d pods)", first.Gang, n)
		}
		waited, runs := "-", "-"
		if first.Event == Started {
			waited, runs = secondsText(first.Waited), "unknown"
			if first.RunTime != nil {
				runs = first.RunTime.Likely
			}
		}
		rows = append(rows, []string{
			secondsText(first.After), first.Event, name, waited, runs,
			cmp.Or(strings.Join(slices.Compact(nodes), ","), "-"),
		})
		i += n
	}
	alignRows(out, rows, width)
	w := &t.Waits
	fmt.Fprintf(out, "\nwaits: %d started, mean %s, p95 %s, longest %s", w.Started, secondsText(w.Mean),
		secondsText(w.P95), secondsText(w.Longest))
	if w.Waiting > 0 {
		fmt.Fprintf(out, "; %d waiting, up to %s", w.Waiting, secondsText(w.LongestWaiting))
	}
	out.WriteString("\nuse:")
	for i, u := range t.Use {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(out, " %.0f %% of %s", 100*u.Mean/u.Capacity, u.Resource)
	}
	out.WriteByte('\n')
	noteEndless(out, "no declared run time, so no end", t.WithoutEnd)
	noteEndless(out, "longer than declared when the simulation starts, so no end", t.Outlived)
}

// isBeside reports whether the same happens at once to two pods of a gang.
func (e *TimelineEvent) isBeside(o *TimelineEvent) bool {
	sameRun := e.RunTime == o.RunTime || e.RunTime != nil && o.RunTime != nil && *e.RunTime == *o.RunTime
	return sameRun && e.After == o.After && e.Event == o.Event && e.Gang == o.Gang && e.Waited == o.Waited
}

// noteEndless names some of the pods that run to the end.
func noteEndless(out *bytes.Buffer, why string, pods []string) {
	const most = 3
	if len(pods) == 0 {
		return
	}
	text := strings.Join(pods[:min(most, len(pods))], ", ")
	if more := len(pods) - most; more > 0 {
		text += " and " + view.Count(more, "other")
	}
	fmt.Fprintf(out, "%s: %s\n", why, text)
}
