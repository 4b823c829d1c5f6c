package report

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
)

// Conflict is the Node condition that says that another writer keeps the agent from its object.
const Conflict = "tenon.sh/TopologyWriterConflict"

// Event is something that a Node's owner should hear of.
type Event struct {
	Warning bool
	Reason  string
	Note    string
}

// Objects is the API of NodeResourceTopology in one version: a dynamic.ResourceInterface.
type Objects interface {
	Get(ctx context.Context, name string, options metav1.GetOptions, subresources ...string) (*unstructured.Unstructured, error)
	Apply(ctx context.Context, name string, object *unstructured.Unstructured, options metav1.ApplyOptions, subresources ...string) (*unstructured.Unstructured, error)
}

// Options are what a Reporter needs.
type Options struct {
	Objects Objects
	// Version is the one that Objects serves: v1alpha2 wherever it exists.
	Version schema.GroupVersion
	Node    string
	// Boot is the kernel's boot id.
	Boot string
	// Source returns what is to be published now; nil while it is not known.
	Source func() *v1alpha2.NodeResourceTopology
	// SetCondition sets a condition of the Node. It writes nothing when the Node has it already, and no False where there
	// never was a True.
	SetCondition func(ctx context.Context, kind string, holds bool, reason, message string) error
	// Emit tells an Event; nil drops it. It must not block.
	Emit func(Event)
	// Clock is the real one when nil.
	Clock clock.Clock
}

// Reporter keeps a node's object in the API equal to its source. Changed, Observe and Age are safe for concurrent use.
type Reporter struct {
	o    Options
	wake chan struct{}

	mu       sync.Mutex // guards the fields below; never held across a call to the API
	changed  time.Time  // zero: nothing to look at
	synced   bool       // the object, or its absence, has been observed
	object   *unstructured.Unstructured
	ackedAt  time.Time
	writes   int
	gen      int64
	lastHash string // of the last acknowledged write

	// Owned by Run.
	pace       pace
	warnedSize bool
	tooLarge   string // hash of the last content that was refused
	published  bool
}

// New returns a Reporter.
func New(o Options) *Reporter {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Emit == nil {
		o.Emit = func(Event) {}
	}
	return &Reporter{o: o, wake: make(chan struct{}, 1)}
}

// Changed tells that the source may have something new. It returns at once.
func (r *Reporter) Changed() {
	r.mu.Lock()
	if r.changed.IsZero() {
		r.changed = r.o.Clock.Now()
	}
	r.mu.Unlock()
	r.signal()
}

func (r *Reporter) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Observe tells what the API has now, nil for no object. Nothing is written before the first Observe. States that are not
// newer than the Reporter's own last write are ignored.
func (r *Reporter) Observe(object *unstructured.Unstructured) {
	r.mu.Lock()
	if r.synced && isKnown(object, r.object) {
		r.mu.Unlock()
		return
	}
	r.synced, r.object = true, object
	r.mu.Unlock()
	r.Changed()
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

// Age returns how long ago the object was last known to equal the source; false while it never was.
func (r *Reporter) Age() (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ackedAt.IsZero() {
		return 0, false
	}
	return r.o.Clock.Since(r.ackedAt), true
}

// Writes counts the writes so far.
func (r *Reporter) Writes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes
}

