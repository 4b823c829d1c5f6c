package report

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/view"
)

// Options are what a Reporter needs.
type Options struct {
	Target
	// Version is the one that Objects serves: v1alpha2 wherever it exists.
	Version schema.GroupVersion
	// Boot is the kernel's boot id.
	Boot string
	// Last is the report that Keep kept last; the zero Report when there is none.
	Last annotation.Report
	// Keep keeps a report over restarts before it is written, so that no generation is used twice.
	Keep func(annotation.Report) error
	// Source returns what is to be published now; nil while it is not known.
	Source func() *v1alpha2.NodeResourceTopology
	// Emit sends an Event. It must not block.
	Emit func(reason event.Reason, note string, args ...any)
}

// Reporter keeps a node's NodeResourceTopology in the API equal to its source. Changed, Observe and Age are safe for
// concurrent use.
type Reporter struct {
	*loop
	o Options

	ackedAt atomic.Pointer[time.Time] // nil before the first acknowledgement

	// Owned by Run.
	last      annotation.Report       // the newest report that was chosen, here or in the API
	warned    map[event.Reason]string // by Event: the hash of the last content for which it was sent
	published bool                    // this Reporter has written the object at least once
}

// New returns a Reporter.
func New(o Options) *Reporter {
	r := &Reporter{o: o, last: o.Last, warned: map[event.Reason]string{}}
	r.loop = newLoop(o.Target, "NodeResourceTopology", r.publish)
	return r
}

// Age returns how long ago the object was last known to equal the source; false while it never was.
func (r *Reporter) Age() (time.Duration, bool) {
	if at := r.ackedAt.Load(); at != nil {
		return r.Clock.Since(*at), true
	}
	return 0, false
}

// silence is how long after its last change another writer of the agent's annotations counts as live.
const silence = 10 * time.Minute

// publish compares the object with the source, and writes it if no other program keeps the agent from it.
func (r *Reporter) publish(ctx context.Context, object *unstructured.Unstructured) error {
	nrt := r.o.Source()
	if nrt == nil {
		return nil
	}
	nrt = nrt.DeepCopy()
	for _, w := range writersOf(object) {
		switch {
		case !w.isProgram():
		case !w.fields.annotates(nrt):
			w.fields.removeFrom(nrt, object.GetLabels())
		case w.last.Add(silence).After(r.Clock.Now()):
			r.again(w.last.Add(silence))
			return r.SetConflict(ctx, true, "ForeignWriter", fmt.Sprintf(
				"the annotations of NodeResourceTopology %s are written by %q (last at %s): tenon-agent has stopped "+
					"writing, until that program has been silent for %v. Stop it on this node; delete the object to "+
					"not wait", r.Node, w.name, w.last.UTC().Format(time.RFC3339), silence))
		}
	}
	want, err := r.fit(ctx, nrt, object)
	if err != nil {
		return err
	}
	if want.isIn(object) {
		r.acknowledge(object)
	} else if err := r.write(ctx, want, object); err != nil {
		return err
	}
	return r.clearConflict(ctx)
}

// fit returns the content of nrt, without what each container holds if the annotations would be too large with it. An
// object that is still too large is an error.
func (r *Reporter) fit(ctx context.Context, nrt *v1alpha2.NodeResourceTopology, object *unstructured.Unstructured,
) (content, error) {
	want, err := newContent(nrt, r.o.Boot)
	if err != nil {
		return content{}, err
	}
	size := want.bytes(object)
	if size > refuseBytes {
		if want, err = newContent(withoutPods(nrt), r.o.Boot); err != nil {
			return content{}, err
		}
		if n := want.bytes(object); n < size {
			r.warn(event.TopologyCut, want.hash,
				"annotations of %d bytes, at most %d are published: what each container holds is left out", size,
				refuseBytes)
			size = n
		}
	}
	switch {
	case size > refuseBytes:
		r.warn(event.TopologyTooLarge, want.hash, "annotations of %d bytes, at most %d are published", size,
			refuseBytes)
		return content{}, fmt.Errorf("annotations are too large to be published: %d bytes, at most %d", size,
			refuseBytes)
	case size > warnBytes:
		if _, warned := r.warned[event.TopologyLarge]; !warned {
			klog.FromContext(ctx).Info("The node's topology is large", "node", r.Node, "bytes", size, "limit",
				refuseBytes)
			r.warn(event.TopologyLarge, want.hash, "annotations of %d bytes; more than %d are refused", size,
				refuseBytes)
		}
	}
	return want, nil
}

// warn sends a Warning once for one content.
func (r *Reporter) warn(reason event.Reason, hash, note string, args ...any) {
	if r.warned[reason] == hash {
		return
	}
	r.warned[reason] = hash
	r.o.Emit(reason, note, args...)
}

// acknowledge records that the object in the API is up to date.
func (r *Reporter) acknowledge(object *unstructured.Unstructured) {
	now := r.Clock.Now()
	r.ackedAt.Store(&now)
	r.last = newer(r.last, reportOf(object))
}

// newer returns the report of the higher generation; b of two equal ones.
func newer(a, b annotation.Report) annotation.Report {
	if a.Gen > b.Gen {
		return a
	}
	return b
}

// number chooses the generation of a content: one more than the newest that is known here or in the API, unless that
// one is of the same content.
func (r *Reporter) number(ctx context.Context, want content, object *unstructured.Unstructured) annotation.Report {
	chosen := newer(r.last, reportOf(object))
	if chosen.Gen < 1 || chosen.Hash != want.hash {
		chosen = annotation.Report{Gen: max(0, chosen.Gen) + 1, Hash: want.hash, Boot: r.o.Boot}
	}
	changed := chosen != r.last
	r.last = chosen
	if changed {
		if err := r.o.Keep(chosen); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot keep the generation of the node's topology over a restart", "node",
				r.Node)
		}
	}
	return chosen
}

func (r *Reporter) write(ctx context.Context, want content, object *unstructured.Unstructured) error {
	number := r.number(ctx, want, object)
	next, err := want.object(r.o.Version, number)
	if err != nil {
		return err
	}
	got, err := r.apply(ctx, next, object)
	if err != nil {
		return err
	}
	r.acknowledge(got)
	if !r.published {
		r.published = true
		r.o.Emit(event.TopologyPublished, "%s, generation %d", view.Count(len(want.nrt.Zones), "NUMA node"),
			number.Gen)
	}
	klog.FromContext(ctx).V(2).Info("Published the node's topology", "node", r.Node, "gen", number.Gen, "hash",
		want.hash)
	return nil
}
