package follow

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	nodeutil "k8s.io/kubernetes/pkg/util/node"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// What a tracker waits for.
const (
	// leakTime is how long a kubelet may keep what a rejected pod had been given: it reconciles every 10 s.
	leakTime = 15 * time.Second
	// A node that rejects a pod of a shape gets no pods of that shape for firstBackoff, doubled each time up to
	// lastBackoff, forgotten when none came for lastBackoff after the last one ended.
	firstBackoff = 30 * time.Second
	lastBackoff  = 10 * time.Minute
	// A node with suspectAfter model errors within suspectTime ranks last.
	suspectAfter = 3
	suspectTime  = 10 * time.Minute
	// A bound pod that its kubelet has not started for overdueTime is reported.
	overdueTime = 5 * time.Minute
	// departedTime is how long the entry of a pod that left is remembered: its rejection may be seen after it has gone.
	departedTime = time.Minute

	// tickTime separates two calls of Tick; at each overdueTick, overdue pods are looked for.
	tickTime    = time.Second
	overdueTick = 30 * time.Second
	// mispredictionsKept bounds the records of what was predicted wrong, shapesKept the back-offs, waitingKept the pods
	// that wait for them.
	mispredictionsKept = 256
	shapesKept         = 1 << 14
	waitingKept        = 1 << 12
)

// Tracker follows what becomes of pods after they were bound: whether the node confirms what was predicted, whether the
// kubelet rejects them, whether it starts them at all. All profiles of a scheduler share one.
type Tracker struct {
	// store has the accounts of nodes. It reports confirmed and departed pods to the tracker.
	store *kube.Store
	// metrics count predictions by what became of them.
	metrics *Metrics
	// now is the clock of all times below.
	now func() time.Time

	// Leading is true while this scheduler is the leader. Other replicas watch, and send no Events.
	Leading atomic.Bool
	// handle is that of the first profile; nil before Attach.
	handle atomic.Pointer[fwk.Handle]
	// activeBackoffs counts the back-offs that have not ended. While it is 0, Filter looks up no back-off.
	activeBackoffs atomic.Int32
	// Order is the order of the Bindings to nodes whose kubelet chooses.
	Order Order

	// overdue are the pods that have been reported as overdue. Only Tick uses it.
	overdue map[types.UID]struct{}
	// overdueChecked is when Tick last looked for overdue pods. Only Tick uses it.
	overdueChecked time.Time

	mu sync.Mutex // guards everything below
	// chosen has the time at which this scheduler chose a node for a pod, until the node confirms or rejects the pod,
	// the pod leaves its node, or suspectTime has passed.
	chosen map[types.UID]time.Time
	// departed are the pods that left their nodes within departedTime.
	departed map[types.UID]departure
	// counted are the rejected pods that have been counted and still exist.
	counted map[types.UID]struct{}
	// held are the rejected pods whose units are held because the kubelet may still have them.
	held map[types.UID]hold
	// backoffs are those of shapes that a kubelet rejected, until lastBackoff after they ended.
	backoffs map[shape]*backoff
	// waiting are the pods that a back-off refused, and that are activated when it ends.
	waiting map[types.UID]waiter
	// modelErrors are those of each node within suspectTime, oldest first.
	modelErrors map[string][]modelError
	// records are the last mispredictions, oldest first.
	records []Misprediction
}

// departure is a pod that left its node.
type departure struct {
	// node is the node that the pod was on.
	node  string
	entry ledger.Entry // that the pod had on the node
	// chosen is true if this scheduler bound the pod.
	chosen bool
	// at is when the pod left. The departure is forgotten departedTime later.
	at time.Time
}

// hold are the units of a rejected pod, which remain in the account of its node until a time.
type hold struct {
	// node is the node whose account keeps the units.
	node string
	// until is leakTime after the rejection. Tick gives the units back then.
	until time.Time
}

// shape is a request to the kubelet of a node; pods with equal requests have one shape.
type shape struct{ node, request string }

// backoff is the time for which a node gets no pod of a shape after its kubelet has rejected one.
type backoff struct {
	// delay is the length of the back-off. It doubles with each rejection.
	delay time.Duration
	// until is when the back-off ends. A rejection in the meantime sets a later time.
	until time.Time
	// ended is true once the pods that waited for the end have been activated.
	ended bool
}

// waiter is a pod that a back-off refused.
type waiter struct {
	// pod is the pod as it was refused. It is activated under its namespace and name.
	pod *corev1.Pod
	// shape is that of the back-off which refused the pod.
	shape shape
}

