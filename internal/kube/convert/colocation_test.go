package convert_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/sloconfig"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
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
			if got := accounts[amount.CPU].Batch; !ok || got != c.want {
				t.Errorf("batch CPU %d, want %d", got, c.want)
			}
		})
	}
}

// TestTheSystemUsesWhatIsReportedOfIt has a node of 100 CPUs that uses 50 of them, as averaged over minutes, in which
// pods ended that are no longer reported.
func TestTheSystemUsesWhatIsReportedOfIt(t *testing.T) {
	t.Parallel()
	node := object.Node("n", nil, "cpu", "100", "memory", "100Gi")
	node.Status.Capacity = node.Status.Allocatable
	for name, c := range map[string]struct {
		system []string
		want   int64 // of 60 CPUs, as 40 are the margin
	}{
		"its use is reported":    {[]string{"cpu", "1", "memory", "1Gi"}, 59_000},
		"its use is negative":    {[]string{"cpu", "-1", "memory", "1Gi"}, 60_000},
		"none is reported":       {nil, 10_000},
		"that of CPU is missing": {[]string{"memory", "1Gi"}, 10_000},
		"that of memory is":      {[]string{"cpu", "1"}, 10_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := metav1.NewTime(time.Unix(1000, 0))
			m := &slo.NodeMetric{Status: slo.NodeMetricStatus{UpdateTime: &now, NodeMetric: &slo.NodeMetricInfo{
				NodeUsage:   slo.ResourceMap{Resources: object.List("cpu", "50", "memory", "1Gi")},
				SystemUsage: slo.ResourceMap{Resources: object.List(c.system...)},
			}}}
			strategy := sloconfig.Default()
			strategy.Enable = new(true)
			accounts, ok := convert.Reclaim(&strategy, node, m, nil, now.Time)
			if got := accounts[amount.CPU].Batch; !ok || got != c.want {
				t.Errorf("batch CPU %d, want %d", got, c.want)
			}
		})
	}
}

// TestAmplifiedAmountsAreNotLent has a node of 100 CPUs of which the kubelet keeps 50, and whose status says 95.
func TestAmplifiedAmountsAreNotLent(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"": 5000, `{"cpu":"50"}`: 50_000, `{"cpu":"99"}`: 5000, `{"cpu":1e`: 5000,
	} {
		node := object.Node("n", nil, "cpu", "95", "memory", "100Gi")
		node.Status.Capacity = object.List("cpu", "100", "memory", "100Gi")
		if text != "" {
			node.Annotations = map[string]string{annotation.RawAllocatableKey: text}
		}
		if got := convert.Reserved(node)[amount.CPU]; got != want {
			t.Errorf("%s: %d of the CPUs are reserved, want %d", text, got, want)
		}
	}
}

// TestBatchAmountsFollowWhatOthersUseOfNUMANodes has two NUMA nodes of 10 CPUs, and batch pods that use 4 CPUs.
func TestBatchAmountsFollowWhatOthersUseOfNUMANodes(t *testing.T) {
	t.Parallel()
	used := func(cpu string) slo.ResourceMap { return slo.ResourceMap{Resources: object.List("cpu", cpu)} }
	report := &slo.NodeMetricStatus{
		NodeMetric: &slo.NodeMetricInfo{NUMAUsages: []slo.NUMAUsage{
			{NUMANodeID: 5, NodeUsage: used("8")},
			{NUMANodeID: 0, NodeUsage: used("4")},
			{NUMANodeID: 9, NodeUsage: used("9")},
		}},
		PodsMetric: []*slo.PodMetricInfo{
			{Name: "batch", QoS: "BE", Priority: "koord-batch", PodUsage: used("4")},
			{Name: "service", QoS: "LS", Priority: "koord-prod", PodUsage: used("7")},
		},
	}
	ten := amount.Pair{amount.CPU: 10_000, amount.Memory: 1 << 30}
	got := map[int]string{}
	for id, list := range convert.SpreadBatch(amount.Pair{amount.CPU: 6000}, report,
		map[int]amount.Pair{0: ten, 5: ten}) {
		cpu, memory := list[convert.BatchCPU], list[convert.BatchMemory]
		got[id] = cpu.String() + " " + memory.String()
	}
	// Others use 2 CPUs of node 0 and 6 of node 5: 8 and 4 are left.
	if diff := cmp.Diff(map[int]string{0: "4k 0", 5: "2k 0"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