// Run publishes until ctx ends. It returns nil then.
func (r *Reporter) Run(ctx context.Context) error {
	for {
		wait, due := r.due()
		if due {
			r.attempt(ctx)
			continue
		}
		if wait < 0 {
			select {
			case <-r.wake:
			case <-ctx.Done():
				return nil
			}
			continue
		}
		timer := r.o.Clock.NewTimer(wait)
		select {
		case <-timer.C():
		case <-r.wake:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// due returns whether to look now, else how long to wait; negative: until something happens.
func (r *Reporter) due() (wait time.Duration, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed.IsZero() || !r.synced {
		return -1, false
	}
	wait = r.pace.earliest(r.changed).Sub(r.o.Clock.Now())
	return max(0, wait), wait <= 0
}

// again asks for another look at a time.
func (r *Reporter) again(at time.Time) {
	r.mu.Lock()
	if r.changed.IsZero() {
		r.changed = at.Add(-coalesce)
	}
	r.mu.Unlock()
}

// attempt brings the object up to date once. Errors are logged here and tried again later.
func (r *Reporter) attempt(ctx context.Context) {
	r.mu.Lock()
	object := r.object
	r.changed = time.Time{}
	r.mu.Unlock()
	err := r.publish(ctx, object)
	if apierrors.IsConflict(err) { // somebody wrote in between, or owns what we thought was ours
		if object, err = r.fetch(ctx); err == nil {
			err = r.publish(ctx, object)
		}
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	now := r.o.Clock.Now()
	r.pace.failed(now)
	r.again(now)
	klog.FromContext(ctx).Error(err, "Cannot publish the node's topology, will try again", "node", r.o.Node, "in", r.pace.backoff())
}

func (r *Reporter) fetch(ctx context.Context) (*unstructured.Unstructured, error) {
	object, err := r.o.Objects.Get(ctx, r.o.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read NodeResourceTopology %s: %w", r.o.Node, err)
	}
	r.keep(object)
	return object, nil
}

func (r *Reporter) keep(object *unstructured.Unstructured) {
	r.mu.Lock()
	if !isKnown(object, r.object) {
		r.object = object
	}
	r.mu.Unlock()
}

// publish applies the source over an object.
func (r *Reporter) publish(ctx context.Context, object *unstructured.Unstructured) error {
	nrt := r.o.Source()
	if nrt == nil {
		return nil
	}
	var c claim
	if object != nil {
		c = claimOf(object.GetManagedFields())
	}
	if c.scope == nothing {
		return r.yield(ctx, c)
	}
	want, err := newContent(nrt, c.scope, r.o.Boot)
	if err != nil {
		return err
	}
	if want.isIn(object) {
		r.acknowledge(want, object)
		return r.calm(ctx)
	}
	if err := r.checkSize(ctx, want); err != nil {
		return err
	}
	restore := r.isRestore(want)
	now := r.o.Clock.Now()
	if at := r.pace.nextRestore(now); restore && at.After(now) {
		r.again(at)
		return nil
	}
	if err := r.apply(ctx, want, object); err != nil {
		return err
	}
	if restore && r.pace.restored(now) {
		return r.o.SetCondition(ctx, Conflict, true, "ContentVanishes", fmt.Sprintf(
			"the content of NodeResourceTopology %s was taken away %d times within %s: another program removes or replaces it",
			r.o.Node, disputeCount, disputeWindow))
	}
	return r.calm(ctx)
}

// calm clears the condition once the cause is gone.
func (r *Reporter) calm(ctx context.Context) error {
	if r.pace.disputed(r.o.Clock.Now()) {
		r.again(r.o.Clock.Now().Add(disputeWindow))
		return nil
	}
	return r.o.SetCondition(ctx, Conflict, false, "OnlyWriter", "no other program writes what the agent reports")
}

// yield leaves the object to another live writer.
func (r *Reporter) yield(ctx context.Context, c claim) error {
	return r.o.SetCondition(ctx, Conflict, true, "ForeignWriter", fmt.Sprintf(
		"the annotations of NodeResourceTopology %s are written by %q (last at %s): tenon-agent has stopped writing. Stop that program on this node and delete the object",
		r.o.Node, c.owner, c.since.UTC().Format(time.RFC3339)))
}

func (r *Reporter) checkSize(ctx context.Context, want content) error {
	n := want.bytes()
	if n > refuseBytes {
		if r.tooLarge != want.hash {
			r.tooLarge = want.hash
			r.o.Emit(Event{Warning: true, Reason: "TopologyTooLarge", Note: fmt.Sprintf("annotations of %d bytes, at most %d are published", n, refuseBytes)})
		}
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, n, refuseBytes)
	}
	if n > warnBytes && !r.warnedSize {
		r.warnedSize = true
		r.o.Emit(Event{Warning: true, Reason: "TopologyLarge", Note: fmt.Sprintf("annotations of %d bytes; more than %d are refused", n, refuseBytes)})
		klog.FromContext(ctx).Info("The node's topology is large", "node", r.o.Node, "bytes", n, "limit", refuseBytes)
	}
	return nil
}

// isRestore reports whether the API lost content that it had acknowledged.
func (r *Reporter) isRestore(want content) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastHash == want.hash
}

func (r *Reporter) acknowledge(want content, object *unstructured.Unstructured) {
	r.mu.Lock()
	r.lastHash, r.ackedAt = want.hash, r.o.Clock.Now()
	r.gen = max(r.gen, reportOf(object).Gen)
	r.mu.Unlock()
}

// apply writes. It does not force: a conflict means that the claim was wrong. The claim is made anew then, and what is
// still ours after that, in spite of the conflict, was edited by hand and is taken back.
func (r *Reporter) apply(ctx context.Context, want content, object *unstructured.Unstructured) error {
	r.mu.Lock()
	gen := max(r.gen, reportOf(object).Gen) + 1
	r.mu.Unlock()
	u, err := want.object(r.o.Version, gen)
	if err != nil {
		return err
	}
	force := object != nil && r.edited(object)
	got, err := r.o.Objects.Apply(ctx, r.o.Node, u, metav1.ApplyOptions{FieldManager: Manager, Force: force})
	if err != nil {
		return fmt.Errorf("apply NodeResourceTopology %s: %w", r.o.Node, err)
	}
	now := r.o.Clock.Now()
	r.pace.wrote(now)
	r.keep(got)
	r.mu.Lock()
	r.gen, r.writes = gen, r.writes+1
	r.mu.Unlock()
	r.acknowledge(want, got)
	if !r.published {
		r.published = true
		r.o.Emit(Event{Reason: "TopologyPublished", Note: fmt.Sprintf("%d NUMA nodes, generation %d", len(want.nrt.Zones), gen)})
	}
	klog.FromContext(ctx).V(2).Info("Published the node's topology", "node", r.o.Node, "gen", gen, "hash", want.hash)
	return nil
}

// edited reports whether somebody changed our fields by hand: kubectl owns a part of the object.
func (r *Reporter) edited(object *unstructured.Unstructured) bool {
	for _, f := range object.GetManagedFields() {
		if isByHand(f.Manager) {
			return true
		}
	}
	return false
}
