package watched

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/testkit"
)

// TestAnOwnerThatCannotBeReadSaysWhy: with the field and what it must be.
func TestAnOwnerThatCannotBeReadSaysWhy(t *testing.T) {
	t.Parallel()
	const amount = "the partition of the update must be a whole number or 0% to 100%, is "
	for _, test := range []struct{ object, fault string }{
		{"spec: {}", "spec.replicas must be a whole number, is absent"},
		{`spec: {replicas: "3"}`, "spec.replicas must be a whole number, is a string"},
		{"spec: {replicas: -1}", "spec.replicas must be a whole number, is a number -1"},
		{"spec: {replicas: 1.5}", "spec.replicas must be a whole number, is a number 1.5"},
		{"spec: 7", "spec must be an object, is a number"},
		{"{spec: {replicas: 3}, status: {replicas: x}}", "status.replicas must be a whole number, is a string"},
		{
			"spec: {replicas: 3, updateStrategy: {paused: 1}}",
			"spec.updateStrategy.paused must be true or false, is a number",
		},
		{
			"spec: {replicas: 3, updateStrategy: {type: 1}}",
			"spec.updateStrategy.type must be a text, is a number",
		},
		{"spec: {replicas: 3, updateStrategy: {partition: 101%}}", amount + "101%"},
		{`spec: {replicas: 3, updateStrategy: {rollingUpdate: {partition: "3"}}}`, amount + "3"},
		{
			"spec: {replicas: 3, scaleStrategy: {podsToDelete: a}}",
			"spec.scaleStrategy.podsToDelete must be a list, is a string",
		},
		{
			"spec: {replicas: 3, reserveOrdinals: [5-3]}",
			"spec.reserveOrdinals must be ordinals or ranges of them, is 5-3",
		},
	} {
		var object map[string]any
		const cloneSet = "{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, metadata: {namespace: a, name: b}}"
		testkit.Check(t, yaml.Unmarshal([]byte(cloneSet), &object))
		testkit.Check(t, yaml.Unmarshal([]byte(test.object), &object))
		want := "CloneSet.apps.kruise.io a/b: " + test.fault
		if _, o := readOwner(&unstructured.Unstructured{Object: object}); o.state.Fault != want {
			t.Errorf("%s\ngot  %s\nwant %s", test.object, o.state.Fault, want)
		}
	}
}