// Misprediction is a pod for which the kubelet of its node did something else than the scheduler had predicted.
type Misprediction struct {
	// Time is when the scheduler learned of it.
	Time time.Time `json:"time"`
	// Namespace, Name and UID are those of the pod.
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// Node is the node to which the pod was bound.
	Node string `json:"node"`
	// Mode is the node's topology mode.
	Mode string `json:"mode"`
	// Model is the release of the kubelet whose behaviour was predicted.
	Model string `json:"model"`
	// Kinds are rejected, mask, cpus, memory and device.
	Kinds []string `json:"kinds"`
	// ModelError is true if the model of the kubelet does not explain what it did. The kubelet otherwise had something
	// else to give than was known when the prediction was made, or the model left the choice open.
	ModelError bool `json:"modelError,omitempty"`
	// Reason is the kubelet's, of rejected pods.
	Reason string `json:"reason,omitempty"`
	// Predicted is what the containers were expected to get; empty for a pod without a prediction.
	Predicted annotation.PlacedContainers `json:"predicted,omitempty"`
	// Actual is what the node reports that the containers got; empty for a pod that was rejected.
	Actual annotation.PlacedContainers `json:"actual,omitempty"`
}

// NewTracker returns a tracker of the pods on store's nodes, which it makes its listener.
func NewTracker(store *kube.Store, m *Metrics, now func() time.Time) *Tracker {
	t := &Tracker{
		store: store, metrics: m, now: now,
		chosen: map[types.UID]time.Time{}, departed: map[types.UID]departure{}, counted: map[types.UID]struct{}{},
		held: map[types.UID]hold{}, backoffs: map[shape]*backoff{}, waiting: map[types.UID]waiter{},
		modelErrors: map[string][]modelError{},
	}
	store.SetListener(kube.Listener{Confirmed: t.confirmed, Left: t.left})
	return t
}

// Attach makes the tracker speak through the scheduler of a profile.
func (t *Tracker) Attach(h fwk.Handle) { t.handle.CompareAndSwap(nil, &h) }

// Run follows failed, the informer of kube.NewRejectionInformer, which it runs, until ctx ends.
func (t *Tracker) Run(ctx context.Context, failed cache.SharedIndexInformer) {
	pods := kube.Handler(func(pod *corev1.Pod) { t.Rejected(ctx, pod) }, func(pod *corev1.Pod) { t.Forget(pod.UID) })
	_, _ = failed.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{ // fails only on one that has ended
		AddFunc: func(obj any, initial bool) {
			if !initial { // a former leader handled what failed before
				pods.OnAdd(obj, initial)
			}
		},
		UpdateFunc: pods.OnUpdate,
		DeleteFunc: pods.OnDelete,
	})
	var running sync.WaitGroup
	running.Go(func() { failed.RunWithContext(ctx) })
	wait.UntilWithContext(ctx, t.Tick, tickTime)
	running.Wait()
}

// RejectedPod returns a pod of failed that its kubelet did not run, nil when there is none of that name.
func RejectedPod(failed cache.SharedIndexInformer, namespace, name string) *corev1.Pod {
	obj, found, err := failed.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !found {
		return nil
	}
	pod := obj.(*corev1.Pod)
	if _, rejected := convert.Rejected(pod); !rejected {
		return nil // nothing but its name is kept
	}
	return pod
}

// Reserved records that this scheduler chose a node, with the view v, for a pod.
func (t *Tracker) Reserved(uid types.UID, v *ledger.View, o ledger.Offer) {
	if model := &v.Facts().Model; model.Predicts() && o.Entry.Guest != nil && model.Concerns(o.Entry.Guest.Pod) {
		t.metrics.predictions.WithLabelValues(v.Facts().Mode.String(), model.Release()).Inc()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.chosen[uid] = t.now()
}

// Unreserved records that a pod does not get the node that was reserved for it.
func (t *Tracker) Unreserved(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.chosen, uid)
}

// left keeps the entry of a pod that leaves its node, for a rejection that is seen later. A pod that was neither chosen
// nor predicted by this scheduler never counts as rejected, and is not kept.
func (t *Tracker) left(node string, e ledger.Entry) {
	uid := types.UID(e.UID)
	t.mu.Lock()
	defer t.mu.Unlock()
	_, chosen := t.chosen[uid]
	delete(t.chosen, uid)
	if chosen || e.Guest != nil && e.Guest.Prediction != nil {
		t.departed[uid] = departure{node, e, chosen, t.now()}
	}
}

// Forget drops what is kept of a failed pod, which was deleted.
func (t *Tracker) Forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.counted, uid)
}

