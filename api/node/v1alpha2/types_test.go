package v1alpha2_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/node/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/testkit"
)

// seed is the shape of the example in seed 000.
const seed = `
apiVersion: topology.node.k8s.io/v1alpha1
kind: NodeResourceTopology
metadata:
  name: node1
  labels: {app.kubernetes.io/managed-by: Koordinator}
  annotations: {node.koordinator.sh/cpu-topology: '{"detail":[]}'}
topologyPolicies: [SingleNUMANodePodLevel]
zones:
- name: node-0
  type: Node
  parent: socket-0
  costs: [{name: node-0, value: 10}]
  attributes: [{name: a, value: b}]
  resources:
  - {name: cpu, capacity: 20, allocatable: "15", available: 10}
`

func TestBothVersionsReadTheSameObject(t *testing.T) {
	t.Parallel()
	var old v1alpha1.NodeResourceTopology
	testkit.Check(t, yaml.UnmarshalStrict([]byte(seed), &old))
	text, err := json.Marshal(old)
	testkit.Check(t, err)
	var now v1alpha2.NodeResourceTopology
	testkit.Check(t, json.Unmarshal(text, &now))
	again, err := json.Marshal(now)
	testkit.Check(t, err)
	if diff := cmp.Diff(string(text), string(again)); diff != "" {
		t.Errorf("v1alpha1 changed when read as v1alpha2 (-before +after):\n%s", diff)
	}
	if got := now.Zones[0].Resources[0].Capacity.String(); got != "20" {
		t.Errorf("capacity = %s, want 20", got)
	}
}

func TestRequiredListsAreAlwaysWritten(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		object runtime.Object
		want   []string
	}{
		"v1alpha1": {&v1alpha1.NodeResourceTopology{}, []string{"metadata", "topologyPolicies", "zones"}},
		"v1alpha2": {&v1alpha2.NodeResourceTopology{}, []string{"metadata", "zones"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := json.Marshal(tt.object)
			testkit.Check(t, err)
			var fields map[string]json.RawMessage
			testkit.Check(t, json.Unmarshal(text, &fields))
			for _, f := range tt.want {
				if _, ok := fields[f]; !ok {
					t.Errorf("%s is not in %s", f, text)
				}
			}
			if len(fields) != len(tt.want) {
				t.Errorf("fields of %s, want only %v", text, tt.want)
			}
		})
	}
}

func TestSchemeKnowsBothVersions(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, v1alpha2.AddToScheme} {
		testkit.Check(t, add(scheme))
	}
	object, kind, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode([]byte(seed), nil, nil)
	testkit.Check(t, err)
	if _, ok := object.(*v1alpha1.NodeResourceTopology); !ok || kind.GroupVersion() != v1alpha1.GroupVersion() {
		t.Errorf("decoded %T, %s", object, kind)
	}
	if got := v1alpha2.Resource().String(); got != "topology.node.k8s.io/v1alpha2, Resource=noderesourcetopologies" {
		t.Errorf("Resource() = %s", got)
	}
}
