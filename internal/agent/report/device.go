package report

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
)

// DeviceReporter keeps a node's Device in the API equal to its source: labels, annotations and spec. While another
// program owns the spec it writes nothing.
type DeviceReporter struct {
	*loop
	source func(published *devicev1alpha1.Device) *devicev1alpha1.Device
}

// NewDevice returns a DeviceReporter. source returns what is to be published now, nil for no object; published is what
// the API has, nil without.
func NewDevice(t Target, source func(published *devicev1alpha1.Device) *devicev1alpha1.Device) *DeviceReporter {
	r := &DeviceReporter{source: source}
	r.loop = newLoop(t, "Device", r.publish)
	return r
}

func (r *DeviceReporter) publish(ctx context.Context, object *unstructured.Unstructured) error {
	var published *devicev1alpha1.Device
	if object != nil {
		published = &devicev1alpha1.Device{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, published); err != nil {
			published = nil // an object that cannot be read is replaced
		}
	}
	if w, found := specWriter(object); found {
		return r.SetConflict(ctx, true, "ForeignWriter", fmt.Sprintf("the spec of Device %s is written by %q: "+
			"tenon-agent does not write it. Stop that program on this node, and delete the object", r.Node, w.name))
	}
	want := r.source(published)
	if want != nil {
		removeEdited(want, object)
	}
	var err error
	switch {
	case want == nil && ownsSpec(object):
		err = r.Objects.Delete(ctx, r.Node, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: ptr.To(object.GetUID())},
		})
		if apierrors.IsNotFound(err) {
			err = nil
		}
	case want != nil && !isPublished(want, published):
		err = r.write(ctx, want, object)
	}
	if err != nil {
		return err
	}
	return r.clearConflict(ctx)
}

// removeEdited removes the partitions of GPUs, and the label that says how they count, from want if another writer, a
// person too, has set them in the API: the agent renews only what it derived itself.
func removeEdited(want *devicev1alpha1.Device, object *unstructured.Unstructured) {
	for _, w := range writersOf(object) {
		if w.isAgent() {
			continue
		}
		if _, set := w.fields.Metadata.Annotations["f:"+annotation.GPUPartitionsKey]; set {
			delete(want.Annotations, annotation.GPUPartitionsKey)
		}
		if _, set := w.fields.Metadata.Labels["f:"+annotation.GPUPartitionPolicyLabel]; set {
			delete(want.Labels, annotation.GPUPartitionPolicyLabel)
		}
	}
}

// isPublished reports whether an object in the API has what is wanted. Other writers may add labels and annotations.
func isPublished(want, got *devicev1alpha1.Device) bool {
	return got != nil && apiequality.Semantic.DeepEqual(want.Spec, got.Spec) && hasMetadata(got, want)
}

func (r *DeviceReporter) write(ctx context.Context, want *devicev1alpha1.Device,
	object *unstructured.Unstructured,
) error {
	next, err := encode(want)
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(next.Object, "status")
	if _, err := r.apply(ctx, next, object); err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Published the node's devices", "node", r.Node, "devices", len(want.Spec.Devices))
	return nil
}
