package journal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/sched/upstream/snapshot"
)

// queued is the number of records that wait to be written.
const queued = 1 << 14

// flushAfter is how long a record may wait in memory, and drainAfter how long until it is encoded. The writer wakes once
// for all records of that time, not for each of them.
const (
	flushAfter = time.Second
	drainAfter = 50 * time.Millisecond
)

// Recorder records a scheduler. Its methods are those of the parts that it watches.
type Recorder struct {
	Cycle

	// header is the snapshot without objects. records has those that wait for the writer.
	folder  string
	header  Snapshot
	records chan entry
	// counted counts records that were written and dropped.
	counted *metrics.CounterVec
	// due is set where the next record must be a snapshot: the file is long, or a record was dropped.
	due atomic.Bool
	// began is when the cycle began, in nanoseconds since the epoch; 0 between cycles.
	began atomic.Int64

	// order is held while an event is applied, and from when a pod leaves the queue until the next one is waited for:
	// throughout the cycles of a gang. It guards everything below.
	order sync.Mutex
	gen   uint64
	// objects has all that the scheduler knows, by KeyOf, for the next snapshot.
	objects  map[string]Object
	reserved map[types.UID]Decision // pods that are reserved and not bound
	// cycles counts the cycles. The seed of a cycle is computed from it.
	cycles uint32
	// releasing is the pod whose binding failed, from when its reservation is taken back until the cache forgets it:
	// meanwhile its goroutine holds order. Empty while none is.
	releasing types.UID
}

// entry is a record before it is encoded.
type entry struct {
	// gen numbers the record, at is the time for replays.
	gen uint64
	at  time.Time
	// op and object are an event about an object, which is encoded when it is written.
	op     string
	object Object
	// event is one that needs no encoding, decision the end of a cycle. At most one of all these is set.
	event    *Event
	decision *Decision
	// snapshot begins a file, with objects as the events that follow it.
	snapshot *Snapshot
	objects  []Object
}

// New returns a recorder that writes below a folder.
func New(folder string, header Snapshot, export func(...metrics.Registerable)) *Recorder {
	header.Version = Version
	r := &Recorder{
		folder: folder, header: header, records: make(chan entry, queued), objects: map[string]Object{},
		reserved: map[types.UID]Decision{},
		counted: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "tenon_journal_records_total",
			Help: "Records of the journal: written, or dropped because writing was slower than scheduling.",
		}, []string{"result"}),
	}
	export(r.counted)
	r.header.Started = true
	r.due.Store(true)
	return r
}

// Now returns the time of the cycle, between cycles the time.
func (r *Recorder) Now() time.Time {
	if began := r.began.Load(); began != 0 {
		return time.Unix(0, began)
	}
	return time.Now()
}

// add sends a record. The caller holds order.
//
// A record that finds no room is lost, and those after it would not say what the scheduler saw. So nothing is recorded
// from then on until the writer has caught up, and then a snapshot of all objects comes first.
func (r *Recorder) add(e entry) {
	if r.due.Load() && len(r.records) == 0 {
		r.due.Store(false)
		header := r.header
		r.header.Started = false
		header.Objects, header.Reserved = len(r.objects), slices.Collect(maps.Values(r.reserved))
		r.gen++
		r.records <- entry{
			gen: r.gen, at: e.at, snapshot: &header, objects: slices.Collect(maps.Values(r.objects)),
		}
		r.gen += uint64(header.Objects)
	}
	if r.due.Load() {
		r.counted.WithLabelValues("dropped").Inc()
		return
	}
	e.gen = r.gen + 1
	select {
	case r.records <- e:
		r.gen++
	default:
		r.counted.WithLabelValues("dropped").Inc()
		r.due.Store(true)
	}
}

// Watch returns the informer whose events are recorded, in the order in which its first handler has them.
func (r *Recorder) Watch(i cache.SharedIndexInformer) cache.SharedIndexInformer {
	return &watched{SharedIndexInformer: i, recorder: r}
}

// watched is an informer whose events are recorded by its first handler. taken is true once it has one.
type watched struct {
	cache.SharedIndexInformer
	recorder *Recorder
	taken    bool
}

// AddEventHandler adds a handler without options.
func (w *watched) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return w.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

// AddEventHandlerWithOptions adds a handler. The first one records each event before it gets it.
func (w *watched) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	if !w.taken {
		w.taken = true
		h = w.recorder.handler(h)
	}
	return w.SharedIndexInformer.AddEventHandlerWithOptions(h, o)
}