// confirmed is called by the store when a node reports the placement of a pod that was predicted. A placement that
// differs is recorded, counted and reported as an Event.
func (t *Tracker) confirmed(node string, c tenancy.Confirmation) {
	t.mu.Lock()
	delete(t.chosen, types.UID(c.UID))
	t.mu.Unlock()
	if c.Difference == 0 {
		return
	}
	p := c.Prediction
	m := Misprediction{
		Time: t.now(), Namespace: c.Namespace, Name: c.Name, UID: types.UID(c.UID), Node: node,
		Mode: t.store.View(node).Facts().Mode.String(), Model: p.Model, Kinds: c.Difference.Kinds(),
		Predicted: convert.Placed(p.Held), Actual: convert.Placed(c.Actual), ModelError: c.ModelError,
	}
	t.record(m)
	cause := "since the prediction, pods had come, left or released memory, or the model leaves the choice open"
	if c.ModelError {
		cause = "the model of the kubelet does not explain it"
		t.recordModelError(node, p.Model, p.Gen)
	}
	t.event(&corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: m.Namespace, Name: m.Name, UID: m.UID},
		event.PlacementMispredicted, "Confirming",
		"the kubelet of node %s placed the pod otherwise than predicted (%s): %s; see the diagnostics of the "+
			"scheduler for both placements",
		node, strings.Join(m.Kinds, ", "), cause)
}

// record counts a misprediction and keeps it among the last ones.
func (t *Tracker) record(m Misprediction) {
	for _, kind := range m.Kinds {
		t.metrics.mispredictions.WithLabelValues(m.Mode, m.Model, kind).Inc()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.records) == mispredictionsKept {
		t.records = slices.Delete(t.records, 0, 1)
	}
	t.records = append(t.records, m)
}

// Mispredictions returns the last of them, the latest first; the caller may change the list, which is never nil.
func (t *Tracker) Mispredictions() []Misprediction {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := append([]Misprediction{}, t.records...)
	slices.Reverse(out)
	return out
}

// Rejected handles a pod that its kubelet did not run, once: it removes the pod's entry, holds the pod's units for as
// long as the kubelet may leak them, and starts a back-off of the node for pods of that shape. A pod that another
// scheduler bound does not count.
func (t *Tracker) Rejected(ctx context.Context, pod *corev1.Pod) {
	reason, rejected := convert.Rejected(pod)
	if !rejected || pod.Spec.NodeName == "" {
		return
	}
	entry, ours := t.claimRejected(pod)
	if !ours {
		return
	}
	// The pod's entry goes at once, as the pod holds nothing that another pod could be refused for. What its kubelet
	// may not have released yet stays in the account under a UID of its own.
	node := pod.Spec.NodeName
	facts := t.store.View(node).Facts()
	t.store.RemovePod(pod)
	if entry.Guest != nil && facts.Model.Concerns(entry.Guest.Pod) {
		t.store.Hold(node, entry)
		t.mu.Lock()
		t.held[pod.UID] = hold{node, t.now().Add(leakTime)}
		t.mu.Unlock()
	}
	model := cmp.Or(facts.Model.Release(), "none")
	t.metrics.rejections.WithLabelValues(reason).Inc()
	m := Misprediction{
		Time: t.now(), Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Node: node,
		Mode: facts.Mode.String(), Model: model, Kinds: []string{"rejected"}, Reason: reason,
	}
	if entry.Guest != nil && entry.Guest.Prediction != nil {
		m.Predicted = convert.Placed(entry.Guest.Prediction.Held)
	}
	klog.FromContext(ctx).Info("The kubelet rejected a pod that was predicted to fit", "pod", klog.KObj(pod),
		"node", node, "reason", reason, "message", pod.Status.Message, "mode", m.Mode, "model", model)
	// Only refusals of the kubelet's topology and resource managers speak against the model. Others, such as an
	// eviction threshold, were never predicted.
	if convert.Misaligned(reason) {
		m.ModelError = true
		t.record(m)
		t.recordModelError(node, model, 0)
	}
	t.startBackoff(node, pod)
}

// claimRejected returns the entry of a rejected pod, and counts the pod. It returns false for a pod that this scheduler
// did not bind, or that was counted before.
func (t *Tracker) claimRejected(pod *corev1.Pod) (entry ledger.Entry, ours bool) {
	node, entry, found := t.store.Holder(string(pod.UID))
	t.mu.Lock()
	defer t.mu.Unlock()
	_, predicted := pod.Annotations[annotation.PredictedPlacementKey]
	_, chosen := t.chosen[pod.UID]
	d := t.departed[pod.UID]
	chosen = chosen || d.chosen
	if _, counted := t.counted[pod.UID]; counted || !predicted && !chosen {
		return ledger.Entry{}, false
	}
	t.counted[pod.UID] = struct{}{}
	delete(t.chosen, pod.UID)
	if !found {
		node, entry = d.node, d.entry
	}
	delete(t.departed, pod.UID)
	if node != pod.Spec.NodeName {
		entry = ledger.Entry{}
	}
	return entry, true
}

