package convert_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/config/sloconfig"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/colocation"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestApplicationsOfTheHostCountByTheirClass has a node of 100 CPUs that uses 50 of them, 20 of these by an
// application.
func TestApplicationsOfTheHostCountByTheirClass(t *testing.T) {
	t.Parallel()
	node := object.Node("n", nil, "cpu", "100", "memory", "100Gi")
	node.Status.Capacity = node.Status.Allocatable
	for name, c := range map[string]struct {
		application slo.HostApplicationMetricInfo
		want        int64 // of 60 CPUs, as 40 are the margin
	}{
		"an application without class counts as the system does": {want: 10_000},
		"one of class LS too":                {slo.HostApplicationMetricInfo{QoS: "LS"}, 10_000},
		"one of priority koord-mid too":      {slo.HostApplicationMetricInfo{Priority: "koord-mid"}, 10_000},
		"batch pods may have what BE uses":   {slo.HostApplicationMetricInfo{QoS: "BE"}, 30_000},
		"and what priority koord-batch uses": {slo.HostApplicationMetricInfo{Priority: "koord-batch"}, 30_000},
		"an unknown class is that of none":   {slo.HostApplicationMetricInfo{Priority: "x", QoS: "y"}, 10_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := metav1.NewTime(time.Unix(1000, 0))
			used := func(cpu string) slo.ResourceMap {
				return slo.ResourceMap{Resources: object.List("cpu", cpu, "memory", "1Gi")}
			}
			c.application.Usage = used("20")
			m := &slo.NodeMetric{Status: slo.NodeMetricStatus{
				UpdateTime: &now, NodeMetric: &slo.NodeMetricInfo{NodeUsage: used("50")},
				HostApplicationMetric: []*slo.HostApplicationMetricInfo{&c.application},
			}}
			strategy := sloconfig.Default()
			strategy.Enable = new(true)
			accounts, ok := convert.Reclaim(&strategy, node, m, nil, now.Time)
			if got := accounts[colocation.CPU].Batch; !ok || got != c.want {
				t.Errorf("batch CPU %d, want %d", got, c.want)
			}
		})
	}
}
