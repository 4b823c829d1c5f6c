package view_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

// FuzzCondition holds that any message of any scheduler explains a pod, and that ours come back as they were.
func FuzzCondition(f *testing.F) {
	f.Add(why.Message([]why.Finding{{Reason: why.Reason{Code: why.InsufficientCPU, Asked: 2, Free: 1}, Object: "n"}},
		3))
	f.Add("0/3 nodes are available: 3 Insufficient cpu.")
	f.Add(`SMTAlignment: x {"code":1,"nodes":"many"}`)
	f.Fuzz(func(t *testing.T, message string) {
		p := pending()
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Message: message,
		}}
		if got := view.FromObject(describe.Pod(p)); got.RootCause == nil {
			t.Fatalf("no root cause for %q", message)
		}
	})
}