// modelError is one time that a kubelet rejected a pod which its model admits, or placed a pod otherwise than
// predicted.
type modelError struct {
	// at is when the error was counted. It is forgotten suspectTime later.
	at time.Time
	// report is the generation of the report that the prediction is based on; 0 for a rejection.
	report int64
}

// recordModelError counts a model error of a node. Predictions on one report build on each other, so only the first
// wrong one counts.
func (t *Tracker) recordModelError(node, model string, report int64) {
	t.mu.Lock()
	now := t.now()
	recent := within(t.modelErrors[node], now)
	t.modelErrors[node] = recent // within reuses the slice: the old one must not remain
	if report > 0 && slices.ContainsFunc(recent, func(s modelError) bool { return s.report == report }) {
		t.mu.Unlock()
		return
	}
	recent = append(recent, modelError{now, report})
	t.modelErrors[node] = recent
	t.mu.Unlock()
	t.store.Touch(node)
	if len(recent) == suspectAfter {
		t.event(nodeReference(node), event.KubeletModelSuspect, "Confirming",
			"the kubelet rejected or placed pods otherwise than the model of release %s predicts, %d times within %s: "+
				"the node ranks last for pods that it concerns",
			model, suspectAfter, suspectTime)
	}
}

// within returns the errors of the last suspectTime.
func within(all []modelError, now time.Time) []modelError {
	return slices.DeleteFunc(all, func(s modelError) bool { return now.Sub(s.at) > suspectTime })
}

// nodeReference names a node in Events as the kubelet does: the UID is the name.
func nodeReference(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: name, UID: types.UID(name)}
}

// Suspects reports whether the model of the node's kubelet was wrong suspectAfter times within suspectTime.
func (t *Tracker) Suspects(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	recent := t.modelErrors[node]
	return len(recent) >= suspectAfter && t.now().Sub(recent[len(recent)-suspectAfter].at) <= suspectTime
}

// startBackoff starts a back-off of a node for pods of the shape of pod, or extends one.
func (t *Tracker) startBackoff(node string, pod *corev1.Pod) {
	request, ok := t.signature(pod)
	if !ok {
		return
	}
	key := shape{node, request}
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.backoffs[key]
	if b == nil {
		if len(t.backoffs) >= shapesKept {
			return
		}
		b = &backoff{delay: firstBackoff, ended: true}
		t.backoffs[key] = b
	} else {
		b.delay = min(2*b.delay, lastBackoff)
	}
	b.until = t.now().Add(b.delay)
	t.store.Touch(node)
	if b.ended {
		b.ended = false
		t.activeBackoffs.Add(1)
	}
}

// RemainingBackoff returns how much longer the node of a rejected pod gets no pods of the same shape.
func (t *Tracker) RemainingBackoff(pod *corev1.Pod) time.Duration {
	request, ok := t.signature(pod)
	if !ok {
		return 0
	}
	return time.Duration(t.Refuses(pod.Spec.NodeName, request).Extra) * time.Second
}

// signature returns the part of a pod's request by which back-offs distinguish pods; false for a pod that cannot be
// parsed.
func (t *Tracker) signature(pod *corev1.Pod) (request string, ok bool) {
	r, reason, _ := convert.Request(pod, t.store.Args())
	if !reason.OK() {
		return "", false
	}
	return r.Signature(), true
}

// HasBackoffs reports whether any back-off has not ended.
func (t *Tracker) HasBackoffs() bool { return t.activeBackoffs.Load() > 0 }

// Refuses returns KubeletRejected during the back-off of a node for pods with this request.
func (t *Tracker) Refuses(node, request string) why.Reason {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := t.backoffs[shape{node, request}]; b != nil {
		if left := b.until.Sub(t.now()); left > 0 {
			return why.Reason{Code: why.KubeletRejected, Extra: int64((left + time.Second - 1) / time.Second)}
		}
	}
	return why.Reason{}
}

// Accepts reports whether the node has no back-off for such pods. The end of a back-off activates the pods that it
// refused, so no other event need do so.
func (t *Tracker) Accepts(node string, r *place.Request) bool {
	return !t.HasBackoffs() || t.Refuses(node, r.Signature()).OK()
}

