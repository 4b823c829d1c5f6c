package describe_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

// TestHowBusyCPUsAre: a NUMA node has CPUs 0 and 1 behind one L3 cache, and CPU 2 behind another.
func TestHowBusyCPUsAre(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	report := func(age time.Duration, used ...int32) *slo.NodeMetric {
		at := metav1.NewTime(now.Add(-age))
		return &slo.NodeMetric{Status: slo.NodeMetricStatus{
			UpdateTime: &at, NodeMetric: &slo.NodeMetricInfo{CPUUsages: used},
		}}
	}
	every := func(seconds int64, m *slo.NodeMetric) *slo.NodeMetric {
		m.Spec.CollectPolicy = &slo.NodeMetricCollectPolicy{ReportIntervalSeconds: &seconds}
		return m
	}
	for name, c := range map[string]struct {
		metric *slo.NodeMetric
		want   string // of the CPUs, then of the caches
	}{
		"a report":           {report(time.Minute, 10, 21, 100), "[10 21 100] [{4 16} {5 100}]"},
		"the third interval": {report(3*time.Minute, 1, 2, 3), "[1 2 3] [{4 2} {5 3}]"},
		"an old report":      {report(3*time.Minute+1, 10, 20, 100), "[- - -] []"},
		"a long interval":    {every(600, report(30*time.Minute, 1, 2, 3)), "[1 2 3] [{4 2} {5 3}]"},
		"a short interval":   {every(10, report(time.Minute, 1, 2, 3)), "[- - -] []"},
		"no report":          {nil, "[- - -] []"},
		"nothing of the node": {
			&slo.NodeMetric{Status: slo.NodeMetricStatus{UpdateTime: &metav1.Time{Time: now}}}, "[- - -] []",
		},
		"an object, no report":  {&slo.NodeMetric{}, "[- - -] []"},
		"another agent's":       {report(time.Minute), "[- - -] []"},
		"a CPU that is offline": {report(time.Minute, 10, -1, 7), "[10 - 7] [{4 10} {5 7}]"},
		"a cache of such CPUs":  {report(time.Minute, 10, 30), "[10 30 -] [{4 20}]"},
		"more than there is":    {report(time.Minute, 0, 0, 900), "[0 0 100] [{4 0} {5 100}]"},
	} {
		n := &view.Node{Sockets: []view.Socket{{NUMA: []view.NUMA{{Cores: []view.Core{
			{L3: 4, CPUs: []view.CPU{{CPU: 0}, {CPU: 1}}}, {L3: 5, CPUs: []view.CPU{{CPU: 2}}},
		}}}}}}
		describe.SetCPUUse(n, c.metric, now)
		numa := &n.Sockets[0].NUMA[0]
		var used []any
		for _, core := range numa.Cores {
			for _, cpu := range core.CPUs {
				if cpu.UsedPercent == nil {
					used = append(used, "-")
				} else {
					used = append(used, *cpu.UsedPercent)
				}
			}
		}
		if got := fmt.Sprint(used, " ", numa.L3Use); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
