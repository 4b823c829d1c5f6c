package convert

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/health"
)

// ailing is a node that is cordoned and not ready, with a taint of its kind.
func ailing() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "rack-7", UID: "u", Labels: map[string]string{
			corev1.LabelHostname: "rack-7", "pool": "batch",
		}},
		Spec: corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{
			{Key: "pool", Value: "batch", Effect: corev1.TaintEffectNoSchedule},
			{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
			{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
		}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown},
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue},
			{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse},
		}},
	}
}

func TestANodeLikeAnotherOneHasNoneOfItsFaults(t *testing.T) {
	t.Parallel()
	like := ailing()
	got := NodeLike(like, "rack-7-new")
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "rack-7-new", UID: "rack-7-new", Labels: map[string]string{
			corev1.LabelHostname: "rack-7-new", "pool": "batch",
		}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "pool", Value: "batch", Effect: corev1.TaintEffectNoSchedule},
		}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("new node (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(ailing(), like); diff != "" {
		t.Errorf("the other node changed (-want +got):\n%s", diff)
	}
	like.Labels = nil
	if got := NodeLike(like, "n").Labels; got != nil {
		t.Errorf("a node like one without a host name has labels %v, want none", got)
	}
}

func TestFactsOfANodesHealth(t *testing.T) {
	t.Parallel()
	if got := NodeHealth(ailing()); got.Closed != health.NotReady ||
		got.Text() != "NotReady, cordoned, DiskPressure, pool=batch:NoSchedule" {
		t.Errorf("the node is closed by %q with %q", got.Closed, got.Text())
	}
	at := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	for name, c := range map[string]struct {
		seconds *int64
		period  time.Duration
	}{
		"no interval": {nil, time.Minute},
		"an interval": {ptr.To[int64](10), 10 * time.Second},
	} {
		m := &slo.NodeMetric{Status: slo.NodeMetricStatus{UpdateTime: &at}}
		m.Spec.CollectPolicy = &slo.NodeMetricCollectPolicy{ReportIntervalSeconds: c.seconds}
		if got := HealthFacts(ailing(), m); got.Period != c.period || !got.Reported.Equal(at.Time) {
			t.Errorf("%s: reported at %v every %v, want %v every %v", name, got.Reported, got.Period, at, c.period)
		}
	}
	if got := HealthFacts(ailing(), &slo.NodeMetric{}); !got.Reported.IsZero() {
		t.Errorf("a NodeMetric without a report was reported at %v", got.Reported)
	}
}
