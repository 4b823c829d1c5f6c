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
)

const (
	// BindingsInFlight bounds the Bindings on their way to the API server, of pods that start alone. With more, the
	// scheduling cycle, which is several times faster than writes while a batch lasts, would pile up goroutines with
	// all that a cycle knows; and the API server takes 100 requests on one connection, watches included: beyond, each
	// costs a TLS handshake.
	BindingsInFlight = 80
	// togetherInFlight bounds those of members of gangs, which all come at once. They keep the API server busy and
	// leave others a short way.
	togetherInFlight = 64
	// besideInFlight bounds them while others are bound: what these wait for grows with what the API server works on
	// at a time.
	besideInFlight = 1
	// besideRest is how long they leave the API server to others then, for each Binding, in the times that it took.
	besideRest = 3
	// patience is how long a member waits for that behind the first one of its gang, longest how long in all.
	// lateInFlight bounds those that have waited for so long: the members of a gang are not bound far apart.
	patience     = 5 * time.Second
	longest      = 30 * time.Second
	lateInFlight = 4
	// othersRest is how long after a Binding of a pod that starts alone another may be on its way.
	othersRest = 100 * time.Millisecond
	// mostTogether is how many members may wait for that while other pods are scheduled.
	mostTogether = 1000
)

// Bindings counts the Bindings on their way.
type Bindings struct {
	alone, together atomic.Int64
	last            atomic.Int64  // when one of alone has ended, in nanoseconds since the epoch
	ended           chan struct{} // has a token after one has ended; one waiter at most

	mu    sync.Mutex // guards the rest
	gangs map[string]*gangBindings
}

// gangBindings are those of a gang's members that are on their way.
type gangBindings struct {
	count int
	begin sync.Once     // when the first one goes to the API server
	late  chan struct{} // is closed when the others have waited for long behind it
}

// NewBindings returns a counter of none.
func NewBindings() *Bindings {
	return &Bindings{ended: make(chan struct{}, 1), gangs: map[string]*gangBindings{}}
}

// Busy reports whether a pod that starts alone is being bound.
func (b *Bindings) Busy() bool { return b.alone.Load() > 0 }

func (b *Bindings) end(count *atomic.Int64) {
	if count == &b.alone {
		b.last.Store(time.Now().UnixNano())
	}
	count.Add(-1)
	select {
	case b.ended <- struct{}{}:
	default:
	}
}

// Limit lets a number of requests through at a time that bind a pod.
func (b *Bindings) Limit(next http.RoundTripper) http.RoundTripper {
	return limited{
		next, b, make(chan struct{}, BindingsInFlight), make(chan struct{}, togetherInFlight),
		make(chan struct{}, besideInFlight), make(chan struct{}, lateInFlight),
	}
}

type limited struct {
	http.RoundTripper
	bindings                      *Bindings
	alone, together, beside, late chan struct{}
}

// bindsTogether is the key of a context's gangBindings.
type bindsTogether struct{}

// of returns ctx for the Binding of a member of a gang, and what is to be called when it has ended.
func (b *Bindings) of(ctx context.Context, gang string) (member context.Context, ended func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.gangs[gang]
	if g == nil {
		g = &gangBindings{late: make(chan struct{})}
		b.gangs[gang] = g
	}
	g.count++
	return context.WithValue(ctx, bindsTogether{}, g), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if g.count--; g.count == 0 {
			delete(b.gangs, gang)
		}
	}
}

func (l limited) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodPost || !strings.HasSuffix(request.URL.Path, "/binding") {
		return l.RoundTripper.RoundTrip(request)
	}
	ctx, slots := request.Context(), l.alone
	gang, _ := ctx.Value(bindsTogether{}).(*gangBindings)
	var late <-chan struct{}
	var last <-chan time.Time
	if gang != nil {
		if slots = l.together; l.bindings.others() {
			slots, late, last = l.beside, gang.late, time.After(longest)
		}
	}
	for waits := true; waits; { // who is woken in between stands behind all others again
		select {
		case slots <- struct{}{}:
			waits = false
		case <-late:
			slots, late, last = l.late, nil, nil
		case <-last:
			slots, late, last = l.late, nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if gang != nil {
		gang.begin.Do(func() { time.AfterFunc(patience, func() { close(gang.late) }) })
	}
	began := time.Now()
	defer func() {
		if slots == l.beside && l.bindings.others() {
			time.AfterFunc(besideRest*time.Since(began), func() { <-slots })
		} else {
			<-slots
		}
	}()
	return l.RoundTripper.RoundTrip(request)
}

// others reports whether pods that start alone are bound, or were a moment ago.
func (b *Bindings) others() bool {
	return b.Busy() || time.Since(time.Unix(0, b.last.Load())) < othersRest
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
	gang := ""
	if p.Together != nil {
		gang = p.Together.GangOf(pod)
	}
	if b := p.Bindings; b != nil {
		count := &b.alone
		if gang != "" {
			count = &b.together
			var ended func()
			ctx, ended = b.of(ctx, gang)
			defer ended()
		}
		count.Add(1)
		defer b.end(count)
	}
	status := p.bind(ctx, state, pod, node, gang != "")
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
