package podqueue

import (
	"container/list"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/backend/heap"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/upstream/inside"
)

// Queue is the queue of pending pods. The scheduling loop alone calls Pop and Take. All else is safe for concurrent
// use.
type Queue interface {
	queue.SchedulingQueue
	// Take pops a pod as if it were the first one, also if it waits for its backoff or for an event. It returns nil for
	// a pod that is not in the queue, or that a PreEnqueue plugin holds back. It does not wait for a pod.
	Take(logger klog.Logger, pod *corev1.Pod) *framework.QueuedPodInfo
}

// entry is what upstream's active queue consists of.
type entry = framework.QueuedEntityInfo

// taking is upstream's queue, which gives out pods by name.
type taking struct {
	queue.SchedulingQueue
	active
	// wanted is the entry that is less than all others; nil unless Take is under way.
	wanted *atomic.Pointer[framework.QueuedPodInfo]
	// mu is held by Take, and by what would remove the wanted entry.
	mu sync.Mutex
}

// active is upstream's active queue: the pods that Pop returns.
type active struct {
	lock *sync.RWMutex // guards the others, as in upstream
	pods *heap.Heap[entry]
	// inFlight are the UIDs of popped pods. Pop drops an entry of such a pod and returns the next one, or waits for it.
	inFlight map[types.UID]*list.Element
}

// New returns a queue that upstream has just made, with Take. It changes the order of the active queue, so no pod may
// be in it yet.
func New(inner queue.SchedulingQueue) (Queue, error) {
	lock, e1 := inside.Field[sync.RWMutex](inner, "activeQ", "lock")
	pods, e2 := inside.Field[*heap.Heap[entry]](inner, "activeQ", "queue")
	inFlight, e3 := inside.Field[map[types.UID]*list.Element](inner, "activeQ", "inFlightPods")
	less, e4 := inside.Field[heap.LessFunc[entry]](inner, "activeQ", "queue", "data", "lessFunc")
	if err := errors.Join(e1, e2, e3, e4); err != nil {
		return nil, fmt.Errorf("the scheduling queue cannot pop pods by name: %w", err)
	}
	q := &taking{
		SchedulingQueue: inner, active: active{lock, *pods, *inFlight},
		wanted: &atomic.Pointer[framework.QueuedPodInfo]{},
	}
	plain := *less
	*less = func(a, b entry) bool {
		if wanted := q.wanted.Load(); wanted != nil && (a == entry(wanted) || b == entry(wanted)) {
			return a == entry(wanted) && b != entry(wanted)
		}
		return plain(a, b)
	}
	return q, nil
}

// Take makes the pod the first one of the active queue and pops it.
func (q *taking) Take(logger klog.Logger, pod *corev1.Pod) *framework.QueuedPodInfo {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.active.has(pod) {
		// A pod that is in flight is not in the queue: to activate it would queue it again when it fails.
		if _, waits := q.GetPod(pod.Name, pod.Namespace, nil); !waits {
			return nil
		}
		q.Activate(logger, map[string]*corev1.Pod{pod.Namespace + "/" + pod.Name: pod})
	}
	if !q.first(pod) {
		return nil
	}
	defer q.wanted.Store(nil)
	// This does not wait: only Pop and Delete remove a pod from the active queue.
	info, err := Pods(q.Pop)(logger)
	if err != nil {
		logger.Error(err, "Failed to take a pod out of the queue", "pod", klog.KObj(pod))
	}
	return info
}

// first makes a pod the first one of the active queue, until wanted is nil. It returns false for a pod that is not
// there, or is in flight as well.
func (q *taking) first(pod *corev1.Pod) bool {
	q.lock.Lock()
	defer q.lock.Unlock()
	found, _ := q.pods.Get(lookup(pod))
	info, isPod := found.(*framework.QueuedPodInfo)
	if !isPod || info.Pod.UID != pod.UID || q.inFlight[pod.UID] != nil {
		return false
	}
	q.wanted.Store(info)
	q.pods.AddOrUpdate(info)
	return true
}

// has reports whether a pod of this name is in the active queue.
func (a *active) has(pod *corev1.Pod) bool {
	a.lock.RLock()
	defer a.lock.RUnlock()
	return a.pods.Has(lookup(pod))
}

// lookup returns an entry with the key of a pod.
func lookup(pod *corev1.Pod) entry {
	return &framework.QueuedPodInfo{PodInfo: &framework.PodInfo{Pod: pod}}
}

// Delete waits until Take has ended.
func (q *taking) Delete(logger klog.Logger, pod *corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.SchedulingQueue.Delete(logger, pod)
}
