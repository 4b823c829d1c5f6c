package convert_test

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// TestCleanRemovesWhatWasWrittenForAutoscalers: of the manager alone.
func TestCleanRemovesWhatWasWrittenForAutoscalers(t *testing.T) {
	t.Parallel()
	written := func(manager, key string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationApply,
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + key + `":{}}}}`),
		}
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{annotation.ScaleHelper: "excluded"},
		Annotations: map[string]string{annotation.ScaleDownDisabled: "true", annotation.DoNotDisrupt: "true"},
		ManagedFields: []metav1.ManagedFieldsEntry{
			written(convert.ScalingManager, annotation.DoNotDisrupt), written("admin", annotation.ScaleDownDisabled),
		},
	}}
	convert.WithOwned(n)
	clean, removed := convert.Clean(n, func(string) bool { return false })
	left, want := slices.Collect(maps.Keys(clean.Annotations)), []string{annotation.ScaleDownDisabled}
	if !slices.Equal(left, want) || len(clean.Labels) > 0 ||
		!slices.Equal(removed, []string{"label " + annotation.ScaleHelper, "annotation " + annotation.DoNotDisrupt}) {
		t.Errorf("%q are left, and %q removed", left, removed)
	}
}
