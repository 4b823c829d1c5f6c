package upstream

import (
	"context"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
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

// Watch returns the queue that counts its events, and in c the nominations that end.
func (e *Events) Watch(q queue.SchedulingQueue, c *Changes) queue.SchedulingQueue {
	return &eventQueue{SchedulingQueue: q, events: e, changes: c}
}

type eventQueue struct {
	queue.SchedulingQueue
	events    *Events
	changes   *Changes
	nominated sync.Map // by UID: pods that may be nominated
	deaf      sync.Map // by UID: pods that only the deaf plugin has refused
}

// renominates is called after each call that may end the nomination of a pod. The pod may be nominated from now on.
func (q *eventQueue) renominates(p *corev1.Pod, may bool) {
	_, was := q.nominated.LoadAndDelete(p.UID)
	if may {
		q.nominated.Store(p.UID, nil)
	}
	if was {
		q.changes.nominationsEnded.Add(1)
	}
}

func (q *eventQueue) Add(ctx context.Context, pod *corev1.Pod) {
	q.SchedulingQueue.Add(ctx, pod)
	q.renominates(pod, pod.Status.NominatedNodeName != "")
}

func (q *eventQueue) Update(ctx context.Context, old, pod *corev1.Pod) {
	q.SchedulingQueue.Update(ctx, old, pod)
	_, was := q.nominated.Load(pod.UID) // and keeps it where neither says so
	q.renominates(pod, was || pod.Status.NominatedNodeName != "")
}

func (q *eventQueue) Delete(pod *corev1.Pod) {
	q.SchedulingQueue.Delete(pod)
	q.deaf.Delete(pod.UID)
	q.renominates(pod, false)
}

func (q *eventQueue) AddUnschedulableIfNotPresent(logger klog.Logger, pod *framework.QueuedPodInfo, cycle int64) error {
	if pod.PendingPlugins.Len() == 0 && pod.UnschedulablePlugins.Equal(sets.New(q.events.Deaf)) {
		q.deaf.Store(pod.Pod.UID, nil)
	} else {
		q.deaf.Delete(pod.Pod.UID)
	}
	return q.SchedulingQueue.AddUnschedulableIfNotPresent(logger, pod, cycle)
}

func (q *eventQueue) AddNominatedPod(logger klog.Logger, pod fwk.PodInfo, to *fwk.NominatingInfo) {
	q.SchedulingQueue.AddNominatedPod(logger, pod, to)
	q.renominates(pod.GetPod(), true)
}

func (q *eventQueue) DeleteNominatedPodIfExists(pod *corev1.Pod) {
	q.SchedulingQueue.DeleteNominatedPodIfExists(pod)
	q.renominates(pod, false)
}

func (q *eventQueue) UpdateNominatedPod(logger klog.Logger, old *corev1.Pod, pod fwk.PodInfo) {
	q.SchedulingQueue.UpdateNominatedPod(logger, old, pod)
	q.renominates(pod.GetPod(), true)
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
