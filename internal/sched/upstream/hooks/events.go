package hooks

import (
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
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/wake"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
)

// Events counts what may let a pod fit that did not: all for which the queue looks at its unschedulable pods, but that
// a pod came or was bound. One with affinity to others may fit then too. Attempts and Rooms say which pods wake; where
// they are nil, upstream's hints alone do.
type Events struct {
	// SiblingPlugin is the plugin that refuses a pod because of others that start with it. For a pod that no other
	// plugin refused, no event of another pod is of use.
	SiblingPlugin string
	// Attempts knows the last attempt on each pod.
	Attempts Attempts
	// Rooms knows the room that is kept for some pods.
	Rooms Rooms
	// Nodes has what the cache has of the nodes.
	Nodes Nodes
	// Also knows plugins whose events may let a pod fit, beside those that have refused it; nil where there are none.
	Also Also
	// Both only grow; count has others as well.
	count, others atomic.Uint64
}

// Attempts knows the last attempt on each pod. It is safe for concurrent use.
type Attempts interface {
	// Amounts returns the plugin that compares what a pod asks for with what a node has left, if all nodes refused the
	// pod in its last attempt, each for reasons of its own; nil for another pod, which is asked about each event.
	Amounts(*corev1.Pod) Amounts
}

// Also knows plugins whose events may let a pod fit, beside those that have refused it.
type Also interface {
	// Wakes returns the names of such plugins.
	Wakes(refused *framework.QueuedPodInfo) []string
}

// Rooms knows the room that is kept for some pods.
type Rooms interface {
	// Opened returns which pods an event lets use such room, whatever refused them; nil for an event that opens none.
	// The hints of a plugin are asked only about pods that the plugin has refused.
	Opened(old, obj any) (mayUse func(*corev1.Pod) bool)
}

// Nodes is kube-scheduler's cache.
type Nodes interface {
	// GetNode returns a copy of what the cache has of a node.
	GetNode(name string) (*framework.NodeInfo, error)
}

// Amounts is a plugin as NodeResourcesFit is: its filter reads a node's amounts, and of the state what its PreFilter
// has written.
type Amounts interface {
	fwk.PreFilterPlugin
	fwk.FilterPlugin
}

// Count returns how many there were. An event is counted after the cache has it, and before it wakes pods.
func (e *Events) Count() uint64 { return e.count.Load() }

// Others returns how many of them were about something else than a pod with a node.
func (e *Events) Others() uint64 { return e.others.Load() }

// Watch returns the queue that counts its events, and logs in c the nodes to which other pods are nominated than
// before.
func (e *Events) Watch(q podqueue.Queue, c *Changes) podqueue.Queue {
	return &eventQueue{
		Queue: q, events: e, changes: c, refused: map[types.UID]refusal{}, nominated: map[types.UID]string{},
	}
}

// eventQueue is the scheduling queue that counts events and logs nominations. Each call goes to the queue first.
type eventQueue struct {
	podqueue.Queue
	// events counts, and changes logs nodes whose nominated pods have changed.
	events  *Events
	changes *Changes

	asking  sync.RWMutex          // guards refused; is held while the queue looks at its pods
	refused map[types.UID]refusal // without pods whose value is zero

	mu        sync.Mutex           // guards nominated
	nominated map[types.UID]string // the node of each nominated pod, after the last call that concerned the pod
}

// refusal is what is known of the last attempt on a pod.
type refusal struct {
	wake.Refusal
	amounts Amounts // what Events.Attempts said of the pod; nil unless ByAmounts
}

// setRefusal records what is known of a pod.
func (q *eventQueue) setRefusal(uid types.UID, r refusal) {
	q.asking.Lock()
	defer q.asking.Unlock()
	if r == (refusal{}) {
		delete(q.refused, uid)
	} else {
		q.refused[uid] = r
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
		if node != "" && slices.ContainsFunc(q.Queue.NominatedPodsForNode(node),
			func(info fwk.PodInfo) bool { return info.GetPod().UID == uid }) {
			return node
		}
	}
	return ""
}

// Add logs a pod that comes with a nomination.
func (q *eventQueue) Add(ctx context.Context, pod *corev1.Pod) {
	q.Queue.Add(ctx, pod)
	q.logNomination(pod.UID, pod.Status.NominatedNodeName)
}

// Update logs a pod whose nomination or requests may have changed, and forgets what was known of another pod.
func (q *eventQueue) Update(ctx context.Context, old, pod *corev1.Pod) {
	if old != nil && kube.IsEdited(old, pod) {
		q.setRefusal(pod.UID, refusal{})
	}
	q.Queue.Update(ctx, old, pod)
	q.logNomination(pod.UID, pod.Status.NominatedNodeName)
}

