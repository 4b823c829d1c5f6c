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
// it meets pods in the order in which they are bound, and what it gives to one depends on those before. When the order
// becomes another one all the same, turns tell whose prediction is stale. Nodes do not wait for each other. The zero
// value is ready.
type turns struct {
	mu     sync.Mutex // guards byNode
	byNode map[string]*line
}

// line is the pods of one node that are reserved and not bound. moved is closed, and replaced, when one leaves.
type line struct {
	pods  []turn
	moved chan struct{}
}

type turn struct {
	pod types.UID
	// going: its Binding is on the way, so that it counts as bound.
	going bool
	// stale: a pod before it is not bound, or one behind it is, so that it may get something else than was predicted.
	stale bool
}

// take puts a pod at the end of its node's line. What it was predicted on top of is stale when something in the line is.
func (t *turns) take(node string, pod types.UID) {
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
	stale := slices.ContainsFunc(l.pods, func(p turn) bool { return p.stale })
	l.pods = append(l.pods, turn{pod: pod, stale: stale})
}

// wait returns when it is the pod's turn, when nobody before it has moved for turnPatience, or when ctx ends. It reports
// whether what was predicted for the pod is stale. A pod that has taken no turn does not wait.
func (t *turns) wait(ctx context.Context, node string, pod types.UID) (stale bool) {
	for {
		moved := t.ahead(node, pod)
		if moved == nil {
			return t.begin(node, pod)
		}
		patience := time.NewTimer(turnPatience)
		select {
		case <-moved:
			patience.Stop()
		case <-patience.C:
			return t.begin(node, pod)
		case <-ctx.Done():
			patience.Stop()
			return false
		}
	}
}

// ahead is closed when a pod leaves the line; nil when none is before this one.
func (t *turns) ahead(node string, pod types.UID) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.byNode[node]; l != nil && l.find(pod) > 0 {
		return l.moved
	}
	return nil
}

// begin is the pod's turn, whoever is before it. Those that it overtakes have a stale prediction, as it has, and so may
// all behind it.
func (t *turns) begin(node string, pod types.UID) (stale bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.byNode[node]
	if l == nil {
		return false
	}
	i := l.find(pod)
	if i < 0 {
		return false
	}
	l.pods[i].going = true
	if slices.ContainsFunc(l.pods[:i], func(p turn) bool { return !p.going }) {
		l.doubt(0)
	}
	return l.pods[i].stale
}

// isStale reports whether what was predicted for a pod is stale before its turn has come.
func (t *turns) isStale(node string, pod types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.byNode[node]
	if l == nil {
		return false
	}
	i := l.find(pod)
	return i >= 0 && l.pods[i].stale
}

// waiting returns the pods of a node whose Bindings are not on the way.
func (t *turns) waiting(node string) []types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.byNode[node]
	if l == nil {
		return nil
	}
	var pods []types.UID
	for _, p := range l.pods {
		if !p.going {
			pods = append(pods, p.pod)
		}
	}
	return pods
}

// leave takes a pod that was bound out of the line; it does nothing for a pod that is not in it.
func (t *turns) leave(node string, pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.byNode[node]; l != nil {
		t.remove(node, l.find(pod))
	}
}

// giveUp takes a pod that will not be bound out of the line. What was predicted on top of it is stale: for all in the
// line when it is not there any more.
func (t *turns) giveUp(node string, pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.byNode[node]; l != nil {
		i := l.find(pod)
		l.doubt(i + 1)
		t.remove(node, i)
	}
}

func (t *turns) remove(node string, i int) {
	if i < 0 {
		return
	}
	l := t.byNode[node]
	l.pods = slices.Delete(l.pods, i, i+1)
	close(l.moved)
	l.moved = make(chan struct{})
	if len(l.pods) == 0 {
		delete(t.byNode, node)
	}
}

// find returns the pod's place, -1 without.
func (l *line) find(pod types.UID) int {
	return slices.IndexFunc(l.pods, func(p turn) bool { return p.pod == pod })
}

// doubt makes all predictions from a place on stale.
func (l *line) doubt(from int) {
	for i := from; i < len(l.pods); i++ {
		l.pods[i].stale = true
	}
}
