package sim

import (
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/sched/journal"
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
	engine   *engine
	cycle    journal.Cycle
	at       time.Time // of the record

	queue  *recordedQueue
	record *journal.Decision    // the recorded decision of the cycle; nil where no pod may leave the queue
	popped bool                 // its pod has left the queue
	keys   map[types.UID]string // namespace/name of all pods
	// forced are pods that are reserved as recorded, and not by a cycle of the replay, as they were without a node.
	forced map[types.UID]*corev1.Pod
}

func (r *replay) now() time.Time { return r.at }

// names returns the schedulers that the configuration serves.
func (r *replay) names() (out []string) {
	for i := range r.config.Profiles {
		out = append(out, r.config.Profiles[i].SchedulerName)
	}
	return out
}

// lead puts the replay around an engine.
func (r *replay) lead(e *engine) {
	r.engine, e.api.recorded = e, true
	r.queue = &recordedQueue{e.core.SchedulingQueue, r}
	e.core.SchedulingQueue = r.cycle.Queue(r.queue)
	decisions := &diag.Ring{Scored: r.cycle.Scored}
	e.core.SchedulePod = r.cycle.Schedule(decisions.Record(&diag.Flags{}, e.core.SchedulePod))
	e.core.FailureHandler = r.cycle.Fail(e.core.FailureHandler)
	next := e.core.NextPod
	e.core.NextPod = func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		pod, err := next(logger)
		if pod != nil && err == nil && r.record != nil {
			r.cycle.Begin(pod.Pod, r.record.Seed)
		}
		return pod, err
	}
}

// watch makes a profile draw the recorded lots, and sees what its cycles come to.
func (r *replay) watch(ranked *ranking.Profile) {
	ranked.ByName = false
	ranked.Unranked = func() bool {
		_, confined := r.sample()
		return confined
	}
	app.Watch(ranked, &r.cycle)
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
	if r == nil {
		return false
	}
	nodes, confined := r.sample()
	return confined && !slices.Contains(nodes, node)
}

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
	return r.queue.PopSpecificPod(logger, pod), nil
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
	queue.SchedulingQueue
	replay *replay
}

func (q *recordedQueue) PopSpecificPod(logger klog.Logger, pod *corev1.Pod) *framework.QueuedPodInfo {
	d := q.replay.record
	if d == nil || d.UID != string(pod.UID) && !slices.Contains(d.Pulled, string(pod.UID)) {
		return nil
	}
	q.Activate(logger, map[string]*corev1.Pod{pod.Namespace + "/" + pod.Name: pod})
	return q.SchedulingQueue.PopSpecificPod(logger, pod)
}

// event applies a recorded event.
func (r *replay) event(ctx context.Context, e *journal.Event) error {
	switch e.Op {
	case journal.Release:
		r.release(ctx, types.UID(e.UID))
		return nil
	case journal.Forget:
		r.engine.forget(ctx, types.UID(e.UID))
		return nil
	case journal.Expire:
		coscheduling.Expire(r.engine.gangs, r.at)
		return nil
	case journal.Deadlocks:
		r.engine.rounds.LookForDeadlocks(klog.FromContext(ctx))
		return nil
	}
	o, err := e.Decode()
	if err != nil {
		return err
	}
	if n, ok := o.(*reservation.Reservation); ok && n.Status.NodeName != "" {
		defer r.bound(ctx, n.UID)
	}
	if e.Op == journal.Written || e.Op == journal.Ended {
		r.engine.api.reserved.Apply(kube.OwnChange(e.Op), o)
		return nil
	}
	switch o := o.(type) {
	case *corev1.Pod:
		r.putPod(ctx, o, e.Op)
		return nil
	case *corev1.Node:
		r.putNode(o, e.Op)
		return nil
	}
	if h := r.handler(e.Kind); h != nil && e.Op == journal.Delete {
		h.OnDelete(o)
		return nil
	} else if h != nil {
		h.OnAdd(o, false)
		return nil
	}
	store := informerOf(o, r.engine.factory).GetStore()
	if e.Op == journal.Delete {
		return store.Delete(o)
	}
	return store.Add(o)
}

