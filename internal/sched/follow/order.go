package follow

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/core/ledger"
)

// maxBindWait is how long a Binding waits while no pod ahead of it leaves the queue. Pods ahead may wait for a permit
// or for volumes.
const maxBindWait = 2 * time.Second

// Order sends the Bindings of one node in the order of their reservations, if its kubelet chooses: it admits pods in
// the order in which they are bound. Where the order changes all the same, it reports whose prediction is stale. The
// zero value is ready for use.
type Order struct {
	// NoWait lets each Binding start at once, as if those ahead of it had not moved for maxBindWait: for a scheduler
	// that does nothing else meanwhile. It must be set before the first pod.
	NoWait bool

	mu sync.Mutex // guards byNode
	// byNode has the queues that are not empty.
	byNode map[string]*bindQueue
}

// bindQueue is the queue of pods that are reserved on one node and not bound yet.
type bindQueue struct {
	// pods are in the order of their reservations.
	pods []queuedBinding
	// moved is closed, and replaced, when a pod leaves the queue.
	moved chan struct{}
}

// queuedBinding is a reserved pod that is not bound yet.
type queuedBinding struct {
	// pod is the UID of the reserved pod.
	pod types.UID
	// inFlight is true once the pod's Binding is on its way to the API server. The pod then counts as bound.
	inFlight bool
	// stale is true if the pod's prediction must be made anew: a pod ahead of it was not bound, or one behind it was.
	stale bool
}

// Add appends a pod to its node's queue. Its prediction is stale if any prediction in the queue is.
func (q *Order) Add(node string, pod types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.byNode == nil {
		q.byNode = map[string]*bindQueue{}
	}
	b := q.byNode[node]
	if b == nil {
		b = &bindQueue{moved: make(chan struct{})}
		q.byNode[node] = b
	}
	stale := slices.ContainsFunc(b.pods, func(p queuedBinding) bool { return p.stale })
	b.pods = append(b.pods, queuedBinding{pod: pod, stale: stale})
}

// Wait returns when the pod may be bound: no other Binding to the node is in flight, and the pod is at the head of the
// queue, or no pod ahead of it has left the queue for maxBindWait. It also returns when ctx ends. It reports whether
// the pod's prediction is stale. A pod that is not in a queue does not wait.
func (q *Order) Wait(ctx context.Context, node string, pod types.UID) (stale bool) {
	overtakes := q.NoWait
	for {
		moved, stale := q.begin(node, pod, overtakes)
		if moved == nil {
			return stale
		}
		select {
		case <-moved:
			overtakes = q.NoWait
		case <-time.After(maxBindWait):
			overtakes = true
		case <-ctx.Done():
			return false
		}
	}
}

// begin marks the pod's Binding as in flight. If the pod overtakes those ahead of it, all predictions in the queue
// become stale. If the pod must wait, begin returns a channel that is closed when a pod leaves the queue. At most one
// Binding to a node is in flight, because the API server may carry out the second of two first.
func (q *Order) begin(node string, pod types.UID, overtakes bool) (moved <-chan struct{}, stale bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.byNode[node]
	i := b.find(pod)
	if i < 0 {
		return nil, false
	}
	other := func(p queuedBinding) bool { return p.inFlight && p.pod != pod }
	if slices.ContainsFunc(b.pods, other) || i > 0 && !overtakes {
		return b.moved, false
	}
	b.pods[i].inFlight = true
	if i > 0 {
		b.markStale(0)
	}
	return nil, b.pods[i].stale
}

// IsStale reports whether a pod's prediction is stale before its Binding starts.
func (q *Order) IsStale(node string, pod types.UID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.byNode[node]
	i := b.find(pod)
	return i >= 0 && b.pods[i].stale
}

// Bound returns a node's view from account, and that view without the pods that are neither bound nor have a Binding in
// flight. A pod that is given up leaves the account before the queue. So Bound reads the account again after the queue,
// and starts over if the account has changed: else such a pod could be in the view and no longer in the queue, and
// would count as bound.
func (q *Order) Bound(node string, account func(node string) *ledger.View) (live, bound *ledger.View) {
	for {
		live = account(node)
		waiting := q.waiting(node)
		if account(node) != live {
			continue
		}
		bound = live
		for _, uid := range waiting {
			bound = bound.Without(string(uid))
		}
		return live, bound
	}
}

// waiting returns the pods of a node's queue whose Binding is not in flight.
func (q *Order) waiting(node string) []types.UID {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.byNode[node]
	if b == nil {
		return nil
	}
	var pods []types.UID
	for _, p := range b.pods {
		if !p.inFlight {
			pods = append(pods, p.pod)
		}
	}
	return pods
}

// Leave removes a bound pod from the queue; it does nothing for a pod that is not in it.
func (q *Order) Leave(node string, pod types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(node, q.byNode[node].find(pod))
}

// GiveUp removes a pod that will not be bound. The predictions of the pods behind it become stale: they count on what
// the pod would have taken. If the pod has already left the queue, all of them do.
func (q *Order) GiveUp(node string, pod types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b := q.byNode[node]; b != nil {
		i := b.find(pod)
		b.markStale(i + 1)
		q.remove(node, i)
	}
}

// remove removes the i-th pod of a node's queue, if i is not negative, and wakes the pods that wait. The caller holds
// mu.
func (q *Order) remove(node string, i int) {
	if i < 0 {
		return
	}
	b := q.byNode[node]
	b.pods = slices.Delete(b.pods, i, i+1)
	close(b.moved)
	b.moved = make(chan struct{})
	if len(b.pods) == 0 {
		delete(q.byNode, node)
	}
}

// find returns the pod's position, -1 if it is not in the queue, which may be nil.
func (b *bindQueue) find(pod types.UID) int {
	if b == nil {
		return -1
	}
	return slices.IndexFunc(b.pods, func(p queuedBinding) bool { return p.pod == pod })
}

// markStale marks the predictions from a position on as stale.
func (b *bindQueue) markStale(from int) {
	for i := from; i < len(b.pods); i++ {
		b.pods[i].stale = true
	}
}
