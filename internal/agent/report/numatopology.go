package report

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
)

// liveWriter is how long after its last write another program counts as alive.
const liveWriter = time.Minute

// NumatopologyReporter keeps a node's Numatopology in the API equal to its source. It compares with what the API
// acknowledged: a write that fails is tried again. While another program writes the object's spec it writes nothing.
//
// It replaces the whole spec at the version that it has seen, as Volcano's exporter does, and does not apply fields:
// otherwise entries of removed CPUs, written by an exporter that is gone, would remain.
type NumatopologyReporter struct {
	*loop
	source func() *nodeinfo.Numatopology

	// Owned by Run. acked is the spec that the API answered to the last write, asked what was written. They differ
	// where the definition in the cluster is older and drops fields.
	asked, acked *nodeinfo.NumatopoSpec
}

// NewNumatopology returns a NumatopologyReporter. source returns what is to be published now, without the annotation
// timestamp; nil while it is not known.
func NewNumatopology(t Target, source func() *nodeinfo.Numatopology) *NumatopologyReporter {
	r := &NumatopologyReporter{source: source}
	r.loop = newLoop(t, "Numatopology", r.publish)
	return r
}

func (r *NumatopologyReporter) publish(ctx context.Context, object *unstructured.Unstructured) error {
	want := r.source()
	if want == nil {
		return nil
	}
	if w, found := specWriter(object); found && w.last.Add(liveWriter).After(r.Clock.Now()) {
		r.again(w.last.Add(liveWriter))
		return r.SetConflict(ctx, true, "ForeignWriter", fmt.Sprintf(
			"the spec of Numatopology %s was written by %q at %s: tenon-agent does not write it. Stop that program "+
				"on this node, or take --publish-numatopology off", r.Node, w.name, w.last.UTC().Format(time.RFC3339)))
	}
	if !r.isIn(want, object) {
		if err := r.write(ctx, want, object); err != nil {
			return err
		}
	}
	return r.clearConflict(ctx)
}

// isIn reports whether an object in the API has the content, as far as the API keeps it.
func (r *NumatopologyReporter) isIn(want *nodeinfo.Numatopology, object *unstructured.Unstructured) bool {
	if object == nil {
		return false
	}
	got := &nodeinfo.Numatopology{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, got); err != nil {
		return false
	}
	equal := apiequality.Semantic.DeepEqual
	if r.acked != nil && equal(*r.asked, want.Spec) {
		return equal(*r.acked, got.Spec)
	}
	return equal(want.Spec, got.Spec)
}

// write creates the object, or replaces its spec. What else the object carries stays.
func (r *NumatopologyReporter) write(ctx context.Context, want *nodeinfo.Numatopology,
	object *unstructured.Unstructured,
) error {
	stamped := want.DeepCopy()
	metav1.SetMetaDataAnnotation(&stamped.ObjectMeta, nodeinfo.TimestampKey,
		strconv.FormatInt(r.Clock.Now().Unix(), 10))
	next, err := encode(stamped)
	if err != nil {
		return err
	}
	var got *unstructured.Unstructured
	if object == nil {
		got, err = r.Objects.Create(ctx, next, metav1.CreateOptions{FieldManager: Manager})
	} else {
		got, err = r.Objects.Update(ctx, merged(object, next), metav1.UpdateOptions{FieldManager: Manager})
	}
	if err != nil {
		return fmt.Errorf("write Numatopology %s: %w", r.Node, err)
	}
	answered := &nodeinfo.Numatopology{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, answered); err != nil {
		return fmt.Errorf("decode Numatopology %s: %w", r.Node, err)
	}
	r.wrote(got)
	r.asked, r.acked = &want.Spec, &answered.Spec
	klog.FromContext(ctx).V(2).Info("Published the node's Numatopology", "node", r.Node)
	return nil
}

// merged is an object with the spec, the annotations and the owner of next.
func merged(object, next *unstructured.Unstructured) *unstructured.Unstructured {
	out := object.DeepCopy()
	out.Object["spec"] = next.Object["spec"]
	annotations := map[string]string{}
	maps.Copy(annotations, out.GetAnnotations())
	maps.Copy(annotations, next.GetAnnotations())
	out.SetAnnotations(annotations)
	owners := out.GetOwnerReferences()
	for _, o := range next.GetOwnerReferences() {
		if !slices.ContainsFunc(owners, func(other metav1.OwnerReference) bool { return other.UID == o.UID }) {
			owners = append(owners, o)
		}
	}
	out.SetOwnerReferences(owners)
	return out
}
