package app

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/upstream"
)

// bindingsInFlight bounds the Bindings on their way to the API server. With more, the scheduling cycle, which is
// several times faster than writes while a batch lasts, would pile up goroutines with all that a cycle knows; and the
// API server takes 100 requests on one connection, watches included: beyond, each costs a TLS handshake.
const bindingsInFlight = 80

// bindings counts the Bindings on their way.
type bindings struct {
	count atomic.Int64
	ended chan struct{} // has a token after one has ended; one waiter at most
}

func newBindings() *bindings { return &bindings{ended: make(chan struct{}, 1)} }

func (b *bindings) begin() { b.count.Add(1) }

func (b *bindings) end() {
	b.count.Add(-1)
	select {
	case b.ended <- struct{}{}:
	default:
	}
}

// wait returns when there is room for another Binding, or when ctx ends. Only the scheduling loop may call it.
func (b *bindings) wait(ctx context.Context) {
	for b.count.Load() >= bindingsInFlight {
		select {
		case <-b.ended:
		case <-ctx.Done():
			return
		}
	}
}

// counted is a profile whose Bindings are counted. Pods that wait for a permit or for their volumes are not: others may
// have to be scheduled before they go on.
type counted struct {
	*upstream.Profile
	bindings *bindings
}

func (c *counted) RunBindPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	c.bindings.begin()
	defer c.bindings.end()
	return c.Profile.RunBindPlugins(ctx, state, pod, node)
}
