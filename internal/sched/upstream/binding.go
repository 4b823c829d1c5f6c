package upstream

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
)

const (
	// BindingsInFlight bounds the Bindings on their way to the API server, of pods that start alone. With more, the
	// scheduling cycle, which is several times faster than writes while a batch lasts, would pile up goroutines with
	// all that a cycle knows; and the API server takes 100 requests on one connection, watches included: beyond, each
	// costs a TLS handshake.
	BindingsInFlight = 80
	// mostTogether is how many members of gangs may wait to be bound while other pods are scheduled.
	mostTogether = 1000
)

// Bindings counts the Bindings on their way, and lets those of gangs wait for others.
type Bindings struct {
	alone, together atomic.Int64
	ended           chan struct{} // has a token after one has ended; one waiter at most

	mu    sync.Mutex // guards the rest
	pace  gang.Pace
	goes  map[*gang.Binding]chan struct{} // those that wait; closed when it is their turn
	again *time.Timer
}

// NewBindings returns a counter of none.
func NewBindings() *Bindings {
	return &Bindings{ended: make(chan struct{}, 1), goes: map[*gang.Binding]chan struct{}{}}
}

// Busy reports whether a pod that starts alone is being bound, or was a moment ago: another may be on its way.
func (b *Bindings) Busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pace.Others(time.Now())
}

// member is the key of the gang.Binding of a context.
type member struct{}

// begin counts a Binding, of a member where key, its gang's, is not empty. It returns its context and what is to be
// called when it has ended.
func (b *Bindings) begin(ctx context.Context, key string) (of context.Context, end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	count, leave := &b.alone, func() { b.pace.AloneEnds(time.Now()) }
	if key == "" {
		b.pace.AloneBegins()
	} else {
		m := b.pace.Join(key, time.Now())
		count, leave = &b.together, func() { b.pace.Leave(m) }
		ctx = context.WithValue(ctx, member{}, m)
	}
	count.Add(1)
	return ctx, func() {
		b.mu.Lock()
		leave()
		b.next()
		b.mu.Unlock()
		count.Add(-1)
		select {
		case b.ended <- struct{}{}:
		default:
		}
	}
}

// next lets members go whose turn it is. The caller holds mu.
func (b *Bindings) next() {
	for {
		m, again := b.pace.Next(time.Now())
		switch {
		case m != nil:
			close(b.goes[m])
			delete(b.goes, m)
			continue
		case again.IsZero():
		case b.again == nil:
			b.again = time.AfterFunc(time.Until(again), func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.next()
			})
		default:
			b.again.Reset(time.Until(again))
		}
		return
	}
}

// turn returns when it is a member's turn, or when ctx ends.
func (b *Bindings) turn(ctx context.Context, m *gang.Binding) error {
	goes := make(chan struct{})
	b.mu.Lock()
	b.pace.Wait(m)
	b.goes[m] = goes
	b.next()
	b.mu.Unlock()
	select {
	case <-goes:
		return nil
	case <-ctx.Done():
		b.gone(m)
		return ctx.Err()
	}
}

// gone is called when a member's request has ended, or is not made.
func (b *Bindings) gone(m *gang.Binding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.goes, m)
	b.pace.End(m, time.Now())
	b.next()
}

// Limit lets a number of requests through at a time that bind a pod.
func (b *Bindings) Limit(next http.RoundTripper) http.RoundTripper {
	return limited{next, b, make(chan struct{}, BindingsInFlight)}
}

type limited struct {
	http.RoundTripper
	bindings *Bindings
	alone    chan struct{}
}

func (l limited) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodPost || !strings.HasSuffix(request.URL.Path, "/binding") {
		return l.RoundTripper.RoundTrip(request)
	}
	ctx := request.Context()
	if m, ok := ctx.Value(member{}).(*gang.Binding); ok {
		if err := l.bindings.turn(ctx, m); err != nil {
			return nil, err
		}
		defer l.bindings.gone(m)
		return l.RoundTripper.RoundTrip(request)
	}
	select {
	case l.alone <- struct{}{}:
		defer func() { <-l.alone }()
		return l.RoundTripper.RoundTrip(request)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Wait returns when there is room for another Binding, or when ctx ends. Only the scheduling loop may call it.
func (b *Bindings) Wait(ctx context.Context) {
	for b.alone.Load() >= BindingsInFlight || b.together.Load() >= mostTogether {
		select {
		case <-b.ended:
		case <-ctx.Done():
			return
		}
	}
}

// Pauses between the attempts to bind a member of a gang.
const (
	firstBindPause  = 100 * time.Millisecond
	lastBindPause   = 1600 * time.Millisecond
	bindPauseFactor = 4
)

// RunBindPlugins counts the Binding. Pods that wait for a permit or for their volumes are not counted: others may have
// to be scheduled before they go on. A member of a gang keeps what is reserved for it during a few attempts on its
// node: its siblings are bound already. Where the Binding is refused after all, that is remembered.
func (p *Profile) RunBindPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	of := ""
	if p.Together != nil {
		of = p.Together.GangOf(pod)
	}
	if p.Bindings != nil {
		var end func()
		ctx, end = p.Bindings.begin(ctx, of)
		defer end()
	}
	status := p.bind(ctx, state, pod, node, of != "")
	if p.Rejections != nil {
		p.Rejections.note(pod.UID, node, status)
	}
	return status
}

// bind binds a pod, a member of a gang with several attempts.
func (p *Profile) bind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string, member bool,
) *fwk.Status {
	status := p.Framework.RunBindPlugins(ctx, state, pod, node)
	if !member {
		return status
	}
	for pause := firstBindPause; !status.IsSuccess() && pause <= lastBindPause; pause *= bindPauseFactor {
		is, err := p.ClientSet().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && is.UID != pod.UID:
			return status
		case err == nil && is.Spec.NodeName == node:
			return nil
		case err == nil && is.Spec.NodeName != "":
			return status
		}
		select {
		case <-ctx.Done():
			return status
		case <-time.After(pause):
		}
		status = p.Framework.RunBindPlugins(ctx, state, pod, node)
	}
	return status
}
