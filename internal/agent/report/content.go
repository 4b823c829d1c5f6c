package report

import (
	gojson "encoding/json"
	"fmt"
	"hash/fnv"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
)

// Sizes of all annotations together; the API server has a limit of its own.
const (
	warnBytes   = 128 << 10
	refuseBytes = 240 << 10
)

type content struct {
	nrt  *v1alpha2.NodeResourceTopology
	hash string
}

// newContent cuts an object down to a claim and hashes it.
func newContent(nrt *v1alpha2.NodeResourceTopology, c claim, boot string) (content, error) {
	nrt = nrt.DeepCopy()
	if c.scope == annotationsOnly {
		//nolint:staticcheck // deprecated, and what readers of v1alpha1 look at
		nrt.TopologyPolicies, nrt.Attributes = nil, nil
		if c.foreignZones {
			nrt.Zones = nil
		}
	}
	if c.foreignLabel {
		delete(nrt.Labels, annotation.ManagedBy)
	}
	text, err := gojson.Marshal(nrt)
	if err != nil {
		return content{}, fmt.Errorf("encode topology: %w", err)
	}
	h := fnv.New64a()
	h.Write(text)
	h.Write([]byte(boot))
	return content{nrt: nrt, hash: fmt.Sprintf("%016x", h.Sum64())}, nil
}

// bytes counts the annotations together with those of an object that are not ours: the API server counts them all.
func (c content) bytes(object *unstructured.Unstructured) int {
	n := 0
	for key, value := range c.nrt.Annotations {
		n += len(key) + len(value)
	}
	if object == nil {
		return n
	}
	for key, value := range object.GetAnnotations() {
		if _, ours := c.nrt.Annotations[key]; !ours && !isOurs(key) {
			n += len(key) + len(value)
		}
	}
	return n
}

// isOurs reports whether an annotation is one that the agent alone writes: an old one goes with the next write.
func isOurs(key string) bool {
	return key == annotation.ReportKey || key == annotation.NUMAStateKey || key == annotation.TakeoverKey ||
		slices.Contains(reported, key)
}

// withoutPods returns an object without what each container holds: the part that grows with the pods.
func withoutPods(nrt *v1alpha2.NodeResourceTopology) *v1alpha2.NodeResourceTopology {
	state, _, err := annotation.ParseNUMAState(nrt.Annotations[annotation.NUMAStateKey])
	if err != nil || len(state.Pods) == 0 {
		return nrt
	}
	state.Pods = nil
	nrt = nrt.DeepCopy()
	nrt.Annotations[annotation.NUMAStateKey] = state.String()
	return nrt
}

// isIn reports whether an object in the API has this content. What others own of the object is not looked at: it may be
// of any shape.
func (c content) isIn(object *unstructured.Unstructured) bool {
	if object == nil || reportOf(object).Hash != c.hash {
		return false
	}
	annotations, labels := object.GetAnnotations(), object.GetLabels()
	for key, value := range c.nrt.Annotations {
		if annotations[key] != value {
			return false
		}
	}
	for key, value := range c.nrt.Labels {
		if labels[key] != value {
			return false
		}
	}
	fields := map[string]any{} // those lists that are in the content
	//nolint:staticcheck // deprecated, and what readers of v1alpha1 look at
	for name, ours := range map[string]bool{
		"zones": c.nrt.Zones != nil, "attributes": c.nrt.Attributes != nil,
		"topologyPolicies": c.nrt.TopologyPolicies != nil,
	} {
		if value, ok := object.Object[name]; ok && ours {
			fields[name] = value
		}
	}
	got := &v1alpha2.NodeResourceTopology{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, got) != nil {
		return false
	}
	equal := apiequality.Semantic.DeepEqual
	//nolint:staticcheck // deprecated, and what readers of v1alpha1 look at
	return equal(c.nrt.Zones, got.Zones) && equal(c.nrt.TopologyPolicies, got.TopologyPolicies) &&
		(equal(c.nrt.Attributes, got.Attributes) || object.GroupVersionKind().Version == "v1alpha1") // which drops them
}

func (c content) object(gv schema.GroupVersion, number annotation.Report) (*unstructured.Unstructured, error) {
	nrt := c.nrt.DeepCopy()
	nrt.Annotations[annotation.ReportKey] = number.String()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(nrt)
	if err != nil {
		return nil, fmt.Errorf("encode topology: %w", err)
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(gv.WithKind("NodeResourceTopology"))
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	if nrt.Zones == nil {
		unstructured.RemoveNestedField(u.Object, "zones")
	}
	if gv.Version == "v1alpha1" {
		unstructured.RemoveNestedField(u.Object, "attributes")
	}
	return u, nil
}

// reportOf reads the generation of an object; the zero Report when it has none.
func reportOf(object *unstructured.Unstructured) annotation.Report {
	if object == nil {
		return annotation.Report{}
	}
	r, _, err := annotation.ParseReport(object.GetAnnotations()[annotation.ReportKey])
	if err != nil {
		return annotation.Report{}
	}
	return r
}
