package upstream

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
// a pod came or was bound. One that needs others near it may fit then too.
type Events struct {
	// Deaf is a plugin that refuses pods for which no event of another pod is of use.
	Deaf  string
	count atomic.Uint64
}

// Count returns how many there were. An event is counted after the cache has it, and before it wakes pods.
func (e *Events) Count() uint64 { return e.count.Load() }

// Watch returns the queue that counts its events, and logs in c the nodes to which other pods are nominated than
// before.
func (e *Events) Watch(q queue.SchedulingQueue, c *Changes) queue.SchedulingQueue {
	return &eventQueue{SchedulingQueue: q, events: e, changes: c, nominated: map[types.UID]nomination{}}
}

type eventQueue struct {
	queue.SchedulingQueue
	events  *Events
	changes *Changes
	deaf    sync.Map // by UID: pods that only the deaf plugin has refused

	mu        sync.Mutex               // guards nominated
	nominated map[types.UID]nomination // as the queue said after the last call that concerned the pod
}

// nomination is a node to which a pod is nominated, and the pod as it counts there.
type nomination struct {
	node string
	pod  *corev1.Pod
}

// renominates is called after each call that may change the nomination of a pod, to one of these nodes if to any. It
// logs the nodes where others have more or less room now; a pod whose status alone is another takes none.
func (q *eventQueue) renominates(uid types.UID, to ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	was := q.nominated[uid]
	is := q.nominationOf(uid, append(to, was.node))
	if is.node == was.node && (is.pod == nil || weighsAlike(was.pod, is.pod) &&
		len(was.pod.Spec.Containers) == len(is.pod.Spec.Containers)) { // none of a pod that has left the queue
		return
	}
	delete(q.nominated, uid)
	if is.node != "" {
		q.nominated[uid] = is
		q.changes.Shown(is.node)
	}
	if was.node != "" && was.node != is.node {
		q.changes.Shown(was.node)
	}
}

// nominationOf returns the nomination of a pod to one of these nodes. Of a pod that has left the queue only its name
// counts.
func (q *eventQueue) nominationOf(uid types.UID, nodes []string) nomination {
	for i, node := range nodes {
		if node == "" || slices.Contains(nodes[:i], node) {
			continue
		}
		for _, info := range q.NominatedPodsForNode(node) {
			if pod := info.GetPod(); pod.UID == uid {
				return nomination{node, pod}
			}
		}
	}
	return nomination{}
}

func (q *eventQueue) Add(ctx context.Context, pod *corev1.Pod) {
	q.SchedulingQueue.Add(ctx, pod)
	q.renominates(pod.UID, pod.Status.NominatedNodeName)
}

func (q *eventQueue) Update(ctx context.Context, old, pod *corev1.Pod) {
	q.SchedulingQueue.Update(ctx, old, pod)
	q.renominates(pod.UID, pod.Status.NominatedNodeName)
}

func (q *eventQueue) Delete(pod *corev1.Pod) {
	q.SchedulingQueue.Delete(pod)
	q.deaf.Delete(pod.UID)
	q.renominates(pod.UID)
}

func (q *eventQueue) Pop(logger klog.Logger) (*framework.QueuedPodInfo, error) {
	pod, err := q.SchedulingQueue.Pop(logger)
	if pod != nil {
		q.renominates(pod.Pod.UID)
	}
	return pod, err
}

func (q *eventQueue) PopSpecificPod(logger klog.Logger, pod *corev1.Pod) *framework.QueuedPodInfo {
	defer q.renominates(pod.UID)
	return q.SchedulingQueue.PopSpecificPod(logger, pod)
}

func (q *eventQueue) AddUnschedulableIfNotPresent(logger klog.Logger, pod *framework.QueuedPodInfo, cycle int64) error {
	if pod.PendingPlugins.Len() == 0 && pod.UnschedulablePlugins.Equal(sets.New(q.events.Deaf)) {
		q.deaf.Store(pod.Pod.UID, nil)
	} else {
		q.deaf.Delete(pod.Pod.UID)
	}
	defer q.renominates(pod.Pod.UID)
	return q.SchedulingQueue.AddUnschedulableIfNotPresent(logger, pod, cycle)
}

func (q *eventQueue) AddNominatedPod(logger klog.Logger, pod fwk.PodInfo, to *fwk.NominatingInfo) {
	q.SchedulingQueue.AddNominatedPod(logger, pod, to)
	node := pod.GetPod().Status.NominatedNodeName
	if to.Mode() == fwk.ModeOverride {
		node = to.NominatedNodeName
	}
	q.renominates(pod.GetPod().UID, node)
}

func (q *eventQueue) DeleteNominatedPodIfExists(pod *corev1.Pod) {
	q.SchedulingQueue.DeleteNominatedPodIfExists(pod)
	q.renominates(pod.UID)
}

func (q *eventQueue) UpdateNominatedPod(logger klog.Logger, old *corev1.Pod, pod fwk.PodInfo) {
	q.SchedulingQueue.UpdateNominatedPod(logger, old, pod)
	q.renominates(pod.GetPod().UID, pod.GetPod().Status.NominatedNodeName)
}

func (q *eventQueue) MoveAllToActiveOrBackoffQueue(logger klog.Logger, event fwk.ClusterEvent, old, obj any,
	check queue.PreEnqueueCheck,
) {
	if event != framework.EventAssignedPodAdd && event != framework.EventUnscheduledPodAdd {
		q.events.count.Add(1)
	}
	if assigned := framework.EventAssignedPodAdd.Resource; event.Resource == assigned {
		inner := check
		check = func(pod *corev1.Pod) bool { // which is less than to look for the hints of each
			_, deaf := q.deaf.Load(pod.UID)
			return !deaf && (inner == nil || inner(pod))
		}
	}
	q.SchedulingQueue.MoveAllToActiveOrBackoffQueue(logger, event, old, obj, check)
}

// Hold returns a queue that looks at its pods for no event before it runs. Nothing has been tried until then, and to
// ask for each of the nodes and pods that exist at start about each pod that a plugin holds back costs their product:
// seconds of a scheduler's start with a thousand members of gangs. These pods are asked about once, when it runs.
func Hold(q queue.SchedulingQueue) queue.SchedulingQueue { return &heldQueue{SchedulingQueue: q} }

type heldQueue struct {
	queue.SchedulingQueue
	runs atomic.Bool
}

func (q *heldQueue) Run(logger klog.Logger) {
	q.runs.Store(true) // from here on events count; what they follow from is known to who is asked now
	pending, _ := q.PendingPods()
	pods := make(map[string]*corev1.Pod, len(pending))
	for _, p := range pending {
		pods[p.Namespace+"/"+p.Name] = p
	}
	q.Activate(logger, pods)
	q.SchedulingQueue.Run(logger)
}

func (q *heldQueue) MoveAllToActiveOrBackoffQueue(logger klog.Logger, event fwk.ClusterEvent, old, obj any,
	check queue.PreEnqueueCheck,
) {
	if q.runs.Load() {
		q.SchedulingQueue.MoveAllToActiveOrBackoffQueue(logger, event, old, obj, check)
	}
}
