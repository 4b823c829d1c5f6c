package usage_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/usage"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

func TestWhatANodeReports(t *testing.T) {
	t.Parallel()
	inBothVersions(t, func(t *testing.T, n *node) {
		pods := []usage.Pod{
			{UID: "b", Namespace: "y", Name: "b"},
			{UID: "gone", Namespace: "y", Name: "gone"},
			{UID: "a", Namespace: "x", Name: "a", Priority: "koord-prod", QoS: "LS"},
		}
		if got := n.c.Status(nil, pods, n.now); got != nil {
			t.Errorf("before the first tick: %+v", got)
		}
		n.c.SetHosts([]usage.Host{
			{Name: "h", Priority: "koord-batch", QoS: "BE", Group: "kubepods/podh"},
			{Name: "h", Group: "kubepods/poda"}, // the first of a name counts
		})
		for i := range 12 { // ten samples of 1 CPU, then one of 2
			seconds := float64(i)
			if i == 11 {
				seconds = 12
			}
			n.cpus(seconds, 0, 0, 0)
			n.pod("a", seconds/2, 5000, 2000)
			n.pod("b", 0, 3000, 1000)
			n.pod("h", seconds/4, 700, 100)
			delete(n.groups, "h")
			n.tick(time.Second)
		}
		resources := func(cpu, memory string) slo.ResourceMap {
			return slo.ResourceMap{Resources: testobject.List("cpu", cpu, "memory", memory)}
		}
		for range 5 {
			if got := n.c.Status(nil, pods, n.now); got != nil {
				t.Errorf("a first report does not wait for the pod that was not read: %+v", got)
			}
		}
		got := n.c.Status(&slo.NodeMetricCollectPolicy{
			NodeAggregatePolicy: &slo.AggregatePolicy{
				Durations: []metav1.Duration{{Duration: 5 * time.Minute}, {Duration: 7 * time.Minute}},
			},
		}, pods, n.now)
		if len(got.NodeMetric.AggregatedNodeUsages) != 1 || len(got.NodeMetric.AggregatedSystemUsages) != 1 {
			t.Fatalf("windows %+v, want that of 5 minutes alone", got.NodeMetric.AggregatedNodeUsages)
		}
		percentile := func(kind slo.AggregationType) int64 {
			used := got.NodeMetric.AggregatedNodeUsages[0].Usage[kind]
			return used.Resources.Cpu().MilliValue()
		}
		p50, p99 := percentile(slo.P50), percentile(slo.P99)
		if p50 < 1000 || p50 > 1050 || p99 < 2000 || p99 > 2100 {
			t.Errorf("p50 %d and p99 %d, want 1000 and 2000 and at most 5 %% more", p50, p99)
		}
		got.NodeMetric.AggregatedNodeUsages, got.NodeMetric.AggregatedSystemUsages = nil, nil
		want := &slo.NodeMetricStatus{
			UpdateTime: ptr.To(metav1.NewTime(n.now)),
			NodeMetric: &slo.NodeMetricInfo{
				NodeUsage: resources("1090m", "400Ki"), SystemUsage: resources("272m", "404000"),
				NUMAUsages: []slo.NUMAUsage{
					{NUMANodeID: 0, NodeUsage: resources("1090m", "245Ki")},
					{NUMANodeID: 1, NodeUsage: resources("0", "245Ki")},
				},
				CPUUsages: []int32{100, 0, 0, 0},
			},
			PodsMetric: []*slo.PodMetricInfo{
				{
					Namespace: "x", Name: "a", Priority: "koord-prod", QoS: "LS",
					PodUsage: resources("545m", "3000"),
				},
				{Namespace: "y", Name: "b", PodUsage: resources("0", "2000")},
			},
			HostApplicationMetric: []*slo.HostApplicationMetricInfo{
				{Name: "h", Priority: "koord-batch", QoS: "BE", Usage: resources("272m", "600")},
			},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		cached := n.c.Status(&slo.NodeMetricCollectPolicy{
			NodeMemoryCollectPolicy: ptr.To(slo.UsageWithPageCache), AggregateDurationSeconds: ptr.To(int64(300)),
		}, pods, n.now)
		if m := cached.PodsMetric[0].PodUsage.Resources.Memory().Value(); m != 5000 {
			t.Errorf("with page cache the pod uses %d bytes, want 5000", m)
		}
		if got := n.c.Status(nil, pods, n.now.Add(6*time.Minute)); got != nil {
			t.Errorf("six minutes after the last sample: %+v, want nothing", got)
		}
		n.c.Status(&slo.NodeMetricCollectPolicy{AggregateDurationSeconds: ptr.To(int64(-5))}, pods, n.now)
		n.tick(time.Second)
		if got := n.c.Status(nil, nil, n.now); got == nil || len(got.PodsMetric) != 0 {
			t.Errorf("after a policy of a negative time: %+v", got)
		}
	})
}

// TestHowBusyEachCPUIs reports it for the time since the report before.
func TestHowBusyEachCPUIs(t *testing.T) {
	t.Parallel()
	n := newNode(t, false)
	n.tick(time.Second)
	for _, step := range []struct {
		after time.Duration
		cpus  []float64 // seconds; one that is missing is offline
		want  []int32
	}{
		{time.Second, []float64{1, 0.504, 0, 0}, []int32{100, 50, 0, 0}},
		{4 * time.Second, []float64{2, 0.504, 0}, []int32{25, 0, 0, -1}},
		{4 * time.Second, []float64{12, 0.2, 0, 9}, []int32{100, -1, 0, -1}}, // CPU 1 counts anew
		{4 * time.Second, []float64{12, 0.2, 1, 9}, []int32{0, 0, 25, 0}},
		{0, []float64{12, 0.2, 1, 9}, nil},
	} {
		n.cpus(step.cpus...)
		n.tick(step.after)
		if got := n.c.Status(nil, nil, n.now).NodeMetric.CPUUsages; !slices.Equal(got, step.want) {
			t.Errorf("%v after %s: %v, want %v", step.cpus, step.after, got, step.want)
		}
	}
	n.machine = grid.Machine{Sockets: 1, Nodes: 1, Cores: 2, Threads: 1}.Build(t)
	n.cpus(13, 1)
	n.tick(time.Second)
	n.cpus(13, 1.5)
	n.tick(time.Second)
	if got := n.c.Status(nil, nil, n.now).NodeMetric.CPUUsages; !slices.Equal(got, []int32{0, 50}) {
		t.Errorf("another machine: %v, want that of its two CPUs since it is known", got)
	}
}

// TestWhatProdPodsWillNotUseIsReclaimable lets a prod pod that requests 3 CPUs and 9000 bytes use 1 CPU and 5000 bytes
// for half an hour, beside a batch pod.
func TestWhatProdPodsWillNotUseIsReclaimable(t *testing.T) {
	t.Parallel()
	inBothVersions(t, func(t *testing.T, n *node) {
		request := usage.Amounts{MilliCPU: 3000, MemoryBytes: 9 << 20}
		pods := []usage.Pod{
			{UID: "a", Name: "a", Prod: true, Request: request}, {UID: "b", Name: "b", Request: request},
		}
		seconds := 0.0
		pass := func(minutes int, cpus float64) *slo.ReclaimableMetric {
			for range minutes * 6 {
				seconds += 10 * cpus
				n.cpus(seconds, seconds, 0, 0)
				n.pod("a", seconds, 5<<20, 1000)
				n.pod("b", seconds, 5<<20, 1000)
				n.tick(10 * time.Second)
			}
			return n.c.Status(nil, pods, n.now).ProdReclaimableMetric
		}
		pass(1, 1) // the pods are known from now on
		if got := pass(28, 1); got != nil {
			t.Errorf("after 29 minutes: %v, want that it is not known", got)
		}
		// The buckets of percentiles are 5 % wide at most; 10 % are added.
		got := pass(3, 1)
		cpu, memory := got.Resource.Resources.Cpu().MilliValue(), got.Resource.Resources.Memory().Value()
		if cpu < 3000-1155 || cpu > 3000-1100 || memory > 4<<20 || memory < 2<<20 {
			t.Errorf("after 32 minutes %dm and %d bytes, want 3 CPUs and 9 MiB less 1 CPU and 5 MiB and a margin", cpu,
				memory)
		}
		pods = append(pods, usage.Pod{UID: "c", Name: "c", Prod: true, Request: request})
		n.pod("c", 0, 1000, 1)
		if got := pass(1, 1).Resource.Resources.Cpu().MilliValue(); got != cpu {
			t.Errorf("beside a new pod %dm, want %dm: its request does not count yet", got, cpu)
		}
		if got := pass(2, 3.9).Resource.Resources.Cpu().MilliValue(); got != 0 {
			t.Errorf("after a peak of 2 minutes %dm, want none", got)
		}
	})
}
