package upstream

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/heap"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Events counts what may let a pod fit that did not: all for which the queue looks at its unschedulable pods, but that
// a pod came or was bound. One that needs others near it may fit then too.
type Events struct {
	// Deaf is a plugin that refuses pods for which no event of another pod is of use.
	Deaf  string
	count atomic.Uint64
	queue *eventQueue // that is watched
}

// Count returns how many there were. An event is counted after the cache has it, and before it wakes pods.
func (e *Events) Count() uint64 { return e.count.Load() }

// Watch returns the queue that counts its events, and logs in c the nodes to which other pods are nominated than
// before.
func (e *Events) Watch(q queue.SchedulingQueue, c *Changes) queue.SchedulingQueue {
	e.queue = &eventQueue{
		SchedulingQueue: q, events: e, changes: c,
		deaf: sets.New[types.UID](), nominated: map[types.UID]nomination{}, byNode: map[string][]fwk.PodInfo{},
		newcomers: heap.New(func(n newcomer) string { return string(n.pod.UID) }, newcomer.before),
	}
	return e.queue
}

// Newcomer takes a pod that was never tried out of the watched queue: of those with the highest priority the one that
// came first. nil where none has this priority or a higher one. Pods of which skip is true remain in the queue, and are
// no newcomers any more.
func (e *Events) Newcomer(logger klog.Logger, priority int32, skip func(*corev1.Pod) bool) *framework.QueuedPodInfo {
	for {
		pod := e.queue.newcomer(priority)
		if pod == nil {
			return nil
		}
		if skip(pod) {
			continue
		}
		e.queue.arrives.Lock() // it may be known here and not be in the queue yet
		info := e.queue.PopSpecificPod(logger, pod)
		e.queue.arrives.Unlock()
		if info != nil { // nil for one that is held back
			return info
		}
	}
}

// newcomer is a pod that was never tried, and how many came before it.
type newcomer struct {
	pod *corev1.Pod
	at  uint64
}

func (n newcomer) before(o newcomer) bool {
	return cmp.Or(cmp.Compare(corev1helpers.PodPriority(o.pod), corev1helpers.PodPriority(n.pod)),
		cmp.Compare(n.at, o.at)) < 0
}

type eventQueue struct {
	queue.SchedulingQueue
	events  *Events
	changes *Changes
	arrives sync.Mutex // is held while a pod is added

	asking sync.RWMutex        // guards deaf; is held while the queue looks at its pods
	deaf   sets.Set[types.UID] // pods that only the deaf plugin has refused

	mu        sync.Mutex               // guards the rest
	nominated map[types.UID]nomination // as the queue said after the last call that concerned the pod
	byNode    map[string][]fwk.PodInfo // the same; a list that was returned is not changed
	aside     *framework.QueuedPodInfo
	newcomers *heap.Heap[newcomer]
	came      uint64
}

// setDeaf notes whether no event of another pod is of use for a pod.
func (q *eventQueue) setDeaf(uid types.UID, is bool) {
	q.asking.Lock()
	defer q.asking.Unlock()
	if is {
		q.deaf.Insert(uid)
	} else {
		q.deaf.Delete(uid)
	}
}

// comes notes a newcomer.
func (q *eventQueue) comes(pod *corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.came++
	q.newcomers.AddOrUpdate(newcomer{pod, q.came})
}

// goes is called with pods that leave the queue.
func (q *eventQueue) goes(pod *corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_ = q.newcomers.Delete(newcomer{pod: pod}) // most are none
}

// newcomer removes the first one, if its priority is high enough.
func (q *eventQueue) newcomer(priority int32) *corev1.Pod {
	q.mu.Lock()
	defer q.mu.Unlock()
	first, ok := q.newcomers.Peek()
	if !ok || corev1helpers.PodPriority(first.pod) < priority {
		return nil
	}
	_ = q.newcomers.Delete(first) // it is there
	return first.pod
}

// nomination is a node to which a pod is nominated, and the pod as it counts there; nil without a node.
type nomination struct {
	node string
	info fwk.PodInfo
}

// weighs reports whether others have as much room beside one as beside the other.
func (n nomination) weighs(o nomination) bool {
	if n.node != o.node || n.info == nil || o.info == nil {
		return n.node == o.node
	}
	a, b := n.info.GetPod(), o.info.GetPod()
	// A pod that has left the queue has no containers there.
	return weighsAlike(a, b) && len(a.Spec.Containers) == len(b.Spec.Containers)
}

// renominates is called after each call that may change the nomination of a pod, to one of these nodes if to any. It
// logs the nodes where others have more or less room now; a pod whose status alone is another takes none.
func (q *eventQueue) renominates(uid types.UID, to ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	was := q.nominated[uid]
	is := q.nominationOf(uid, append(to, was.node))
	if is.node == "" && was.node == "" {
		return
	}
	delete(q.nominated, uid)
	if was.node != "" {
		others := slices.DeleteFunc(slices.Clone(q.byNode[was.node]), func(i fwk.PodInfo) bool {
			return i.GetPod().UID == uid
		})
		if q.byNode[was.node] = others; len(others) == 0 {
			delete(q.byNode, was.node)
		}
	}
	if is.node != "" {
		q.nominated[uid] = is
		q.byNode[is.node] = append(slices.Clone(q.byNode[is.node]), is.info)
	}
	if was.weighs(is) {
		return
	}
	for _, node := range []string{is.node, was.node} {
		if node != "" {
			q.changes.Shown(node)
		}
	}
}

