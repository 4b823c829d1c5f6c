package upstream

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// BindingsInFlight bounds the Bindings on their way to the API server. With more, the scheduling cycle, which is
// several times faster than writes while a batch lasts, would pile up goroutines with all that a cycle knows; and the
// API server takes 100 requests on one connection, watches included: beyond, each costs a TLS handshake.
const BindingsInFlight = 80

// Bindings counts the Bindings on their way.
type Bindings struct {
	count atomic.Int64
	ended chan struct{} // has a token after one has ended; one waiter at most
}

// NewBindings returns a counter of none.
func NewBindings() *Bindings { return &Bindings{ended: make(chan struct{}, 1)} }

func (b *Bindings) end() {
	b.count.Add(-1)
	select {
	case b.ended <- struct{}{}:
	default:
	}
}

// Limit lets as many requests through at a time that bind a pod: the members of a gang may all be bound at once, beyond
// what Wait holds back.
func (b *Bindings) Limit(next http.RoundTripper) http.RoundTripper {
	return limited{next, make(chan struct{}, BindingsInFlight)}
}

type limited struct {
	http.RoundTripper
	slots chan struct{}
}

func (l limited) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodPost || !strings.HasSuffix(request.URL.Path, "/binding") {
		return l.RoundTripper.RoundTrip(request)
	}
	select {
	case l.slots <- struct{}{}:
	case <-request.Context().Done():
		return nil, request.Context().Err()
	}
	defer func() { <-l.slots }()
	return l.RoundTripper.RoundTrip(request)
}

// Wait returns when there is room for another Binding, or when ctx ends. Only the scheduling loop may call it.
func (b *Bindings) Wait(ctx context.Context) {
	for b.count.Load() >= BindingsInFlight {
		select {
		case <-b.ended:
		case <-ctx.Done():
			return
		}
	}
}

// RunBindPlugins counts the Binding. Pods that wait for a permit or for their volumes are not counted: others may have
// to be scheduled before they go on.
func (p *Profile) RunBindPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if p.Bindings != nil {
		p.Bindings.count.Add(1)
		defer p.Bindings.end()
	}
	return p.Framework.RunBindPlugins(ctx, state, pod, node)
}
