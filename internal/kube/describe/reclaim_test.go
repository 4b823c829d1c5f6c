package describe_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/sloconfig"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestWhatTakesWhatBatchPodsMayNotHave has a node of 100 CPUs and 100 GiB that uses 37 CPUs, 30 of them for a service
// that started before the report, and that shows 20 CPUs to batch pods; one requests 12.
func TestWhatTakesWhatBatchPodsMayNotHave(t *testing.T) {
	t.Parallel()
	now := time.Unix(100_000, 0)
	service := object.Pod("service", object.On("n"), object.Container("c", "i"), object.Requests("cpu", "50"))
	service.Status.StartTime = &metav1.Time{Time: now.Add(-time.Hour)}
	batch := object.Pod("batch", object.On("n"), object.Label(annotation.QoSClass, "BE"), object.Container("c", "i"),
		object.Requests("kubernetes.io/batch-cpu", "12000"))
	ended := batch.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	for name, c := range map[string]struct {
		asks   amount.Pair
		age    time.Duration
		enable bool
		want   []string
	}{
		"enough is left": {asks: amount.Pair{8000, 1}, enable: true},
		"less CPU is left than the pod asks for": {asks: amount.Pair{9000, 1}, enable: true, want: []string{
			"node n grants batch pods 20 of 100 CPUs, growing to 23, and 8 of it is left: other pods take 30, the " +
				"system uses 7 (0 is reserved), and 40 is kept free",
		}},
		"less memory": {asks: amount.Pair{0, 50 << 30}, enable: true, want: []string{
			"node n grants batch pods 10Gi of 100Gi memory, growing to 55Gi, and 10Gi of it is left: other pods " +
				"take 4Gi, the system uses 6Gi (0 is reserved), and 35Gi is kept free",
		}},
		"the report is old": {asks: amount.Pair{9000, 0}, age: time.Hour, enable: true, want: []string{
			"node n grants batch pods nothing: its NodeMetric has no report of the last 15 minutes",
		}},
		"batch amounts are off": {asks: amount.Pair{9000, 0}, want: []string{
			"node n grants batch pods nothing: colocation-config of slo-controller-config is not enabled for it",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			use := func(list ...string) slo.ResourceMap { return slo.ResourceMap{Resources: object.List(list...)} }
			node := object.Node("n", nil, "cpu", "100", "memory", "100Gi")
			node.Status.Capacity = object.List("cpu", "100", "memory", "100Gi")
			node.Status.Allocatable["kubernetes.io/batch-cpu"] = object.List("x", "20000")["x"]
			node.Status.Allocatable["kubernetes.io/batch-memory"] = object.List("x", "10Gi")["x"]
			metric := &slo.NodeMetric{Status: slo.NodeMetricStatus{
				UpdateTime: &metav1.Time{Time: now.Add(-c.age)},
				NodeMetric: &slo.NodeMetricInfo{NodeUsage: use("cpu", "37", "memory", "10Gi")},
				PodsMetric: []*slo.PodMetricInfo{{
					Namespace: service.Namespace, Name: "service", PodUsage: use("cpu", "30", "memory", "4Gi"),
				}},
			}}
			strategy := sloconfig.Default()
			strategy.Enable = &c.enable
			got := describe.Reclaim(node, metric, &strategy, []*corev1.Pod{service, batch, ended}, c.asks, now)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
