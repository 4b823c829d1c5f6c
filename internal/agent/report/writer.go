package report

import (
	gojson "encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
)

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
	Spec       gojson.RawMessage `json:"f:spec"` // of a Device or a Numatopology
}

// writersOf returns the field managers of an object; none for nil. An entry that cannot be read owns nothing.
func writersOf(object *unstructured.Unstructured) []writer {
	if object == nil {
		return nil
	}
	var writers []writer
	for _, f := range object.GetManagedFields() {
		w := writer{name: f.Manager, last: ptr.Deref(f.Time, metav1.Time{}).Time}
		if f.Subresource == "" && f.FieldsV1 != nil && gojson.Unmarshal(f.FieldsV1.GetRawBytes(), &w.fields) == nil {
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
	for _, w := range writersOf(object) {
		if w.isProgram() && w.fields.Spec != nil && (!found || w.last.After(last.last)) {
			last, found = w, true
		}
	}
	return last, found
}

// ownsSpec reports whether the agent wrote the spec of an object.
func ownsSpec(object *unstructured.Unstructured) bool {
	return slices.ContainsFunc(writersOf(object), func(w writer) bool { return w.isAgent() && w.fields.Spec != nil })
}
