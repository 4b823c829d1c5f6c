package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/status"
)

// Target is the one object of a kind that the agent of a node writes. It has the node's name.
type Target struct {
	// Objects is the API of its kind, in one version.
	Objects dynamic.ResourceInterface
	Node    string
	// SetConflict sets the Node's condition that says that another writer keeps the agent from its object. It writes
	// nothing when the Node has it already, and no False where there never was a True.
	SetConflict status.Setter
	Clock       clock.Clock
}

// loop looks at one object in the API after each change on either side, as often as its pace allows. Changed and
// Observe are safe for concurrent use.
type loop struct {
	Target
	kind string
	// look brings the object up to date once; nil means that it does not exist. An error is retried.
	look func(ctx context.Context, object *unstructured.Unstructured) error
	wake chan struct{} // holds one token after Changed

	mu      sync.Mutex                 // guards the fields below; never held across a call to the API
	changed time.Time                  // when the last change was noticed, or is to be; zero after a look
	synced  bool                       // the object, or its absence, has been observed
	object  *unstructured.Unstructured // the last known state; nil if there is none

	pace pace // when the next write may happen; owned by Run
}

func newLoop(t Target, kind string, look func(context.Context, *unstructured.Unstructured) error) *loop {
	return &loop{Target: t, kind: kind, look: look, wake: make(chan struct{}, 1)}
}

// clearConflict clears the condition once no other writer keeps the agent from its object.
func (l *loop) clearConflict(ctx context.Context) error {
	return l.SetConflict(ctx, false, "OnlyWriter", "no other program writes what the agent reports")
}

// Changed requests a comparison: the source may have changed. It returns at once.
func (l *loop) Changed() {
	l.mu.Lock()
	if now := l.Clock.Now(); l.changed.IsZero() || l.changed.After(now) { // else a comparison is due already
		l.changed = now
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Observe takes the object that the API has now, nil when it does not exist. Nothing is written before the first
// Observe. States that are not newer than the own last write are ignored.
func (l *loop) Observe(object *unstructured.Unstructured) {
	l.mu.Lock()
	if l.synced && isKnown(object, l.object) {
		l.mu.Unlock()
		return
	}
	l.synced, l.object = true, object
	l.mu.Unlock()
	l.Changed()
}

// isKnown reports whether a is b or a state before it.
func isKnown(a, b *unstructured.Unstructured) bool {
	if a == nil || b == nil || a.GetUID() != b.GetUID() {
		return false
	}
	va, errA := strconv.ParseUint(a.GetResourceVersion(), 10, 64)
	vb, errB := strconv.ParseUint(b.GetResourceVersion(), 10, 64)
	return errA == nil && errB == nil && va <= vb
}

// Run publishes until ctx ends. It returns nil then.
func (l *loop) Run(ctx context.Context) error {
	for {
		wait, due := l.due()
		if due {
			l.attempt(ctx)
			continue
		}
		var timer <-chan time.Time // nil waits for ever
		if wait >= 0 {
			timer = l.Clock.After(wait)
		}
		select {
		case <-timer:
		case <-l.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// due returns whether to look now, else how long to wait; negative: until something happens.
func (l *loop) due() (wait time.Duration, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed.IsZero() || !l.synced {
		return -1, false
	}
	wait = l.pace.earliest(l.changed).Sub(l.Clock.Now())
	return max(0, wait), wait <= 0
}

// again asks for another look at a time.
func (l *loop) again(at time.Time) {
	l.mu.Lock()
	if l.changed.IsZero() {
		l.changed = at.Add(-coalesce)
	}
	l.mu.Unlock()
}

// attempt brings the object up to date once. Errors are logged here and tried again later.
func (l *loop) attempt(ctx context.Context) {
	l.mu.Lock()
	object := l.object
	l.changed = time.Time{}
	l.mu.Unlock()
	err := l.look(ctx, object)
	if apierrors.IsConflict(err) { // another writer changed the object in between
		if object, err = l.fetch(ctx); err == nil {
			err = l.look(ctx, object)
		}
		if apierrors.IsConflict(err) {
			err = errors.Join(err, l.SetConflict(ctx, true, "WriteConflict", fmt.Sprintf(
				"%s %s changes faster than tenon-agent can write it: %v", l.kind, l.Node, err)))
		}
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	now := l.Clock.Now()
	l.pace.failed(now)
	l.again(now)
	klog.FromContext(ctx).Error(err, "Cannot publish the node's topology, will try again", "kind", l.kind, "node",
		l.Node, "in", l.pace.backoff())
}

// apply writes the agent's fields of an object: server-side apply with one field manager. It takes the fields over from
// every other writer, so the caller removes from next what belongs to one. seen is the object that the caller has
// decided on, nil for none; if the API has another state of it by now, apply fails with a conflict.
func (l *loop) apply(ctx context.Context, next, seen *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if seen != nil {
		next.SetResourceVersion(seen.GetResourceVersion())
	}
	got, err := l.Objects.Apply(ctx, l.Node, next, metav1.ApplyOptions{FieldManager: Manager, Force: seen != nil})
	if err != nil {
		return nil, fmt.Errorf("apply %s %s: %w", l.kind, l.Node, err)
	}
	l.wrote(got)
	return got, nil
}

// wrote records a successful write and the API server's answer to it.
func (l *loop) wrote(got *unstructured.Unstructured) {
	l.pace.wrote(l.Clock.Now())
	l.keep(got)
}

// encode returns an object as the API takes it, without what only the API server sets.
func encode(object any) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", object, err)
	}
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: fields}, nil
}

// fetch reads the object from the API; nil if it does not exist.
func (l *loop) fetch(ctx context.Context) (*unstructured.Unstructured, error) {
	object, err := l.Objects.Get(ctx, l.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", l.kind, l.Node, err)
	}
	l.keep(object)
	return object, nil
}

// keep makes object the last known state, unless a newer one is known.
func (l *loop) keep(object *unstructured.Unstructured) {
	l.mu.Lock()
	if !isKnown(object, l.object) {
		l.object = object
	}
	l.mu.Unlock()
}

// Limits of the writes of one node.
const (
	coalesce   = time.Second
	perMinute  = 12
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// pace decides when the next write may happen. It is plain state: the caller gives the time.
type pace struct {
	writes   []time.Time // of the last minute, ascending
	most     int         // writes in a minute; 0 for perMinute
	failures int         // attempts that failed since the last write
	failedAt time.Time   // when the last of them failed
}

// earliest returns when a change that was noticed at changed may be written.
func (p *pace) earliest(changed time.Time) time.Time {
	at := changed.Add(coalesce)
	most := cmp.Or(p.most, perMinute)
	if n := len(p.writes); n >= most {
		at = later(at, p.writes[n-most].Add(time.Minute))
	}
	if p.failures > 0 {
		at = later(at, p.failedAt.Add(p.backoff()))
	}
	return at
}

// backoff returns the pause after the last failure.
func (p *pace) backoff() time.Duration {
	return min(firstRetry<<min(p.failures-1, 6), lastRetry)
}

func (p *pace) failed(now time.Time) { p.failures, p.failedAt = p.failures+1, now }

func (p *pace) wrote(now time.Time) {
	p.failures = 0
	p.writes = append(p.writes, now)
	for p.writes[0].Before(now.Add(-time.Minute)) {
		p.writes = p.writes[1:]
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
