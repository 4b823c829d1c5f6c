package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/version"
	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sched/core"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
	"github.com/tenon-project/tenon/internal/sched/upstream/ranking"
)

// replay leads an engine by the records of a journal: they say which pods leave the queue and when, what becomes of
// reservations, and what others change. What is left to the engine are the decisions.
type replay struct {
	config  *config.KubeSchedulerConfiguration
	trusted []string
	// reserved are the pods that were reserved at the snapshot; loaded is the last record of its objects.
	reserved []journal.Decision
	loaded   uint64
	passage          // its time is that of the record
	free     *course // nil where the records lead the engine
	cycle    journal.Cycle

	queue   *recordedQueue
	objects journal.Decoder
	record  *journal.Decision    // the recorded decision of the cycle; nil where no pod may leave the queue
	popped  bool                 // its pod has left the queue
	keys    map[types.UID]string // namespace/name of all pods
	// forced are pods that are reserved as recorded, and not by a cycle of the replay, as they were without a node.
	forced map[types.UID]*corev1.Pod
	// promised has the claims that forced pods were promised, by the UID of the pod.
	promised map[types.UID][]journal.Promise
}

// names returns the schedulers that the configuration serves.
func (r *replay) names() (out []string) {
	for i := range r.config.Profiles {
		out = append(out, r.config.Profiles[i].SchedulerName)
	}
	return out
}

// options makes the core of the engine one that the replay leads.
func (r *replay) options(o *core.Options) {
	o.Loop, o.Remember = r, true
	if r.free != nil {
		r.free.replay, o.Record = r, r.free
		return
	}
	r.engine.api.recorded = true
	o.Source, o.Record = led{replay: r}, led{replay: r}
	o.Decisions, o.Flags = &diag.Ring{Scores: &r.cycle}, &diag.Flags{}
}

// led is the Source and the Record of a core that the records of a journal lead.
type led struct {
	core.Unrecorded
	*replay
}

// Pop takes no pod but the recorded ones.
func (r led) Pop(core.NextPod) core.NextPod { return r.next }

// Queue returns the queue that gives out the recorded pods.
func (r led) Queue(inner podqueue.Queue) podqueue.Queue {
	r.queue = &recordedQueue{inner, r.replay}
	return r.cycle.Queue(r.queue)
}

// Next begins the recorded cycle.
func (r led) Next(inner core.NextPod) core.NextPod {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		pod, err := inner(logger)
		if pod != nil && err == nil && r.record != nil {
			r.cycle.Begin(pod.Pod, r.record.Seed)
		}
		return pod, err
	}
}

// Schedule sees what is decided.
func (r led) Schedule(inner core.SchedulePod) core.SchedulePod { return r.cycle.Schedule(inner) }

// Fail sees why a pod has no node.
func (r led) Fail(inner scheduler.FailureHandlerFn) scheduler.FailureHandlerFn {
	return r.cycle.Fail(inner)
}

// Profile draws the recorded lots, and looks at the nodes that the recorded search looked at.
func (r led) Profile(inner *ranking.Profile) framework.Framework {
	return r.watch(inner, confined{&r.cycle, r.replay})
}

// confined is a cycle whose searches are confined to recorded samples of the nodes.
type confined struct {
	*journal.Cycle
	replay *replay
}

// Unranked reports whether the search is confined.
func (c confined) Unranked() bool {
	_, confined := c.replay.sample()
	return confined
}

// watch makes a profile draw the lots of a cycle, which sees what comes of it.
func (r *replay) watch(inner *ranking.Profile, c ranking.Cycle) framework.Framework {
	outer := inNameOrder{engine: r.engine}.Profile(inner)
	inner.ByName = false
	core.Watch(inner, c)
	return outer
}

// sample returns the nodes that the recorded search scored; false where it looked at all.
func (r *replay) sample() (nodes []string, confined bool) {
	if r.record != nil {
		nodes, confined = r.record.Samples[r.cycle.Search()]
	}
	return nodes, confined
}

// leavesOut reports whether the search under way did not look at a node.
func (r *replay) leavesOut(node string) bool {
	if !r.leads() {
		return false
	}
	nodes, confined := r.sample()
	return confined && !slices.Contains(nodes, node)
}

// leads reports whether the records lead the engine.
func (r *replay) leads() bool { return r != nil && r.free == nil }

// next takes the recorded pod out of the queue, once.
func (r *replay) next(logger klog.Logger) (*framework.QueuedPodInfo, error) {
	if r.record == nil || r.popped {
		return nil, nil
	}
	r.popped = true
	pod := r.pod(types.UID(r.record.UID))
	if pod == nil {
		return nil, nil
	}
	return r.queue.Take(logger, pod), nil
}