// Wait keeps a pod that a back-off refused, to activate the pod when the back-off ends.
func (t *Tracker) Wait(pod *corev1.Pod, node, request string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) < waitingKept {
		t.waiting[pod.UID] = waiter{pod, shape{node, request}}
	}
}

// Tick ends the holds and back-offs that are due, activates the pods that waited for them, reports overdue pods and
// drops old records. Run calls it every second.
func (t *Tracker) Tick(ctx context.Context) {
	now := t.now()
	// What is due is collected under the lock and carried out after it: store and queue call back.
	released, wake := map[types.UID]string{}, map[string]*corev1.Pod{}
	t.mu.Lock()
	for uid, h := range t.held {
		if !now.Before(h.until) {
			released[uid] = h.node
			delete(t.held, uid)
		}
	}
	t.endBackoffs(now, wake)
	t.forgetOld(now)
	t.mu.Unlock()

	for uid, node := range released {
		t.store.Release(node, string(uid))
	}
	handle := t.handle.Load()
	if len(wake) > 0 && handle != nil {
		(*handle).Activate(klog.FromContext(ctx), wake)
	}
	if now.Sub(t.overdueChecked) >= overdueTick {
		t.overdueChecked = now
		if handle != nil {
			t.reportOverdue(*handle, now)
		}
	}
}

// endBackoffs ends the back-offs that are due, and adds the pods that waited for them to wake. The caller holds mu.
func (t *Tracker) endBackoffs(now time.Time, wake map[string]*corev1.Pod) {
	for key, b := range t.backoffs {
		if !b.ended && !now.Before(b.until) {
			b.ended = true
			t.activeBackoffs.Add(-1)
			t.store.Touch(key.node)
		}
		if now.Sub(b.until) > lastBackoff {
			delete(t.backoffs, key)
		}
	}
	for uid, w := range t.waiting {
		if b := t.backoffs[w.shape]; b == nil || b.ended {
			wake[w.pod.Namespace+"/"+w.pod.Name] = w.pod
			delete(t.waiting, uid)
		}
	}
}

// forgetOld drops what is older than it is remembered. The caller holds mu.
func (t *Tracker) forgetOld(now time.Time) {
	maps.DeleteFunc(t.chosen, func(_ types.UID, at time.Time) bool { return now.Sub(at) > suspectTime })
	maps.DeleteFunc(t.departed, func(_ types.UID, d departure) bool { return now.Sub(d.at) > departedTime })
	for node, all := range t.modelErrors {
		recent := within(all, now)
		if len(recent) < len(all) {
			t.store.Touch(node)
		}
		if t.modelErrors[node] = recent; len(recent) == 0 {
			delete(t.modelErrors, node)
		}
	}
}

// reportOverdue reports once each bound pod that its kubelet, which is ready, has not started for overdueTime.
func (t *Tracker) reportOverdue(handle fwk.Handle, now time.Time) {
	lister := handle.SharedInformerFactory().Core().V1().Pods().Lister()
	still := map[types.UID]struct{}{} // the others are confirmed or gone
	for _, name := range t.store.Nodes() {
		node, ok := t.store.Node(name)
		if !ok {
			continue
		}
		for _, s := range node.View.Tenancy().Assignments() {
			uid := types.UID(s.UID)
			if s.Source != tenancy.Predicted {
				continue
			}
			if _, ok := t.overdue[uid]; ok {
				still[uid] = struct{}{}
				continue
			}
			pod, err := lister.Pods(s.Namespace).Get(s.Name)
			if node.Object == nil || !nodeutil.IsNodeReady(node.Object) || err != nil || pod.UID != uid ||
				pod.Status.StartTime != nil || !boundLongAgo(pod, now) {
				continue
			}
			still[uid] = struct{}{}
			t.event(pod, event.PlacementUnconfirmed, "Confirming",
				"the kubelet of node %s has not started the pod for %s after it was bound; what it was predicted to "+
					"get stays reserved", name, overdueTime)
		}
	}
	t.overdue = still
}

// boundLongAgo reports whether a pod was bound more than overdueTime ago.
func boundLongAgo(pod *corev1.Pod, now time.Time) bool {
	_, c := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
	return c != nil && c.Status == corev1.ConditionTrue && now.Sub(c.LastTransitionTime.Time) > overdueTime
}

// event sends an Event for o, if this scheduler is the leader and a profile has registered its handle.
func (t *Tracker) event(o runtime.Object, reason event.Reason, action, format string, args ...any) {
	if handle := t.handle.Load(); handle != nil && t.Leading.Load() {
		(*handle).EventRecorder().Eventf(o, nil, reason.Type(), reason.String(), action, format, args...)
	}
}
