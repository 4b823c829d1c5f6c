package hooks

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Events counts what may let a pod fit that did not: all for which the queue looks at its unschedulable pods, but that
// a pod came or was bound. One with affinity to others may fit then too.
type Events struct {
	// SiblingPlugin is the plugin that refuses a pod because of others that start with it. For a pod that no other
	// plugin refused, no event of another pod is of use.
	SiblingPlugin string
	// count only grows.
	count atomic.Uint64
}

// Count returns how many there were. An event is counted after the cache has it, and before it wakes pods.
func (e *Events) Count() uint64 { return e.count.Load() }

// Watch returns the queue that counts its events, and logs in c the nodes to which other pods are nominated than
// before.
func (e *Events) Watch(q queue.SchedulingQueue, c *Changes) queue.SchedulingQueue {
	return &eventQueue{
		SchedulingQueue: q, events: e, changes: c, refusedForSiblings: sets.New[types.UID](),
		nominated: map[types.UID]string{},
	}
}

// eventQueue is the scheduling queue that counts events and logs nominations. Each call goes to the queue first.
type eventQueue struct {
	queue.SchedulingQueue
	// events counts, and changes logs nodes whose nominated pods have changed.
	events  *Events
	changes *Changes

	asking             sync.RWMutex        // guards refusedForSiblings; is held while the queue looks at its pods
	refusedForSiblings sets.Set[types.UID] // pods that only Events.SiblingPlugin has refused

	mu        sync.Mutex           // guards nominated
	nominated map[types.UID]string // the node of each nominated pod, after the last call that concerned the pod
}

// setRefusedForSiblings records whether no event of another pod is of use for a pod.
func (q *eventQueue) setRefusedForSiblings(uid types.UID, refused bool) {
	q.asking.Lock()
	defer q.asking.Unlock()
	if refused {
		q.refusedForSiblings.Insert(uid)
	} else {
		q.refusedForSiblings.Delete(uid)
	}
}

// logNomination is called after each call that may change what a nominated pod takes on its node: its nomination, to
// one of these nodes if to any, its requests, or whether it is in the queue. Rankings look at the logged nodes again.
func (q *eventQueue) logNomination(uid types.UID, nodes ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.nominated[uid]
	now := q.nodeOf(uid, append(nodes, before))
	if now == "" {
		delete(q.nominated, uid)
	} else {
		q.nominated[uid] = now
	}
	for _, node := range slices.Compact([]string{now, before}) {
		if node != "" {
			q.changes.Shown(node)
		}
	}
}

// nodeOf returns which of these nodes a pod is nominated to, "" for none.
func (q *eventQueue) nodeOf(uid types.UID, nodes []string) string {
	for _, node := range nodes {
		if node != "" && slices.ContainsFunc(q.SchedulingQueue.NominatedPodsForNode(node),
			func(info fwk.PodInfo) bool { return info.GetPod().UID == uid }) {
			return node
		}
	}
	return ""
}

// Add logs a pod that comes with a nomination.
func (q *eventQueue) Add(ctx context.Context, pod *corev1.Pod) {
	q.SchedulingQueue.Add(ctx, pod)
	q.logNomination(pod.UID, pod.Status.NominatedNodeName)
}

// Update logs a pod whose nomination or requests may have changed.
func (q *eventQueue) Update(ctx context.Context, old, pod *corev1.Pod) {
	q.SchedulingQueue.Update(ctx, old, pod)
	q.logNomination(pod.UID, pod.Status.NominatedNodeName)
}

// Delete forgets what is known of the pod.
func (q *eventQueue) Delete(pod *corev1.Pod) {
	q.SchedulingQueue.Delete(pod)
	q.setRefusedForSiblings(pod.UID, false)
	q.logNomination(pod.UID)
}

// Pop logs the node that the pod is nominated to.
func (q *eventQueue) Pop(logger klog.Logger) (*framework.QueuedPodInfo, error) {
	pod, err := q.SchedulingQueue.Pop(logger)
	if pod != nil {
		q.logNomination(pod.Pod.UID)
	}
	return pod, err
}

// PopSpecificPod logs the node that the pod is nominated to.
func (q *eventQueue) PopSpecificPod(logger klog.Logger, pod *corev1.Pod) *framework.QueuedPodInfo {
	defer q.logNomination(pod.UID)
	return q.SchedulingQueue.PopSpecificPod(logger, pod)
}

// AddUnschedulableIfNotPresent records whether the gang alone refused the pod.
func (q *eventQueue) AddUnschedulableIfNotPresent(logger klog.Logger, pod *framework.QueuedPodInfo, cycle int64) error {
	q.setRefusedForSiblings(pod.Pod.UID,
		pod.PendingPlugins.Len() == 0 && pod.UnschedulablePlugins.Equal(sets.New(q.events.SiblingPlugin)))
	defer q.logNomination(pod.Pod.UID)
	return q.SchedulingQueue.AddUnschedulableIfNotPresent(logger, pod, cycle)
}

// AddNominatedPod logs the node of the nomination.
func (q *eventQueue) AddNominatedPod(logger klog.Logger, pod fwk.PodInfo, to *fwk.NominatingInfo) {
	q.SchedulingQueue.AddNominatedPod(logger, pod, to)
	node := pod.GetPod().Status.NominatedNodeName
	if to.Mode() == fwk.ModeOverride {
		node = to.NominatedNodeName
	}
	q.logNomination(pod.GetPod().UID, node)
}

