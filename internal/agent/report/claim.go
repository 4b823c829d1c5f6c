package report

import (
	gojson "encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenon-project/tenon/api/annotation"
)

// Manager is the field manager of the agent's writes.
const Manager = "tenon-agent"

// scope is how much of the object is ours.
type scope uint8

const (
	everything scope = iota
	// annotationsOnly: annotations, label and owner reference.
	annotationsOnly
	nothing
)

// claim is what the managedFields of an object leave to us.
type claim struct {
	scope scope
	// foreignZones: the zones are somebody else's. foreignLabel: so is the label, with another value.
	foreignZones, foreignLabel bool
	// owner is the manager that keeps us from everything.
	owner string
	since metav1.Time
}

// reported are the annotations that tell another agent like us: whoever writes them describes the node as a whole.
var reported = []string{
	annotation.CPUTopology, annotation.CPUSharedPoolsKey, annotation.BECPUSharedPoolsKey, annotation.PodCPUAllocsKey,
	annotation.KubeletCPUManagerPolicy,
}

// claimOf reads the managedFields of an object; nil is no object. Edits by hand (kubectl) are no writer: they are put
// right.
func claimOf(object *unstructured.Unstructured) claim {
	c := claim{}
	if object == nil {
		return c
	}
	for _, f := range object.GetManagedFields() {
		if f.Manager == Manager || isByHand(f.Manager) || f.Subresource != "" || f.FieldsV1 == nil {
			continue
		}
		owned := read(f.FieldsV1.GetRawBytes())
		c.foreignZones = c.foreignZones || owned.Zones != nil
		c.foreignLabel = c.foreignLabel || owned.label() && object.GetLabels()[annotation.ManagedBy] != annotation.ManagedByKoordinator
		s := owned.scope()
		if s <= c.scope {
			continue
		}
		c.scope, c.owner, c.since = s, f.Manager, metav1.Time{}
		if f.Time != nil {
			c.since = *f.Time
		}
	}
	return c
}

// ownedFields are those of our fields that a manager owns.
type ownedFields struct {
	Metadata struct {
		Annotations map[string]gojson.RawMessage `json:"f:annotations"`
		Labels      map[string]gojson.RawMessage `json:"f:labels"`
	} `json:"f:metadata"`
	Zones      gojson.RawMessage `json:"f:zones"`
	Attributes gojson.RawMessage `json:"f:attributes"`
	Policies   gojson.RawMessage `json:"f:topologyPolicies"`
	Spec       gojson.RawMessage `json:"f:spec"` // of a Numatopology
}

// read decodes a set of fields. Text that cannot be read owns nothing.
func read(fieldsV1 []byte) ownedFields {
	var owned ownedFields
	if err := gojson.Unmarshal(fieldsV1, &owned); err != nil {
		return ownedFields{}
	}
	return owned
}

func (o ownedFields) label() bool {
	_, ok := o.Metadata.Labels["f:"+annotation.ManagedBy]
	return ok
}

// scope is what a manager leaves to us.
func (o ownedFields) scope() scope {
	ours := func(key string) bool { _, ok := o.Metadata.Annotations["f:"+key]; return ok }
	switch {
	case slices.ContainsFunc(reported, ours):
		return nothing
	case o.Zones != nil || o.Attributes != nil || o.Policies != nil:
		return annotationsOnly
	}
	return everything
}

// isByHand reports whether a field manager is a person at a terminal.
func isByHand(manager string) bool { return strings.HasPrefix(manager, "kubectl") }