// pod returns a pod, or the reserve pod of a Reservation, by UID; nil for one that does not exist.
func (r *replay) pod(uid types.UID) *corev1.Pod {
	if key, known := r.keys[uid]; known {
		if o, has, err := r.engine.api.pods.GetStore().GetByKey(key); has && err == nil {
			return o.(*corev1.Pod)
		}
	}
	_, pod := r.engine.api.reserved.Find(uid)
	return pod
}

// recordedQueue gives out the pods that left the queue in the recorded cycle.
type recordedQueue struct {
	podqueue.Queue
	replay *replay
}

// Take returns nil for any other pod.
func (q *recordedQueue) Take(logger klog.Logger, pod *corev1.Pod) *framework.QueuedPodInfo {
	d := q.replay.record
	if d == nil || d.UID != string(pod.UID) && !slices.Contains(d.Pulled, string(pod.UID)) {
		return nil
	}
	return q.Queue.Take(logger, pod)
}

// decide runs the cycle of a recorded decision and returns what it came to, nil where the pod cannot be decided about:
// it is not in the queue.
func (r *replay) decide(ctx context.Context, recorded *journal.Decision) *journal.Decision {
	r.record, r.popped = recorded, false
	var got *journal.Decision
	for got == nil {
		_, left := r.engine.rounds.Pulled()
		if r.popped && left == 0 {
			break
		}
		r.engine.step(ctx)
		got = r.cycle.End()
		if left == 0 && !r.popped {
			break
		}
	}
	r.record = nil
	if _, left := r.engine.rounds.Pulled(); left == 0 {
		r.engine.core.ScheduleOne(ctx) // no pod leaves the queue: what has failed is concluded
	}
	return got
}

// Replayed is what a replay has come to.
type Replayed struct {
	File      string    `json:"file"`
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	Events    int       `json:"events"`
	Decisions int       `json:"decisions"` // that are the recorded ones
	// Skipped are decisions that cannot be made again, by cause.
	Skipped    map[string]int `json:"skipped,omitempty"`
	Difference *Difference    `json:"difference,omitempty"`
}

// Replay makes the decisions of a journal again, up to a time unless that is zero, and ends with the first that is not
// the recorded one. Bad input is an *InputError.
func Replay(ctx context.Context, path string, until time.Time) (Replayed, error) {
	ctx, cancel := context.WithCancel(withoutLog(ctx))
	defer cancel()
	out := Replayed{File: path, Skipped: map[string]int{}}
	var r *replay
	var versions *Versions
	err := eachRecord(path, until, func(record *journal.Record, line int) (err error) {
		if record.Snapshot != nil {
			out.From, versions = record.Time, versionsOf(record.Snapshot)
			if r, err = begin(ctx, record, nil); err != nil {
				return err
			}
		}
		out.To = record.Time
		r.reachRecord(record)
		switch {
		case record.Event != nil:
			out.Events++
			o, err := r.decode(record)
			if err != nil {
				return err
			}
			return r.event(ctx, record.Event, o)
		case record.Decision == nil:
		default:
			if cause := r.lacks(record.Decision); cause != "" {
				out.Skipped[cause]++
				r.force(record.Decision)
				return nil
			}
			got := r.decide(ctx, record.Decision)
			if out.Difference = differs(record.Decision, got); out.Difference != nil {
				out.Difference.File, out.Difference.Line, out.Difference.Gen = path, line, record.Gen
				out.Difference.Pod, out.Difference.Kubernetes = record.Decision.Pod, versions
				return io.EOF
			}
			out.Decisions++
		}
		return nil
	})
	if r != nil {
		r.engine.end()
	}
	if err != nil {
		return Replayed{}, err
	}
	return out, nil
}

// eachRecord calls apply with the records of a journal and their lines, up to a time unless that is zero. It ends where
// apply returns io.EOF. Another error of apply is bad input.
func eachRecord(path string, until time.Time, apply func(record *journal.Record, line int) error) error {
	file, err := os.Open(path)
	if err != nil {
		return inputErrorf("%v", err)
	}
	defer func() { _ = file.Close() }() // it is only read
	reader := journal.NewReader(file)
	for {
		record, err := reader.Next()
		switch late := err == nil && !until.IsZero() && record.Time.After(until); {
		case late && record.Snapshot != nil:
			return inputErrorf("--until %s is not allowed: %s begins at %s", until.Format(time.RFC3339Nano), path,
				record.Time.Format(time.RFC3339Nano))
		case late:
			return nil
		case err == nil:
			err = apply(record, reader.Line())
		}
		var about *InputError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &about): // about another file
			return err
		case err != nil:
			return badLine(path, reader.Line(), err)
		}
	}
}