// Follow records the events of an informer that plugins read only through its lister.
func (r *Recorder) Follow(informers ...cache.SharedIndexInformer) {
	for _, i := range informers {
		_, _ = i.AddEventHandler(r.handler(cache.ResourceEventHandlerFuncs{})) // fails only after the informer's end
	}
}

// handler records each event before h has it.
func (r *Recorder) handler(h cache.ResourceEventHandler) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			r.order.Lock()
			defer r.order.Unlock()
			r.put(nil, obj)
			h.OnAdd(obj, initial)
		},
		UpdateFunc: func(old, obj any) {
			r.order.Lock()
			defer r.order.Unlock()
			r.put(old, obj)
			h.OnUpdate(old, obj)
		},
		DeleteFunc: func(obj any) {
			r.order.Lock()
			defer r.order.Unlock()
			last := obj
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				last = gone.Obj
			}
			if o, ok := last.(Object); ok {
				delete(r.objects, KeyOf(o))
				delete(r.reserved, o.GetUID())
				r.add(entry{at: time.Now(), op: Delete, object: o})
			}
			h.OnDelete(obj)
		},
	}
}

// put records an object, unless nothing that is recorded has changed.
func (r *Recorder) put(old, obj any) {
	o, ok := obj.(Object)
	if !ok {
		return
	}
	r.know(o)
	op := Put
	switch o := o.(type) {
	case *corev1.Pod:
		if o.Spec.NodeName != "" {
			delete(r.reserved, o.UID)
		}
		switch was, ok := old.(*corev1.Pod); {
		case !ok || !sameSpec(was, o):
		case was.Spec.NodeName == o.Spec.NodeName && sameState(was, o):
			return
		default:
			op = Change
		}
	case *corev1.Node:
		if was, ok := old.(*corev1.Node); ok && reflect.DeepEqual(keepNode(was), keepNode(o)) {
			return
		}
	case *resourcev1.ResourceClaim:
		if was, ok := old.(*resourcev1.ResourceClaim); ok && sameClaim(was, o) {
			return
		}
	}
	r.add(entry{at: time.Now(), op: op, object: o})
}

// know keeps the state of an object for the next snapshot, unless a newer one is known: this process has written it.
func (r *Recorder) know(o Object) {
	key := KeyOf(o)
	if known := r.objects[key]; known != nil && known.GetUID() == o.GetUID() {
		order, err := resourceversion.CompareResourceVersion(o.GetResourceVersion(), known.GetResourceVersion())
		if err == nil && order < 0 {
			return
		}
	}
	r.objects[key] = o
}

// sameSpec reports whether two states of a pod have one spec but for the node. API servers before Kubernetes 1.33 count
// no generations.
func sameSpec(a, b *corev1.Pod) bool {
	if a.UID != b.UID || a.Generation != b.Generation {
		return false
	}
	if a.Generation > 0 {
		return true
	}
	was, now := keepSpec(&a.Spec), keepSpec(&b.Spec)
	was.NodeName = now.NodeName
	return reflect.DeepEqual(was, now)
}

// sameClaim reports whether two states of a claim are the same to scheduling.
func sameClaim(a, b *resourcev1.ResourceClaim) bool {
	was, now := keepClaim(a), keepClaim(b)
	was.ResourceVersion = now.ResourceVersion
	return reflect.DeepEqual(was, now)
}

// sameState reports whether two states of a pod with one spec are the same to scheduling: they differ in what its
// containers do.
func sameState(a, b *corev1.Pod) bool {
	return a.Status.Phase == b.Status.Phase && reflect.DeepEqual(keepMeta(&a.ObjectMeta), keepMeta(&b.ObjectMeta)) &&
		reflect.DeepEqual(keepStatus(&a.Status), keepStatus(&b.Status))
}

// NextPod takes a pod from the scheduling queue.
type NextPod = func(klog.Logger) (*framework.QueuedPodInfo, error)

// Pop returns the pods of next, which waits for one. Events are applied until it has one, and then not until it is
// called again.
//
// For the length of a cycle order is held, so that events wait: those before a decision in the journal are what the
// decision was made on, and the time stands still.
func (r *Recorder) Pop(next NextPod) NextPod {
	held := false
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		if held {
			held = false
			r.began.Store(0)
			r.order.Unlock()
		}
		pod, err := next(logger)
		if pod != nil && err == nil {
			r.order.Lock()
			r.began.Store(time.Now().UnixNano())
			held, r.popped = true, string(pod.Pod.UID)
		}
		return pod, err
	}
}

