package nodenumaresource

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// turnPatience is how long a Binding waits while nobody before it moves: a pod that waits for a permit or for its volumes
// must not hold up its node.
const turnPatience = 2 * time.Second

// turns let the Bindings of one node reach the API server in the order of their reservations, where the kubelet chooses:
// it meets pods in the order in which they are bound, and what it gives to one depends on those before. Nodes do not wait
// for each other. The zero value is ready.
type turns struct {
	mu     sync.Mutex // guards byNode
	byNode map[string]*line
}

// line is the pods of one node that are reserved and not bound. moved is closed, and replaced, when one leaves.
type line struct {
	pods  []types.UID
	moved chan struct{}
}

// take puts a pod at the end of its node's line.
func (t *turns) take(node string, uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byNode == nil {
		t.byNode = map[string]*line{}
	}
	l := t.byNode[node]
	if l == nil {
		l = &line{moved: make(chan struct{})}
		t.byNode[node] = l
	}
	l.pods = append(l.pods, uid)
}

// wait returns when it is the pod's turn, when nobody before it has moved for turnPatience, or when ctx ends. A pod that
// has taken no turn does not wait.
func (t *turns) wait(ctx context.Context, node string, uid types.UID) {
	for {
		moved := t.ahead(node, uid)
		if moved == nil {
			return
		}
		patience := time.NewTimer(turnPatience)
		select {
		case <-moved:
			patience.Stop()
		case <-patience.C:
			return
		case <-ctx.Done():
			patience.Stop()
			return
		}
	}
}

// ahead is closed when a pod leaves the line; nil when none is before this one.
func (t *turns) ahead(node string, uid types.UID) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.byNode[node]; l != nil && slices.Index(l.pods, uid) > 0 {
		return l.moved
	}
	return nil
}

// leave takes a pod out of the line; it does nothing for a pod that is not in it.
func (t *turns) leave(node string, uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.byNode[node]
	if l == nil {
		return
	}
	i := slices.Index(l.pods, uid)
	if i < 0 {
		return
	}
	l.pods = slices.Delete(l.pods, i, i+1)
	close(l.moved)
	l.moved = make(chan struct{})
	if len(l.pods) == 0 {
		delete(t.byNode, node)
	}
}
