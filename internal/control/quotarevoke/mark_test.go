package quotarevoke

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestNoPodIsEvictedBeforeItsTime: neither before its plan is due, nor before its own mark is, nor without a mark.
func TestNoPodIsEvictedBeforeItsTime(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	pod := object.Pod("p", object.UID("p"))
	units := [][]*corev1.Pod{{pod}}
	due := map[types.UID]*mark{"p": {pod: pod, due: now}}
	for name, c := range map[string]struct {
		plan   plan
		marked map[types.UID]*mark
		dryRun bool
	}{
		"nothing to evict":      {plan{due: now}, due, false},
		"the plan is not due":   {plan{due: now.Add(time.Second), units: units}, due, false},
		"the pod is not marked": {plan{due: now, units: units}, nil, false},
		"the mark is not due":   {plan{due: now, units: units}, map[types.UID]*mark{"p": {due: now.Add(1)}}, false},
		"a dry run":             {plan{due: now, units: units}, due, true},
	} {
		controller := New(Options{DryRun: c.dryRun})
		controller.marked = c.marked
		if controller.revoke(t.Context(), now, c.plan) {
			t.Errorf("%s: a pod is evicted", name)
		}
	}
}