// Next returns the pods of next, which calls that of Pop, or returns a pod that was taken out of the queue before. It
// records the decision about the pod before.
func (r *Recorder) Next(next NextPod) NextPod {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		r.end()
		pod, err := next(logger)
		if pod != nil && err == nil {
			r.cycles++
			r.Begin(pod.Pod, r.cycles*0x9e3779b1)
		}
		return pod, err
	}
}

// end records the decision of the cycle, if one has run.
func (r *Recorder) end() {
	d := r.End()
	if d == nil {
		return
	}
	r.add(entry{at: r.Now(), decision: d})
	if d.Refused == "" {
		r.reserved[types.UID(d.UID)] = *d
	}
}

// Unreserving records that a pod is not bound after all. The scheduler forgets the pod next, in the same goroutine. In
// a cycle of its own the pod has a decision, which has the same.
func (r *Recorder) Unreserving(state fwk.CycleState, pod *corev1.Pod) {
	if r.isCurrent(pod.UID) || placement.OnTrial(state) != nil {
		return // the decision says so
	}
	r.order.Lock()
	r.releasing = pod.UID
	r.drop(Release, pod)
}

// drop records that a pod that is not bound holds nothing any more.
func (r *Recorder) drop(op string, pod *corev1.Pod) {
	delete(r.reserved, pod.UID)
	r.add(entry{at: time.Now(), event: &Event{
		Op: op, Kind: "Pod", UID: string(pod.UID), Key: pod.Namespace + "/" + pod.Name,
	}})
}

// Own records a change that this process makes before the API server sends its event.
func (r *Recorder) Own(change kube.OwnChange, o metav1.Object, apply func()) {
	r.order.Lock()
	defer r.order.Unlock()
	if object, ok := o.(Object); ok {
		if change == kube.Written && r.objects[KeyOf(object)] != nil {
			r.know(object)
		}
		r.add(entry{at: time.Now(), op: string(change), object: object})
	}
	apply()
}

// File returns a file as ReadFile does.
func (r *Recorder) File(name string) (found, earlier string, text []byte, err error) {
	return ReadFile(r.folder, name)
}

// Gangs records a change of the gangs' state that no event and no cycle brings, where there was one.
func (r *Recorder) Gangs(kind kube.OwnChange, change func(now time.Time) bool) {
	r.order.Lock()
	defer r.order.Unlock()
	if now := time.Now(); change(now) {
		r.add(entry{at: now, event: &Event{Op: string(kind)}})
	}
}

// Fail is that of Cycle. A Reservation whose binding failed is refused in order: it has no more event.
func (r *Recorder) Fail(inner loop.Fail) loop.Fail {
	fail := r.Cycle.Fail(inner)
	return func(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
		nominating *fwk.NominatingInfo, start time.Time,
	) {
		if convert.IsReservePod(pod.Pod) && !r.isCurrent(pod.Pod.UID) {
			r.order.Lock()
			defer r.order.Unlock()
		}
		fail(ctx, f, pod, status, nominating, start)
	}
}

// Cache returns the cache that records which pods are not bound after all.
func (r *Recorder) Cache(c snapshot.Cache) snapshot.Cache { return &releases{c, r} }

// releases is the scheduler's cache, which records the pods that it forgets.
type releases struct {
	snapshot.Cache
	recorder *Recorder
}

// ForgetPod records that a pod is not bound, unless Unreserving has done so, and lets events be applied again.
func (c *releases) ForgetPod(logger klog.Logger, pod *corev1.Pod) error {
	r := c.recorder
	switch { // the caller holds order
	case r.releasing == pod.UID:
		defer r.order.Unlock()
		r.releasing = ""
	case !r.isCurrent(pod.UID): // its event is being applied; else the decision says so
		r.drop(Forget, pod)
	}
	return c.Cache.ForgetPod(logger, pod)
}

