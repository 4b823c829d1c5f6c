package report_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
)

// TestMalformedObjectOfAnotherWriterStopsNoReport: the owner of a field decides, not its content.
func TestMalformedObjectOfAnotherWriterStopsNoReport(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		theirs func(*unstructured.Unstructured)
		field  string // that remains theirs
	}{
		"zones of the wrong type": {func(u *unstructured.Unstructured) { u.Object["zones"] = "none" }, "zones"},
		"a zone without a name, with a cost that is not a number": {func(u *unstructured.Unstructured) {
			u.Object["zones"] = []any{map[string]any{"costs": []any{map[string]any{"name": "x", "value": "far"}}}}
		}, "zones"},
		"attributes of the wrong type": {func(u *unstructured.Unstructured) {
			u.Object["attributes"] = map[string]any{"a": "b"}
		}, "attributes"},
		"a report that cannot be read": {func(u *unstructured.Unstructured) {
			u.Object["topologyPolicies"] = []any{"Everything"}
			u.SetAnnotations(map[string]string{"example.com/a": "{"})
		}, "topologyPolicies"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
				t := w.t
				object := w.server.change("exporter", tt.theirs)
				before := object.Object[tt.field]
				w.reporter.Observe(object)
				for range 3 {
					later(time.Minute)
					w.reporter.Changed()
				}
				got, n := w.server.state()
				if c := w.condition(); c != "False" {
					t.Errorf("condition = %q, want none", c)
				}
				if n != 1 || got.GetAnnotations()[annotation.CPUSharedPoolsKey] != "0-3" {
					t.Errorf("%d writes, annotations %v: want ours in one", n, got.GetAnnotations())
				}
				if !cmp.Equal(before, got.Object[tt.field]) {
					t.Errorf("%s = %v, want theirs, %v", tt.field, got.Object[tt.field], before)
				}
			})
		})
	}
}

// TestManagedFieldsThatCannotBeReadOwnNothing.
func TestManagedFieldsThatCannotBeReadOwnNothing(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		object := &unstructured.Unstructured{Object: map[string]any{}}
		object.SetGroupVersionKind(v1alpha2.GroupVersion().WithKind("NodeResourceTopology"))
		object.SetName("n0")
		object.SetManagedFields([]metav1.ManagedFieldsEntry{
			{Manager: "torn", Operation: "Update", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:zones":`)},
			{Manager: "empty", Operation: "Update"},
		})
		w.reporter.Observe(object)
		later(time.Minute)
		if w.pool() != "0-3" || w.condition() != "False" {
			t.Errorf("pool %q, condition %q: want ours and none", w.pool(), w.condition())
		}
	})
}