// DeleteNominatedPodIfExists logs the node that the pod was nominated to.
func (q *eventQueue) DeleteNominatedPodIfExists(pod *corev1.Pod) {
	q.SchedulingQueue.DeleteNominatedPodIfExists(pod)
	q.logNomination(pod.UID)
}

// UpdateNominatedPod logs both nodes.
func (q *eventQueue) UpdateNominatedPod(logger klog.Logger, old *corev1.Pod, pod fwk.PodInfo) {
	q.SchedulingQueue.UpdateNominatedPod(logger, old, pod)
	q.logNomination(pod.GetPod().UID, pod.GetPod().Status.NominatedNodeName)
}

// MoveAllToActiveOrBackoffQueue counts the event, unless it only takes room. Pods that wait for siblings are not asked
// about a pod that was bound.
func (q *eventQueue) MoveAllToActiveOrBackoffQueue(logger klog.Logger, event fwk.ClusterEvent, old, obj any,
	check queue.PreEnqueueCheck,
) {
	if event != framework.EventAssignedPodAdd && event != framework.EventUnscheduledPodAdd {
		q.events.count.Add(1)
	}
	if assigned := framework.EventAssignedPodAdd.Resource; event.Resource == assigned {
		q.asking.RLock()
		defer q.asking.RUnlock()
		inner := check
		check = func(pod *corev1.Pod) bool { // which is less than to look for the hints of each
			return !q.refusedForSiblings.Has(pod.UID) && (inner == nil || inner(pod))
		}
	}
	q.SchedulingQueue.MoveAllToActiveOrBackoffQueue(logger, event, old, obj, check)
}

// Hold returns a queue that looks at its pods for no event before it runs. Nothing has been tried until then, and to
// ask for each of the nodes and pods that exist at start about each pod that a plugin holds back costs their product:
// seconds of a scheduler's start with a thousand members of gangs. These pods are asked about once, when it runs.
//
// Pods whose place in the order may change come into the queue when it runs: a queue does not move a pod that is in it.
// The scheduler that leads may end while it binds a gang; the rest then goes first in a process that knew it before.
func Hold(q queue.SchedulingQueue, moves func(*corev1.Pod) bool) queue.SchedulingQueue {
	return &heldQueue{SchedulingQueue: q, moves: moves, held: map[types.UID]*corev1.Pod{}}
}

// heldQueue is the queue of Hold. runs is set when the queue runs.
type heldQueue struct {
	queue.SchedulingQueue
	moves func(*corev1.Pod) bool
	runs  atomic.Bool

	// mu guards what follows, and is held while runs is set. held has the pods that are not in the queue yet, came the
	// order in which they came, with those that have gone.
	mu   sync.Mutex
	held map[types.UID]*corev1.Pod
	came []types.UID
}

// hold changes the pods that are held, if the queue does not run, and reports whether one of them is meant.
func (q *heldQueue) hold(change func() bool) bool {
	if q.runs.Load() {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.runs.Load() && change()
}

// Add holds a pod whose place may change.
func (q *heldQueue) Add(ctx context.Context, pod *corev1.Pod) {
	if !q.hold(func() bool {
		if !q.moves(pod) {
			return false
		}
		q.held[pod.UID], q.came = pod, append(q.came, pod.UID)
		return true
	}) {
		q.SchedulingQueue.Add(ctx, pod)
	}
}

// Update replaces a pod that is held.
func (q *heldQueue) Update(ctx context.Context, old, pod *corev1.Pod) {
	if !q.hold(func() bool {
		_, held := q.held[pod.UID]
		if held {
			q.held[pod.UID] = pod
		}
		return held
	}) {
		q.SchedulingQueue.Update(ctx, old, pod)
	}
}

// Delete forgets a pod that is held.
func (q *heldQueue) Delete(pod *corev1.Pod) {
	q.hold(func() bool { delete(q.held, pod.UID); return true })
	q.SchedulingQueue.Delete(pod)
}

// Run asks about each pod that waits once, adds those that are held, and then runs the queue.
func (q *heldQueue) Run(logger klog.Logger) {
	q.mu.Lock()
	q.runs.Store(true) // from here on events count; what they follow from is known to who is asked now
	pending, _ := q.PendingPods()
	pods := make(map[string]*corev1.Pod, len(pending))
	for _, p := range pending {
		pods[p.Namespace+"/"+p.Name] = p
	}
	q.Activate(logger, pods)
	for _, uid := range q.came {
		if pod := q.held[uid]; pod != nil {
			q.SchedulingQueue.Add(klog.NewContext(context.Background(), logger), pod)
			delete(q.held, uid)
		}
	}
	q.came = nil
	q.mu.Unlock()
	q.SchedulingQueue.Run(logger)
}

// MoveAllToActiveOrBackoffQueue drops events before the queue runs.
func (q *heldQueue) MoveAllToActiveOrBackoffQueue(logger klog.Logger, event fwk.ClusterEvent, old, obj any,
	check queue.PreEnqueueCheck,
) {
	if q.runs.Load() {
		q.SchedulingQueue.MoveAllToActiveOrBackoffQueue(logger, event, old, obj, check)
	}
}
