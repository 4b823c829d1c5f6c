package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/core/comparison"
)

// TestAShadowReportKeepsTheLastPodsAndCountsAll also after a kubelet has rejected them.
func TestAShadowReportKeepsTheLastPodsAndCountsAll(t *testing.T) {
	t.Parallel()
	r := NewShadowReport(time.Unix(0, 0))
	for i := range 5 {
		node := ShadowNode{Node: "a", NUMA: 2}
		r.Add(&ShadowPod{UID: fmt.Sprint(i), Outcome: comparison.Same, Bound: node, Tenon: &node}, 2)
	}
	r.Reject("4", "OutOfcpu")
	r.Reject("4", "OutOfcpu")
	r.Reject("0", "OutOfcpu")
	if len(r.Pods) != 2 || r.Pods[0].UID != "3" || r.Pods[1].Rejected != "OutOfcpu" {
		t.Errorf("pods %+v, want the last two", r.Pods)
	}
	s := r.Summary
	if r.Compared != 5 || s.Outcomes[comparison.Same] != 5 || s.Both != 5 || s.Bound.NUMA != 10 ||
		s.Rejected["OutOfcpu"] != 1 {
		t.Errorf("%d pods, %+v", r.Compared, s)
	}
}
