package report

import (
	gojson "encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
)

// Sizes of all annotations together; the API server has a limit of its own.
const (
	warnBytes   = 128 << 10
	refuseBytes = 240 << 10
)

// content is what the agent applies to the object, all but the annotation report. It is not changed any more.
type content struct {
	nrt *v1alpha2.NodeResourceTopology
	// hash identifies nrt and the boot of the kernel in which it was computed.
	hash string
}

// newContent hashes an object, which it keeps.
func newContent(nrt *v1alpha2.NodeResourceTopology, boot string) (content, error) {
	text, err := gojson.Marshal(nrt)
	if err != nil {
		return content{}, fmt.Errorf("encode topology: %w", err)
	}
	h := fnv.New64a()
	h.Write(text)
	h.Write([]byte(boot))
	return content{nrt: nrt, hash: fmt.Sprintf("%016x", h.Sum64())}, nil
}

// bytes returns the size of the annotations that an object in the API would have with this content: the API server
// counts those of other writers too.
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

// isOurs reports whether an annotation is one that the agent alone writes: the next write removes an old one.
func isOurs(key string) bool {
	switch key {
	case annotation.ReportKey, annotation.NUMAStateKey, annotation.TakeoverKey, annotation.CPUTopology,
		annotation.CPUSharedPoolsKey, annotation.BECPUSharedPoolsKey, annotation.PodCPUAllocsKey,
		annotation.KubeletCPUManagerPolicy, annotation.IsolatedCPUsKey:
		return true
	}
	return false
}

// withoutPods returns an object without what each container holds: the part that grows with the pods.
func withoutPods(nrt *v1alpha2.NodeResourceTopology) *v1alpha2.NodeResourceTopology {
	state, _, err := annotation.ParseNUMAState(nrt.Annotations[annotation.NUMAStateKey])
	if err != nil || len(state.Pods) == 0 {
		return nrt
	}
	state.Pods = nil
	nrt = nrt.DeepCopy()
	nrt.Annotations[annotation.NUMAStateKey] = annotation.Encode(state)
	return nrt
}

// isIn reports whether an object in the API has this content. Fields of the object that are not in the content belong
// to other writers and may be of any shape: they are not read.
func (c content) isIn(object *unstructured.Unstructured) bool {
	if object == nil || reportOf(object).Hash != c.hash {
		return false
	}
	if !hasMetadata(object, c.nrt) {
		return false
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

// hasMetadata reports whether an object has the labels and annotations of another one. It may have more.
func hasMetadata(object, want metav1.Object) bool {
	has := func(got, want map[string]string) bool {
		for key, value := range want {
			if got[key] != value {
				return false
			}
		}
		return true
	}
	return has(object.GetLabels(), want.GetLabels()) && has(object.GetAnnotations(), want.GetAnnotations())
}

// object returns the object to apply in a version, with the annotation report.
func (c content) object(gv schema.GroupVersion, number annotation.Report) (*unstructured.Unstructured, error) {
	nrt := c.nrt.DeepCopy()
	nrt.Annotations[annotation.ReportKey] = annotation.Encode(number)
	u, err := encode(nrt)
	if err != nil {
		return nil, err
	}
	u.SetGroupVersionKind(gv.WithKind("NodeResourceTopology"))
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

// Manager is the field manager of the agent's writes.
const Manager = "tenon-agent"

// writer is a field manager of an object, with those of its fields that the agent may write too.
type writer struct {
	name string
	// last is when the writer changed the object last; zero if the API server does not say.
	last   time.Time
	fields fieldSet
}

// fieldSet is the part of an entry of managedFields that names fields which the agent may write. A nil message means
// that the entry does not contain the field.
type fieldSet struct {
	Metadata struct {
		Annotations map[string]gojson.RawMessage `json:"f:annotations"`
		Labels      map[string]gojson.RawMessage `json:"f:labels"`
	} `json:"f:metadata"`
	Zones      gojson.RawMessage `json:"f:zones"`
	Attributes gojson.RawMessage `json:"f:attributes"`
	Policies   gojson.RawMessage `json:"f:topologyPolicies"`
	Spec       gojson.RawMessage `json:"f:spec"`   // of a Device or a Numatopology
	Status     gojson.RawMessage `json:"f:status"` // of a NodeMetric
}

// writersOf returns the field managers of an object, those of its status too; none for nil. An entry that cannot be
// read owns nothing.
func writersOf(object *unstructured.Unstructured) []writer {
	if object == nil {
		return nil
	}
	var writers []writer
	for _, f := range object.GetManagedFields() {
		w := writer{name: f.Manager, last: ptr.Deref(f.Time, metav1.Time{}).Time}
		if f.FieldsV1 != nil && gojson.Unmarshal(f.FieldsV1.GetRawBytes(), &w.fields) == nil {
			writers = append(writers, w)
		}
	}
	return writers
}

// isAgent reports whether a writer is the agent.
func (w *writer) isAgent() bool { return w.name == Manager }

// isProgram reports whether a writer is a program other than the agent. A person at a terminal is not: the agent
// reverts such edits of its fields.
func (w *writer) isProgram() bool { return !w.isAgent() && !strings.HasPrefix(w.name, "kubectl") }

// annotates reports whether one of the annotations of an object is among the fields.
func (f *fieldSet) annotates(object metav1.Object) bool {
	for key := range object.GetAnnotations() {
		if _, owned := f.Metadata.Annotations["f:"+key]; owned {
			return true
		}
	}
	return false
}

// removeFrom removes from a NodeResourceTopology what another program owns: its zones, and the label if the program has
// set another value, of which labels are those in the API. The attributes and policies of one program describe its own
// zones, so a program that owns any of the three lists keeps the agent from both.
func (f *fieldSet) removeFrom(nrt *v1alpha2.NodeResourceTopology, labels map[string]string) {
	if f.Zones != nil || f.Attributes != nil || f.Policies != nil {
		//nolint:staticcheck // deprecated, and what readers of v1alpha1 look at
		nrt.TopologyPolicies, nrt.Attributes = nil, nil
	}
	if f.Zones != nil {
		nrt.Zones = nil
	}
	_, owned := f.Metadata.Labels["f:"+annotation.ManagedBy]
	if owned && labels[annotation.ManagedBy] != annotation.ManagedByKoordinator {
		delete(nrt.Labels, annotation.ManagedBy)
	}
}

// specWriter returns the program that owns a part of the spec of an object and wrote last, if there is one.
func specWriter(object *unstructured.Unstructured) (last writer, found bool) {
	return lastProgram(object, func(f *fieldSet) bool { return f.Spec != nil })
}

// statusWriter is specWriter for the status.
func statusWriter(object *unstructured.Unstructured) (last writer, found bool) {
	return lastProgram(object, func(f *fieldSet) bool { return f.Status != nil })
}

// lastProgram returns the program other than the agent that wrote last, of those whose fields are selected.
func lastProgram(object *unstructured.Unstructured, selected func(*fieldSet) bool) (last writer, found bool) {
	for _, w := range writersOf(object) {
		if w.isProgram() && selected(&w.fields) && (!found || w.last.After(last.last)) {
			last, found = w, true
		}
	}
	return last, found
}

// ownsSpec reports whether the agent wrote the spec of an object.
func ownsSpec(object *unstructured.Unstructured) bool {
	return slices.ContainsFunc(writersOf(object), func(w writer) bool { return w.isAgent() && w.fields.Spec != nil })
}
