package report

import (
	gojson "encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// owner is the manager that keeps us from everything.
	owner string
	since metav1.Time
}

// reported are the annotations that tell another agent like us: whoever writes them describes the node as a whole.
var reported = []string{
	annotation.CPUTopology, annotation.CPUSharedPoolsKey, annotation.BECPUSharedPoolsKey, annotation.PodCPUAllocsKey,
	annotation.KubeletCPUManagerPolicy,
}

// claimOf reads the managedFields of an object. Edits by hand (kubectl) are no writer: they are put right.
func claimOf(fields []metav1.ManagedFieldsEntry) claim {
	c := claim{}
	for _, f := range fields {
		if f.Manager == Manager || isByHand(f.Manager) || f.Subresource != "" || f.FieldsV1 == nil {
			continue
		}
		s := scopeLeft(f.FieldsV1.GetRawBytes())
		if s <= c.scope {
			continue
		}
		c = claim{scope: s, owner: f.Manager}
		if f.Time != nil {
			c.since = *f.Time
		}
	}
	return c
}

// scopeLeft reads which of our fields a foreign manager owns. Text that cannot be read owns nothing.
func scopeLeft(fieldsV1 []byte) scope {
	var owned struct {
		Metadata struct {
			Annotations map[string]gojson.RawMessage `json:"f:annotations"`
		} `json:"f:metadata"`
		Zones      gojson.RawMessage `json:"f:zones"`
		Attributes gojson.RawMessage `json:"f:attributes"`
		Policies   gojson.RawMessage `json:"f:topologyPolicies"`
	}
	if err := gojson.Unmarshal(fieldsV1, &owned); err != nil {
		return everything
	}
	ours := func(key string) bool { _, ok := owned.Metadata.Annotations["f:"+key]; return ok }
	switch {
	case slices.ContainsFunc(reported, ours):
		return nothing
	case owned.Zones != nil || owned.Attributes != nil || owned.Policies != nil:
		return annotationsOnly
	}
	return everything
}

// isByHand reports whether a field manager is a person at a terminal.
func isByHand(manager string) bool { return strings.HasPrefix(manager, "kubectl") }
