package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/utils/ptr"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/quiet"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// firing is a report of the node epyc that says how often interrupts fire on the CPUs of some pods.
func firing(at time.Time, pods ...string) *slo.NodeMetric {
	m := &slo.NodeMetric{ObjectMeta: metav1.ObjectMeta{Name: "epyc"}}
	m.Status.UpdateTime = ptr.To(metav1.NewTime(at))
	for _, name := range pods {
		m.Status.PodsMetric = append(m.Status.PodsMetric, &slo.PodMetricInfo{
			Namespace: "default", Name: name, Extensions: slo.PodExtension{
				Interrupts: &slo.InterruptRate{Devices: 12, Kernel: 250, Busiest: "24 (eth0)"},
			}.Encode(),
		})
	}
	return m
}

func TestTopologyShowsInterruptsOnThePodsCPUs(t *testing.T) {
	t.Parallel()
	nodes, pods, topologies := example(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range pods {
		pods[i].Status.StartTime = ptr.To(metav1.NewTime(now))
	}
	rates := func(metric *slo.NodeMetric) (found map[string]quiet.Rate, drawn string) {
		a := newAccount(nodes, pods, topologies)
		a.metrics = map[string]*slo.NodeMetric{"epyc": metric}
		node := a.node("epyc")
		found = map[string]quiet.Rate{}
		for _, p := range node.Pods {
			if p.Interrupts != nil {
				found[p.Name] = *p.Interrupts
			}
		}
		return found, drawMachine(node, paint{}, 0)
	}
	found, drawn := rates(firing(now, "lse", "web", "gone"))
	rate := map[string]quiet.Rate{"lse": {Devices: 12, Kernel: 250, Busiest: "24 (eth0)"}}
	if diff := cmp.Diff(rate, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const want = "A default/lse LSE 0-1,32-33 numa 0 12 interrupts/s (kernel 250)"
	if !strings.Contains(strings.Join(strings.Fields(drawn), " "), want) {
		t.Errorf("the drawing lacks %q:\n%s", want, drawn)
	}
	if found, _ := rates(firing(now.Add(-time.Minute), "lse")); len(found) > 0 {
		t.Errorf("a report of an earlier pod of that name says %v", found)
	}
	if found, _ := rates(nil); len(found) > 0 {
		t.Errorf("without a report: %v", found)
	}
}

func TestTopologyShowsHowBusyCPUsAre(t *testing.T) {
	t.Parallel()
	nodes, pods, topologies := example(t)
	metric := firing(time.Now())
	metric.Status.NodeMetric = &slo.NodeMetricInfo{CPUUsages: slices.Repeat([]int32{50, 20}, 32)}
	for width, want := range map[int]string{0: "    busy L3 0 35%, L3 1 35%\n", 30: "    busy L3 0 35%,\n"} {
		a := newAccount(nodes, pods, topologies)
		a.metrics = map[string]*slo.NodeMetric{"epyc": metric}
		if drawn := drawMachine(a.node("epyc"), paint{}, width); !strings.Contains(drawn, want) {
			t.Errorf("the drawing of %d columns lacks %q:\n%s", width, want, drawn)
		}
		a.metrics = map[string]*slo.NodeMetric{"epyc": firing(time.Now())}
		if drawn := drawMachine(a.node("epyc"), paint{}, width); strings.Contains(drawn, "busy") {
			t.Errorf("without a report:\n%s", drawn)
		}
	}
}

func TestExplainSaysHowOftenThePodIsInterrupted(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	object := func(m *slo.NodeMetric) *unstructured.Unstructured {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(m)
		testkit.Check(t, err)
		u := &unstructured.Unstructured{Object: fields}
		u.SetGroupVersionKind(slo.GroupVersion().WithKind(slo.NodeMetricKind))
		return u
	}
	const note = "CPUs 8-9 are interrupted 12 times a second by devices, most by interrupt 24 (eth0), and 250 times " +
		"a second by the kernel, such as by timers"
	for name, c := range map[string]struct {
		metric *slo.NodeMetric
		cpus   string
		want   []string
	}{
		"a pod with CPUs of its own": {firing(now, "lsr"), "8-9", []string{note}},
		"a pod of a pool":            {firing(now, "lsr"), "", nil},
		"a pod without a rate":       {firing(now, "lse"), "8-9", nil},
		"no report":                  {&slo.NodeMetric{ObjectMeta: metav1.ObjectMeta{Name: "epyc"}}, "8-9", nil},
	} {
		e := explanation{cluster: cluster{dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(
			runtime.NewScheme(), map[schema.GroupVersionResource]string{slo.NodeMetrics(): "NodeMetricList"},
			object(c.metric),
		)}}
		p := pod("lsr", "LSR", "2", "epyc", "")
		p.Status.StartTime = ptr.To(metav1.NewTime(now))
		answer := explained{Pod: view.Pod{Placement: &view.Placement{Node: "epyc", CPUSet: c.cpus}}}
		e.addQuiet(t.Context(), &answer, &p)
		if diff := cmp.Diff(c.want, answer.Notes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