// Delete forgets what is known of the pod.
func (q *eventQueue) Delete(logger klog.Logger, pod *corev1.Pod) {
	q.Queue.Delete(logger, pod)
	q.setRefusal(pod.UID, refusal{})
	q.logNomination(pod.UID)
}

// Pop logs the node that the pod is nominated to.
func (q *eventQueue) Pop(logger klog.Logger) (framework.QueuedEntityInfo, error) {
	entity, err := q.Queue.Pop(logger)
	if pod, ok := entity.(*framework.QueuedPodInfo); ok {
		q.logNomination(pod.Pod.UID)
	}
	return entity, err
}

// Take logs the node that the pod is nominated to.
func (q *eventQueue) Take(logger klog.Logger, pod *corev1.Pod) *framework.QueuedPodInfo {
	defer q.logNomination(pod.UID)
	return q.Queue.Take(logger, pod)
}

// AddUnschedulablePodIfNotPresent records who refused the pod.
func (q *eventQueue) AddUnschedulablePodIfNotPresent(logger klog.Logger, pod *framework.QueuedPodInfo, cycle int64,
) error {
	if q.events.Also != nil {
		pod.UnschedulablePlugins = pod.UnschedulablePlugins.Union(sets.New(q.events.Also.Wakes(pod)...))
	}
	var r refusal
	r.BySiblings = pod.PendingPlugins.Len() == 0 && pod.UnschedulablePlugins.Equal(sets.New(q.events.SiblingPlugin))
	if q.events.Attempts != nil {
		r.amounts = q.events.Attempts.Amounts(pod.Pod)
		r.ByAmounts = r.amounts != nil
	}
	q.setRefusal(pod.Pod.UID, r)
	defer q.logNomination(pod.Pod.UID)
	return q.Queue.AddUnschedulablePodIfNotPresent(logger, pod, cycle)
}

// AddNominatedPod logs the node of the nomination.
func (q *eventQueue) AddNominatedPod(logger klog.Logger, pod fwk.PodInfo, to *fwk.NominatingInfo) {
	q.Queue.AddNominatedPod(logger, pod, to)
	node := pod.GetPod().Status.NominatedNodeName
	if to.Mode() == fwk.ModeOverride {
		node = to.NominatedNodeName
	}
	q.logNomination(pod.GetPod().UID, node)
}

// DeleteNominatedPodIfExists logs the node that the pod was nominated to.
func (q *eventQueue) DeleteNominatedPodIfExists(pod *corev1.Pod) {
	q.Queue.DeleteNominatedPodIfExists(pod)
	q.logNomination(pod.UID)
}

// UpdateNominatedPod logs both nodes.
func (q *eventQueue) UpdateNominatedPod(logger klog.Logger, old *corev1.Pod, pod fwk.PodInfo) {
	q.Queue.UpdateNominatedPod(logger, old, pod)
	q.logNomination(pod.GetPod().UID, pod.GetPod().Status.NominatedNodeName)
}

// MoveAllToActiveOrBackoffQueue counts the event, and leaves pods asleep that it cannot help, see package wake.
// Pods wake, whatever refused them, if the event opens room that is kept for them.
func (q *eventQueue) MoveAllToActiveOrBackoffQueue(logger klog.Logger, event fwk.ClusterEvent, old, obj any,
	check queue.PreEnqueueCheck,
) {
	if event.Resource == framework.EventAssignedPodAdd.Resource {
		q.asking.RLock()
		defer q.asking.RUnlock()
	}
	what, left := q.read(event, old)
	if what.Counts() {
		q.events.count.Add(1)
	}
	if what == wake.Other {
		q.events.others.Add(1)
	}
	if event.Resource == framework.EventAssignedPodAdd.Resource {
		inner := check
		check = func(pod *corev1.Pod) bool { // which is less than to look for the hints of each
			r := q.refused[pod.UID]
			answer := r.After(what)
			if answer == wake.Sleep || inner != nil && !inner(pod) {
				return false
			}
			return answer == wake.Ask || left.compare(r.amounts, pod).Answer() == wake.Ask
		}
	}
	q.Queue.MoveAllToActiveOrBackoffQueue(logger, event, old, obj, check)
	if q.events.Rooms == nil {
		return
	}
	if mayUse := q.events.Rooms.Opened(old, obj); mayUse != nil {
		all := fwk.ClusterEvent{Resource: fwk.WildCard, ActionType: fwk.All, CustomLabel: event.Label()}
		q.Queue.MoveAllToActiveOrBackoffQueue(logger, all, nil, nil, mayUse)
	}
}