// handler returns the account that follows a kind; nil for one that plugins list.
func (r *replay) handler(kind string) cache.ResourceEventHandler {
	e := r.engine
	switch kind {
	case "NodeResourceTopology":
		return e.store.TopologyHandler()
	case "Numatopology":
		return e.store.NumatopologyHandler()
	case "Device":
		return e.store.DeviceHandler()
	case "ElasticQuota":
		return e.quotas.QuotaHandler()
	case "PodGroup":
		return e.gangs.GroupHandler()
	case "ClusterNetworkTopology":
		return e.gangs.NetworkHandler()
	case "NodeMetric":
		return e.loads.MetricHandler()
	case "Reservation":
		return e.api.reserved.Handler()
	}
	return nil
}

func (r *replay) putNode(n *corev1.Node, op string) {
	e := r.engine
	old, known, _ := e.api.nodes.GetStore().Get(n)
	shown := convert.Schedulable(n)
	switch {
	case op == journal.Delete && known:
		e.quotas.RemoveNode(n)
		e.api.drop(e.api.nodes, old.(*corev1.Node))
	case op == journal.Put && known:
		e.quotas.PutNode(n)
		e.api.replace(e.api.nodes, old.(*corev1.Node), shown)
	case op == journal.Put:
		e.quotas.PutNode(n)
		e.api.create(e.api.nodes, shown)
	}
}

// putPod applies the event of a pod. One that has a node now, and is reserved, was bound as its decision says.
func (r *replay) putPod(ctx context.Context, p *corev1.Pod, op string) {
	e := r.engine
	o, known, _ := e.api.pods.GetStore().Get(p)
	old, _ := o.(*corev1.Pod)
	if known && old.UID != p.UID && op == journal.Put { // as kube.ByUID delivers it
		e.api.drop(e.api.pods, old)
		known = false
	}
	if r.forced[p.UID] != nil && op == journal.Put && p.Spec.NodeName == "" {
		r.forced[p.UID] = p
		return // the pod has a node in the replay
	}
	if op == journal.Put && p.Spec.NodeName != "" {
		r.bound(ctx, p.UID)
	}
	delete(r.forced, p.UID)
	switch {
	case op == journal.Delete && known:
		delete(r.keys, p.UID)
		e.api.drop(e.api.pods, old)
	case op == journal.Put && known:
		e.api.replace(e.api.pods, old, p)
	case op == journal.Put:
		r.keys[p.UID] = p.Namespace + "/" + p.Name
		e.api.create(e.api.pods, p)
	}
}

// force reserves a pod as it is recorded.
func (r *replay) force(d *journal.Decision) {
	pod := r.pod(types.UID(d.UID))
	if pod == nil || pod.Spec.NodeName != "" || d.Node == "" || d.Refused != "" || convert.IsReservePod(pod) {
		return
	}
	placed := pod.DeepCopy()
	placed.Spec.NodeName = d.Node
	for key, value := range d.Patch {
		metav1.SetMetaDataAnnotation(&placed.ObjectMeta, key, value)
	}
	r.forced[pod.UID] = pod
	r.engine.api.replace(r.engine.api.pods, pod, placed)
}

// forget takes a pod off its node that was deleted before it was bound.
func (e *engine) forget(ctx context.Context, uid types.UID) {
	if assumed, err := e.core.Cache.GetPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}); err == nil {
		_ = e.core.Cache.ForgetPod(klog.FromContext(ctx), assumed) // fails where the replay has forgotten it already
	}
}

// hasClaims reports whether a pod has volumes or devices that others provide.
func hasClaims(pod *corev1.Pod) bool {
	return pod != nil && (len(pod.Spec.ResourceClaims) > 0 || slices.ContainsFunc(pod.Spec.Volumes,
		func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }))
}

// waiting takes the binding cycle of a pod from those that have not ended; nil for none.
func (r *replay) waiting(uid types.UID) *bindingCycle {
	e := r.engine
	i := slices.IndexFunc(e.waiting, func(b *bindingCycle) bool { return b.pod.UID == uid })
	if i < 0 {
		return nil
	}
	b := e.waiting[i]
	e.waiting = slices.Delete(e.waiting, i, i+1)
	return b
}

// bound ends the binding cycle of a pod that was bound.
func (r *replay) bound(ctx context.Context, uid types.UID) {
	b := r.waiting(uid)
	if b == nil {
		return // another scheduler bound it, or the pod was bound before
	}
	if w := b.profile.GetWaitingPod(uid); w != nil {
		for _, plugin := range w.GetPendingPlugins() {
			w.Allow(plugin)
		}
		b.profile.WaitOnPermit(ctx, b.pod)
	}
	b.finish(nil)
}