// reachRecord moves the replay to the time of a record. After the objects of the snapshot, the pods that
// were reserved are.
func (r *replay) reachRecord(record *journal.Record) {
	r.at = record.Time
	if record.Gen == r.loaded+1 {
		for i := range r.reserved {
			r.force(&r.reserved[i])
		}
	}
	r.reach(record.Time)
}

// badLine is bad input in a line of a journal.
func badLine(path string, line int, err error) error {
	var bad *journal.BadLine
	if !errors.As(err, &bad) {
		bad = &journal.BadLine{Line: line, Err: err}
	}
	return inputErrorf("%s: %v", path, bad)
}

// begin returns a replay of the cluster of a snapshot, which is empty until its events are applied. It decides itself
// with the configuration of a course; without one the records lead it, and their configuration counts.
func begin(ctx context.Context, record *journal.Record, free *course) (*replay, error) {
	s := record.Snapshot
	cfg, err := app.DecodeConfig(s.Config)
	if err != nil {
		return nil, fmt.Errorf("snapshot.config: %w", err)
	}
	if len(cfg.Profiles) == 0 {
		return nil, errors.New("snapshot.config: profiles: must not be empty")
	}
	for i := range cfg.Profiles {
		if cfg.Profiles[i].Plugins == nil {
			return nil, fmt.Errorf("snapshot.config: profiles[%d].plugins: must be set", i)
		}
	}
	if len(cfg.Extenders) > 0 {
		return nil, errors.New("snapshot.config: extenders: what HTTP extenders answered is not recorded")
	}
	if free != nil && free.config != nil {
		cfg = free.config
	}
	r := &replay{
		config: cfg, trusted: s.Trusted, passage: passage{at: record.Time}, keys: map[types.UID]string{},
		forced: map[types.UID]*corev1.Pod{}, promised: map[types.UID][]journal.Promise{}, free: free,
		reserved: s.Reserved, loaded: record.Gen + uint64(max(s.Objects, 0)),
	}
	var none problems
	if r.engine, err = newEngineFor(ctx, newWorld(nil, workload.Table{}, &none), r); err != nil {
		return nil, err
	}
	r.engine.store.MarkSynced()
	return r, nil
}

// Difference is the first decision that is not the recorded one.
type Difference struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Gen      uint64 `json:"gen"`
	Pod      string `json:"pod"`
	Field    string `json:"field"`
	Recorded string `json:"recorded"`
	Replayed string `json:"replayed"`
	// Kubernetes has the two versions where kube-scheduler is another one than that which recorded.
	Kubernetes *Versions `json:"kubernetes,omitempty"`
}

// Versions are those of Kubernetes that two programs are built on.
type Versions struct {
	Recorded string `json:"recorded"`
	Replayed string `json:"replayed"`
}

// versionsOf returns the versions of a journal and of this program; nil where they are the same.
func versionsOf(s *journal.Snapshot) *Versions {
	recorded, replayed := cmp.Or(s.Kubernetes, "v1.36 or earlier"), version.Kubernetes()
	if recorded == replayed {
		return nil
	}
	return &Versions{recorded, replayed}
}

// differs returns the first field in which two decisions differ.
func differs(recorded, got *journal.Decision) *Difference {
	if got == nil {
		return &Difference{Field: "decision", Recorded: "the pod was tried", Replayed: "the pod is not in the queue"}
	}
	for _, field := range []struct {
		name           string
		recorded, made any
	}{
		{"pod", recorded.Pod, got.Pod},
		{"node", recorded.Node, got.Node},
		{"refused", recorded.Refused, got.Refused},
		{"nominated", recorded.Nominated, got.Nominated},
		{"patch", withoutTime(recorded.Patch), withoutTime(got.Patch)},
		{"claims", devicesOf(recorded.Claims), devicesOf(got.Claims)},
		{"score", recorded.Best, got.Best},
		{"scores", recorded.Scores, got.Scores},
	} {
		if field.name == "scores" && (len(recorded.Scores) == 0 || len(got.Scores) == 0) {
			continue // of many equal nodes three are kept
		}
		if !reflect.DeepEqual(field.recorded, field.made) {
			return &Difference{
				Field: field.name, Recorded: fmt.Sprint(field.recorded), Replayed: fmt.Sprint(field.made),
			}
		}
	}
	return nil
}

// withoutTime returns a patch without the time at which it was made.
func withoutTime(patch map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, patch)
	delete(out, annotation.BindTimestampKey)
	return out
}