// Run writes the records until ctx ends, and then those that are left.
func (r *Recorder) Run(ctx context.Context) {
	w := &writer{recorder: r, logger: klog.FromContext(ctx)}
	tick := time.NewTicker(drainAfter)
	defer tick.Stop()
	flushed := time.Now()
	for {
		select {
		case <-tick.C:
			w.drain()
			if now := time.Now(); now.Sub(flushed) > flushAfter-2*drainAfter {
				w.flush()
				flushed = now
			}
		case <-ctx.Done():
			w.drain()
			w.end()
			return
		}
	}
}

// writer encodes records. After an error it drops them until the next snapshot.
type writer struct {
	recorder *Recorder
	logger   klog.Logger
	// ring has the files; nil before the first record.
	ring     *ring
	snapshot int64 // length of the last one
	// pods encodes events of pods, to text, which is reused.
	pods podTexts
	text []byte
	// broken is true after an error, until a snapshot begins another file.
	broken bool
}

// drain writes the records that wait.
func (w *writer) drain() {
	for len(w.recorder.records) > 0 {
		e := <-w.recorder.records
		w.write(&e)
	}
}

// write writes a record, or drops it after an error. The next snapshot begins a new file.
func (w *writer) write(e *entry) {
	if err := w.record(e); err != nil {
		if !w.broken {
			w.logger.Error(err, "Journal not written", "folder", w.recorder.folder)
		}
		w.broken = true
	}
	if w.broken {
		w.recorder.counted.WithLabelValues("dropped").Inc()
		w.recorder.due.Store(true)
		return
	}
	w.recorder.counted.WithLabelValues("written").Inc()
	// While records wait, those that come are dropped until the snapshot: see add.
	if e.snapshot == nil && len(w.recorder.records) == 0 && w.ring.isLong(w.snapshot) {
		w.recorder.due.Store(true)
	}
}

// record writes a record to the current file; a snapshot begins another one.
func (w *writer) record(e *entry) (err error) {
	if w.ring == nil {
		if w.ring, err = openRing(w.recorder.folder, ringSize, fileSize); err != nil {
			return err
		}
	}
	if e.snapshot != nil {
		return w.begin(e)
	}
	if w.broken {
		return nil
	}
	record := written{Record: &Record{Type: EventType, Gen: e.gen, Time: e.at, Decision: e.decision}}
	switch pod, isPod := e.object.(*corev1.Pod); {
	case isPod:
		if w.text, err = w.appendPodEvent(w.text[:0], e, pod); err != nil {
			return err
		}
		return w.ring.write(w.text)
	case e.decision != nil:
		record.Type = DecisionType
	case e.event != nil:
		record.Event = &writtenEvent{Event: e.event}
	default:
		if record.Event, err = newEvent(e.op, e.object); err != nil {
			return err
		}
	}
	return w.line(record)
}

// begin starts a file with a snapshot.
func (w *writer) begin(e *entry) error {
	if err := w.ring.begin(e.at); err != nil {
		return err
	}
	w.broken = false
	first := &Record{Type: SnapshotType, Gen: e.gen, Time: e.at, Snapshot: e.snapshot}
	if err := w.line(written{Record: first}); err != nil {
		return err
	}
	slices.SortFunc(e.objects, func(a, b Object) int { return cmp.Compare(loadOrder(a), loadOrder(b)) })
	for i, o := range e.objects {
		if err := w.record(&entry{gen: e.gen + uint64(i) + 1, at: e.at, op: Put, object: o}); err != nil {
			return err
		}
	}
	w.snapshot = w.ring.written
	return nil
}

// loadOrder sorts the objects of a snapshot: pods come last, and bound ones before those that wait.
func loadOrder(o Object) string {
	pod, ok := o.(*corev1.Pod)
	switch {
	case !ok:
		return "0" + KeyOf(o)
	case pod.Spec.NodeName != "":
		return "1" + KeyOf(o)
	}
	return "2" + KeyOf(o)
}

// line writes one record as a line.
func (w *writer) line(r written) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("encode a record: %w", err)
	}
	return w.ring.write(bytes.TrimSuffix(text.Bytes(), []byte("\n")))
}

// flush writes what is in memory.
func (w *writer) flush() {
	if w.ring != nil && !w.broken {
		if err := w.ring.flush(); err != nil {
			w.logger.Error(err, "Journal not written", "folder", w.recorder.folder)
			w.broken = true
		}
	}
}

// end closes the file.
func (w *writer) end() {
	if w.ring != nil {
		if err := w.ring.end(); err != nil {
			w.logger.Error(err, "Journal not written", "folder", w.recorder.folder)
		}
	}
}
