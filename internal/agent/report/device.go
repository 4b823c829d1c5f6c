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

// DeviceReporter keeps a node's Device in the API equal to its source: labels, annotations and spec, of which it
// applies its own fields alone. While another program owns the spec it writes nothing.
type DeviceReporter struct {
	*loop
	source func(published *devicev1alpha1.Device) *devicev1alpha1.Device
}

// NewDevice returns a DeviceReporter. source returns what is to be published now, nil for no object; published is what
// the API has, nil without.
func NewDevice(t Target, source func(published *devicev1alpha1.Device) *devicev1alpha1.Device) *DeviceReporter {
	r := &DeviceReporter{source: source}
	r.loop = newLoop(t, "Device", r.publish)
	r.stuckReason = "WriteConflict"
	r.stuckText = "Device %s changes faster than tenon-agent can write it: %v"
	return r
}

func (r *DeviceReporter) publish(ctx context.Context, object *unstructured.Unstructured) error {
	var published *devicev1alpha1.Device
	if object != nil {
		published = &devicev1alpha1.Device{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, published); err != nil {
			published = nil // what is in the way is replaced
		}
	}
	if writer, _ := otherWriter(object); writer != "" {
		return r.SetConflict(ctx, true, "ForeignWriter", fmt.Sprintf("the spec of Device %s is written by %q: "+
			"tenon-agent does not write it. Stop that program on this node, and delete the object", r.Node, writer))
	}
	want := r.source(published)
	if want != nil && object != nil {
		keepEdited(want, object)
	}
	var err error
	switch {
	case want == nil && owns(object):
		err = r.Objects.Delete(ctx, r.Node, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: ptr.To(object.GetUID())},
		})
		if apierrors.IsNotFound(err) {
			err = nil
		}
	case want != nil && !isPublished(want, published):
		err = r.apply(ctx, want)
	}
	if err != nil {
		return err
	}
	return r.calm(ctx)
}

// keepEdited takes the partitions of GPUs, and how they count, out of want where another writer has set them: the agent
// renews only what it derived itself.
func keepEdited(want *devicev1alpha1.Device, object *unstructured.Unstructured) {
	for _, f := range object.GetManagedFields() {
		if f.Manager == Manager || f.FieldsV1 == nil {
			continue
		}
		theirs := read(f.FieldsV1.GetRawBytes()).Metadata
		if _, set := theirs.Annotations["f:"+annotation.GPUPartitionsKey]; set {
			delete(want.Annotations, annotation.GPUPartitionsKey)
		}
		if _, set := theirs.Labels["f:"+annotation.GPUPartitionPolicyLabel]; set {
			delete(want.Labels, annotation.GPUPartitionPolicyLabel)
		}
	}
}

// owns reports whether the agent wrote the spec of an object.
func owns(object *unstructured.Unstructured) bool {
	if object == nil {
		return false
	}
	for _, f := range object.GetManagedFields() {
		if f.Manager == Manager && f.FieldsV1 != nil && read(f.FieldsV1.GetRawBytes()).Spec != nil {
			return true
		}
	}
	return false
}

// isPublished reports whether an object in the API has what is wanted. Others may add labels and annotations.
func isPublished(want, got *devicev1alpha1.Device) bool {
	if got == nil || !apiequality.Semantic.DeepEqual(want.Spec, got.Spec) {
		return false
	}
	has := func(want, got map[string]string) bool {
		for key, value := range want {
			if got[key] != value {
				return false
			}
		}
		return true
	}
	return has(want.Labels, got.Labels) && has(want.Annotations, got.Annotations)
}

func (r *DeviceReporter) apply(ctx context.Context, want *devicev1alpha1.Device) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return fmt.Errorf("encode Device: %w", err)
	}
	next := &unstructured.Unstructured{Object: fields}
	unstructured.RemoveNestedField(next.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(next.Object, "status")
	got, err := r.Objects.Apply(ctx, r.Node, next, metav1.ApplyOptions{FieldManager: Manager, Force: true})
	if err != nil {
		return fmt.Errorf("write Device %s: %w", r.Node, err)
	}
	r.pace.wrote(r.Clock.Now())
	r.keep(got)
	klog.FromContext(ctx).V(2).Info("Published the node's devices", "node", r.Node, "devices", len(want.Spec.Devices))
	return nil
}