// nominationOf returns the nomination of a pod to one of these nodes. Of a pod that has left the queue only its name
// counts, but for one that was set aside.
func (q *eventQueue) nominationOf(uid types.UID, nodes []string) nomination {
	for i, node := range nodes {
		if node == "" || slices.Contains(nodes[:i], node) {
			continue
		}
		for _, info := range q.SchedulingQueue.NominatedPodsForNode(node) {
			if info.GetPod().UID != uid {
				continue
			}
			if q.aside != nil && q.aside.Pod.UID == uid {
				info = q.aside.PodInfo.DeepCopy()
			}
			info.CalculateResource() // which remembers: from here on it is only read
			return nomination{node, info}
		}
	}
	return nomination{}
}

// NominatedPodsForNode returns the pods that are nominated to a node. They are not to be changed: filters ask for them
// on each node, and Kubernetes' queue copies them each time.
func (q *eventQueue) NominatedPodsForNode(node string) []fwk.PodInfo {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.byNode[node]
}

// Nominated returns the node to which a pod is nominated, "" for none. That its status says so may come later.
func (e *Events) Nominated(uid types.UID) (node string) {
	e.queue.mu.Lock()
	defer e.queue.mu.Unlock()
	return e.queue.nominated[uid].node
}

// SetAside lets the nomination of a pod that has left the queue count until it is set aside no more: nil ends that.
func (e *Events) SetAside(pod *framework.QueuedPodInfo) {
	q := e.queue
	q.mu.Lock()
	was := q.aside
	q.aside = pod
	q.mu.Unlock()
	for _, p := range []*framework.QueuedPodInfo{was, pod} {
		if p != nil {
			q.renominates(p.Pod.UID)
		}
	}
}

func (q *eventQueue) Add(ctx context.Context, pod *corev1.Pod) {
	q.arrives.Lock()
	defer q.arrives.Unlock()
	q.comes(pod) // first, as it may be popped at once
	q.SchedulingQueue.Add(ctx, pod)
	q.renominates(pod.UID, pod.Status.NominatedNodeName)
}

func (q *eventQueue) Update(ctx context.Context, old, pod *corev1.Pod) {
	if len(old.Spec.SchedulingGates) > 0 && len(pod.Spec.SchedulingGates) == 0 { // it was held back, and never tried
		q.arrives.Lock()
		defer q.arrives.Unlock()
		q.comes(pod)
	}
	q.SchedulingQueue.Update(ctx, old, pod)
	q.renominates(pod.UID, pod.Status.NominatedNodeName)
}

func (q *eventQueue) Delete(pod *corev1.Pod) {
	q.SchedulingQueue.Delete(pod)
	q.setDeaf(pod.UID, false)
	q.goes(pod)
	q.renominates(pod.UID)
}

func (q *eventQueue) Pop(logger klog.Logger) (*framework.QueuedPodInfo, error) {
	pod, err := q.SchedulingQueue.Pop(logger)
	if pod != nil {
		q.goes(pod.Pod)
		q.renominates(pod.Pod.UID)
	}
	return pod, err
}

func (q *eventQueue) PopSpecificPod(logger klog.Logger, pod *corev1.Pod) *framework.QueuedPodInfo {
	defer q.renominates(pod.UID)
	q.goes(pod)
	return q.SchedulingQueue.PopSpecificPod(logger, pod)
}

func (q *eventQueue) AddUnschedulableIfNotPresent(logger klog.Logger, pod *framework.QueuedPodInfo, cycle int64) error {
	q.setDeaf(pod.Pod.UID, pod.PendingPlugins.Len() == 0 && pod.UnschedulablePlugins.Equal(sets.New(q.events.Deaf)))
	defer q.renominates(pod.Pod.UID)
	return q.SchedulingQueue.AddUnschedulableIfNotPresent(logger, pod, cycle)
}

func (q *eventQueue) AddNominatedPod(logger klog.Logger, pod fwk.PodInfo, to *fwk.NominatingInfo) {
	uid, node := pod.GetPod().UID, pod.GetPod().Status.NominatedNodeName
	if was := q.events.Nominated(uid); to.Mode() == fwk.ModeNoop && was != "" {
		// Kubernetes' queue would go by the status, which may not say it yet.
		to = &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: was}
	}
	q.SchedulingQueue.AddNominatedPod(logger, pod, to)
	if to.Mode() == fwk.ModeOverride {
		node = to.NominatedNodeName
	}
	q.renominates(uid, node)
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
		q.asking.RLock()
		defer q.asking.RUnlock()
		inner := check
		check = func(pod *corev1.Pod) bool { // which is less than to look for the hints of each
			return !q.deaf.Has(pod.UID) && (inner == nil || inner(pod))
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
