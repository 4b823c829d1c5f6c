package whatif

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestUnitsThatRunForOtherTimesAreOfOneKind: a forecast tries a kind once after each end.
func TestUnitsThatRunForOtherTimesAreOfOneKind(t *testing.T) {
	t.Parallel()
	kind := func(change ...object.PodOption) string {
		u := &waitingUnit{pods: []*corev1.Pod{object.Pod("p", change...)}}
		return u.kind()
	}
	hour := object.Annotation(annotation.ExpectedRuntime, "1h")
	day := object.Annotation(annotation.ExpectedRuntime, "24h")
	if kind(hour) != kind(day) || kind(hour) != kind() {
		t.Error("how long a pod runs makes it of another kind")
	}
	if kind(hour) == kind(object.Annotation("example.com/other", "1h")) {
		t.Error("another annotation does not make a pod of another kind")
	}
}