// room is a node that a pod has left.
type room struct {
	node *framework.NodeInfo
	// above has, by priority, copies of the node without the pods whose priority is lower.
	above map[int32]*framework.NodeInfo
}

// read returns what has happened, and the node that a pod has left if amounts may be compared there. q.asking is held
// for an event of a pod with a node.
func (q *eventQueue) read(event fwk.ClusterEvent, old any) (wake.Event, *room) {
	gone, _ := old.(*corev1.Pod)
	switch {
	case event == framework.EventUnscheduledPodAdd:
		return wake.PodCame, nil
	case event == framework.EventAssignedPodAdd:
		return wake.PodBound, nil
	case event.Resource != framework.EventAssignedPodAdd.Resource:
		return wake.Other, nil
	case event != framework.EventAssignedPodDelete || gone == nil:
		return wake.PodChanged, nil
	}
	if left := q.roomOf(gone); left != nil {
		return wake.PodLeft, left
	}
	return wake.MemberLeft, nil
}

// roomOf returns the node that a pod has left, as it is now. It returns nil if the node is not known, if no pod would
// be asked about its amounts, and for a member of a gang. q.asking is held.
func (q *eventQueue) roomOf(gone *corev1.Pod) *room {
	name := gone.Spec.NodeName
	if _, member := convert.GangPod(gone); member || q.events.Nodes == nil || name == "" || len(q.refused) == 0 {
		return nil
	}
	node, err := q.events.Nodes.GetNode(name)
	if err != nil || node.Node() == nil {
		return nil
	}
	return &room{node, map[int32]*framework.NodeInfo{}}
}

// compare compares what a pod asks for with the node, once pods of lower priority have left. A plugin that panics
// decides in the attempt on the pod.
func (r *room) compare(a Amounts, pod *corev1.Pod) (found wake.Room) {
	defer func() {
		if recover() != nil {
			found.Unknown = true
		}
	}()
	if found.Nominated = pod.Status.NominatedNodeName == r.node.Node().Name; found.Nominated {
		return found
	}
	priority := corev1helpers.PodPriority(pod)
	node, known := r.above[priority]
	if !known {
		node = r.node.SnapshotConcrete()
		for _, i := range r.node.GetPods() {
			if lower := i.GetPod(); corev1helpers.PodPriority(lower) < priority {
				_ = node.RemovePod(klog.Background(), lower) // it is there: the node is a copy
			}
		}
		r.above[priority] = node
	}
	ctx, state := context.Background(), framework.NewCycleState()
	if _, status := a.PreFilter(ctx, state, pod, nil); !status.IsSuccess() {
		return wake.Room{Unknown: true}
	}
	return wake.Room{Fits: !a.Filter(ctx, state, pod, node).IsRejected()}
}

// Hold returns a queue that looks at its pods for no event before it runs. Nothing has been tried until then, and to
// ask for each of the nodes and pods that exist at start about each pod that a plugin holds back costs their product:
// seconds of a scheduler's start with a thousand members of gangs. These pods are asked about once, when it runs.
//
// Pods whose place in the order may change come into the queue when it runs: a queue does not move a pod that is in it.
// The scheduler that leads may end while it binds a gang; the rest then goes first in a process that knew it before.
func Hold(q podqueue.Queue, moves func(*corev1.Pod) bool) podqueue.Queue {
	return &heldQueue{Queue: q, moves: moves, held: map[types.UID]*corev1.Pod{}}
}

// heldQueue is the queue of Hold. runs is set when the queue runs.
type heldQueue struct {
	podqueue.Queue
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
		q.Queue.Add(ctx, pod)
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
		q.Queue.Update(ctx, old, pod)
	}
}

// Delete forgets a pod that is held.
func (q *heldQueue) Delete(logger klog.Logger, pod *corev1.Pod) {
	q.hold(func() bool { delete(q.held, pod.UID); return true })
	q.Queue.Delete(logger, pod)
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
			q.Queue.Add(klog.NewContext(context.Background(), logger), pod)
			delete(q.held, uid)
		}
	}
	q.came = nil
	q.mu.Unlock()
	q.Queue.Run(logger)
}

// MoveAllToActiveOrBackoffQueue drops events before the queue runs.
func (q *heldQueue) MoveAllToActiveOrBackoffQueue(logger klog.Logger, event fwk.ClusterEvent, old, obj any,
	check queue.PreEnqueueCheck,
) {
	if q.runs.Load() {
		q.Queue.MoveAllToActiveOrBackoffQueue(logger, event, old, obj, check)
	}
}
