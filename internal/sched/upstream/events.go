package upstream

import (
	"sync/atomic"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Events counts what may let a pod fit that did not: all for which the queue looks at its unschedulable pods, but that
// a pod came or was bound. One that needs others near it may fit then too.
type Events struct{ count atomic.Uint64 }

// Count returns how many there were. An event is counted after the cache has it, and before it wakes pods.
func (e *Events) Count() uint64 { return e.count.Load() }

// Watch returns the queue that counts its events.
func (e *Events) Watch(q queue.SchedulingQueue) queue.SchedulingQueue { return &eventQueue{q, e} }

type eventQueue struct {
	queue.SchedulingQueue
	events *Events
}

func (q *eventQueue) MoveAllToActiveOrBackoffQueue(logger klog.Logger, event fwk.ClusterEvent, old, obj any,
	check queue.PreEnqueueCheck,
) {
	if event != framework.EventAssignedPodAdd && event != framework.EventUnscheduledPodAdd {
		q.events.count.Add(1)
	}
	q.SchedulingQueue.MoveAllToActiveOrBackoffQueue(logger, event, old, obj, check)
}
