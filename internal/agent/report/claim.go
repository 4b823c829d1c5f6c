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
	// foreignZones: another manager owns the zones. foreignLabel: so is the label, with another value.
	foreignZones, foreignLabel bool
	// owner is the manager that keeps us from everything, since its last change.
	owner string
	since metav1.Time
	// outlasted: another manager owns what is ours and has been silent for so long that it is taken back.
	outlasted bool
}

// silence is how long after its last change another writer of our annotations counts as live.
const silence = 10 * time.Minute

// reported are the annotations by which another agent of this kind is detected: their writer describes the whole node.
var reported = []string{
	annotation.CPUTopology, annotation.CPUSharedPoolsKey, annotation.BECPUSharedPoolsKey, annotation.PodCPUAllocsKey,
	annotation.KubeletCPUManagerPolicy,
}

// claimOf reads the managedFields of an object; nil means that it does not exist. Edits by hand (kubectl) do not count
// as a writer and are reverted. Neither does a program that wrote our annotations once and has been silent since.
func claimOf(object *unstructured.Unstructured, now time.Time) claim {
	c := claim{}
	if object == nil {
		return c
	}
	for _, f := range object.GetManagedFields() {
		if f.Manager == Manager || isByHand(f.Manager) || f.Subresource != "" || f.FieldsV1 == nil {
			continue
		}
		owned := read(f.FieldsV1.GetRawBytes())
		s := owned.scope()
		if s == nothing && f.Time != nil && now.Sub(f.Time.Time) >= silence {
			c.outlasted = true
			continue
		}
		c.foreignZones = c.foreignZones || owned.Zones != nil
		_, label := owned.Metadata.Labels["f:"+annotation.ManagedBy]
		c.foreignLabel = c.foreignLabel || label &&
			object.GetLabels()[annotation.ManagedBy] != annotation.ManagedByKoordinator
		if s > c.scope {
			c.scope, c.owner, c.since = s, f.Manager, ptr.Deref(f.Time, metav1.Time{})
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