// release ends the binding cycle of a pod that was not bound.
func (r *replay) release(ctx context.Context, uid types.UID) {
	if was := r.forced[uid]; was != nil {
		delete(r.forced, uid)
		if now := r.pod(uid); now != nil {
			r.engine.api.drop(r.engine.api.pods, now)
			r.engine.api.create(r.engine.api.pods, was)
		}
	}
	b := r.waiting(uid)
	if b == nil {
		return
	}
	status := fwk.AsStatus(errors.New("the pod was not bound"))
	if w := b.profile.GetWaitingPod(uid); w != nil {
		w.Reject("", "the pod was not bound")
		status = b.profile.WaitOnPermit(ctx, b.pod)
	}
	b.finish(status)
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

// Difference is the first decision that is not the recorded one.
type Difference struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Gen      uint64 `json:"gen"`
	Pod      string `json:"pod"`
	Field    string `json:"field"`
	Recorded string `json:"recorded"`
	Replayed string `json:"replayed"`
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
		{"score", bestOf(recorded), bestOf(got)},
		{"scores", scoresOf(recorded), scoresOf(got)},
	} {
		if field.name == "scores" && (len(scoresOf(recorded)) == 0 || len(scoresOf(got)) == 0) {
			continue // of many equal nodes the best three are recorded
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

// bestOf returns the best score; 0 where only one node was feasible.
func bestOf(d *journal.Decision) int64 {
	if len(d.Scores) == 0 {
		return 0
	}
	return d.Scores[0].Total
}

// scoresOf returns the scores of the chosen node by plugin.
func scoresOf(d *journal.Decision) map[string]int64 {
	out := map[string]int64{}
	for _, s := range d.Scores {
		for _, p := range s.Plugins {
			if s.Node == d.Node && p.Score != 0 {
				out[p.Name] = p.Score
			}
		}
	}
	return out
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
	file, err := os.Open(path)
	if err != nil {
		return Replayed{}, inputErrorf("%v", err)
	}
	defer func() { _ = file.Close() }() // it is only read
	out := Replayed{File: path, Skipped: map[string]int{}}
	reader := journal.NewReader(file)
	var r *replay
	for {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) || err == nil && !until.IsZero() && record.Time.After(until) {
			break
		}
		if err == nil && record.Snapshot != nil {
			r, err = begin(ctx, record)
			out.From = record.Time
			if err == nil {
				defer r.engine.end()
			}
		}
		if err != nil {
			return Replayed{}, badLine(path, reader.Line(), err)
		}
		out.To, r.at = record.Time, record.Time
		if record.Gen == r.loaded+1 {
			for i := range r.reserved {
				r.force(&r.reserved[i])
			}
		}
		if r.engine.api.clock.now.Before(r.at) {
			r.engine.api.clock.now = r.at
		}
		switch {
		case record.Event != nil:
			out.Events++
			if err := r.event(ctx, record.Event); err != nil {
				return Replayed{}, badLine(path, reader.Line(), err)
			}
		case record.Decision != nil:
			recorded := record.Decision
			if hasClaims(r.pod(types.UID(recorded.UID))) {
				out.Skipped[claims]++
				r.force(recorded)
				continue
			}
			got := r.decide(ctx, recorded)
			if difference := differs(recorded, got); difference != nil {
				difference.File, difference.Line, difference.Gen = path, reader.Line(), record.Gen
				difference.Pod = recorded.Pod
				out.Difference = difference
				return out, nil
			}
			out.Decisions++
		}
	}
	return out, nil
}

// claims is why decisions about some pods are not made again.
const claims = "their pods have PersistentVolumeClaims or ResourceClaims, which a journal does not have"

// badLine is bad input in a line of a journal.
func badLine(path string, line int, err error) error {
	var bad *journal.BadLine
	if !errors.As(err, &bad) {
		bad = &journal.BadLine{Line: line, Err: err}
	}
	return inputErrorf("%s: %v", path, bad)
}

// begin returns a replay of the cluster of a snapshot, which is empty until its events are applied.
func begin(ctx context.Context, record *journal.Record) (*replay, error) {
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
	r := &replay{
		config: cfg, trusted: s.Trusted, at: record.Time, keys: map[types.UID]string{},
		forced:   map[types.UID]*corev1.Pod{},
		reserved: s.Reserved, loaded: record.Gen + uint64(max(s.Objects, 0)),
	}
	var none problems
	if r.engine, err = newEngineFor(ctx, newWorld(nil, &none), r); err != nil {
		return nil, err
	}
	r.engine.store.MarkSynced()
	return r, nil
}
