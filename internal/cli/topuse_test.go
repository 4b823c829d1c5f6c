package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/sloconfig"
	"github.com/tenon-project/tenon/api/event"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// suppressed is the condition of a node about its best-effort pods.
func suppressed(status corev1.ConditionStatus) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: corev1.NodeConditionType(event.BestEffortSuppressed.Condition()), Status: status,
		Message: "best-effort pods are suppressed to 2 of 40 CPUs: other pods use 25000m",
	}
}

func TestExplainSaysToWhatABestEffortPodIsSuppressed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		class, node string
		status      corev1.ConditionStatus
		want        bool
	}{
		"a best-effort pod":        {"BE", "n", corev1.ConditionTrue, true},
		"another class":            {"LS", "n", corev1.ConditionTrue, false},
		"a node that has room":     {"BE", "n", corev1.ConditionFalse, false},
		"a pod without a node":     {"BE", "", corev1.ConditionTrue, false},
		"a node that is not there": {"BE", "gone", corev1.ConditionTrue, false},
	} {
		node := testobject.Node("n", nil, "cpu", "8")
		node.Status.Conditions = append(node.Status.Conditions, suppressed(test.status))
		e := explanation{cluster: cluster{core: fake.NewClientset(node)}}
		pod := testobject.Pod("a", testobject.Label(annotation.QoSClass, test.class), testobject.On(test.node))
		var answer explained
		e.addSuppression(t.Context(), &answer, pod)
		if got := strings.Contains(strings.Join(answer.Notes, ""), "suppressed to 2 of 40 CPUs"); got != test.want {
			t.Errorf("%s: notes %q", name, answer.Notes)
		}
	}
}

func TestExplainSaysWhatIsReclaimedForABatchPodThatWaits(t *testing.T) {
	t.Parallel()
	asks := testobject.Requests("kubernetes.io/batch-cpu", "1000")
	const old = "node n grants batch pods nothing: its NodeMetric has no report of the last 15 minutes"
	const off = "node n grants batch pods nothing: colocation-config of slo-controller-config is not enabled for it"
	for name, test := range map[string]struct {
		config, node string
		resources    testobject.PodOption
		want         []string
	}{
		"amounts are on":            {`{"enable":true}`, "", asks, []string{old}},
		"amounts are off":           {`{}`, "", asks, []string{off}},
		"no ConfigMap":              {"", "", asks, []string{off}},
		"one that cannot be read":   {`{"enable":7}`, "", asks, nil},
		"a pod that has its node":   {`{"enable":true}`, "n", asks, nil},
		"a pod that is not a batch": {`{"enable":true}`, "", testobject.Requests("cpu", "1"), nil},
	} {
		core := fake.NewClientset(testobject.Node("n", nil, "cpu", "8"))
		if test.config != "" {
			testkit.Check(t, core.Tracker().Add(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: installedIn(), Name: sloconfig.Name},
				Data:       map[string]string{sloconfig.ColocationKey: test.config},
			}))
		}
		e := explanation{cluster: cluster{core: core, dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(
			runtime.NewScheme(), map[schema.GroupVersionResource]string{slo.NodeMetrics(): "NodeMetricList"},
		)}}
		answer := explained{Pod: view.Pod{Candidates: []view.Candidate{{Node: "n"}, {Node: "gone"}}}}
		e.addReclaim(t.Context(), &answer, testobject.Pod("a", testobject.Container("c", "i"), test.resources,
			testobject.On(test.node)))
		if diff := cmp.Diff(test.want, answer.Notes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestExplainSaysWhyABestEffortPodWasEvicted(t *testing.T) {
	t.Parallel()
	const why = "evicted: the node uses 75 % of its memory"
	record := func(name, pod string, second int) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: name},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: pod}, Reason: "BestEffortEvicted", Message: name,
			EventTime: metav1.NewMicroTime(time.Unix(int64(second), 0)),
		}
	}
	e := explanation{namespace: "default", cluster: cluster{core: fake.NewClientset(
		record("earlier", "gone", 1), record(why, "gone", 2), record("other", "else", 3),
	)}}
	_, err := e.readPod(t.Context(), "gone")
	if want := `pod "gone" not found in namespace "default"; it was ` + why; err == nil || err.Error() != want {
		t.Errorf("of a pod that is gone: %v, want %s", err, want)
	}
	pod := testobject.Pod("a")
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.DisruptionTarget, Reason: "EvictionByEvictionAPI", Message: "x"},
	}
	if got := describe.Eviction(pod); got != "" {
		t.Errorf("of a pod that another program evicts: %q", got)
	}
	pod.Status.Conditions[0].Reason, pod.Status.Conditions[0].Message = "BestEffortEvicted", "m"
	if got := describe.Eviction(pod); got != "evicted: m" {
		t.Errorf("of a pod that ends: %q", got)
	}
}

// TestUseAsGolden has a node with a report, one whose report says nothing, and one without; pods of the report, of an
// earlier pod of their name, and of none.
func TestUseAsGolden(t *testing.T) {
	nodes, pods, topologies := example(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	resources := func(list ...string) slo.ResourceMap {
		return slo.ResourceMap{Resources: testobject.List(list...)}
	}
	metric := &slo.NodeMetric{Status: slo.NodeMetricStatus{
		UpdateTime: ptr.To(metav1.NewTime(now.Add(-12 * time.Second))),
		NodeMetric: &slo.NodeMetricInfo{
			NodeUsage: resources("cpu", "17250m", "memory", "3Gi"),
			AggregatedNodeUsages: []slo.AggregatedUsage{
				{Duration: metav1.Duration{Duration: time.Hour}, Usage: map[slo.AggregationType]slo.ResourceMap{
					slo.P95: resources("cpu", "1", "memory", "1Gi"),
				}},
				{Duration: metav1.Duration{Duration: time.Minute}, Usage: map[slo.AggregationType]slo.ResourceMap{
					slo.P95: resources("cpu", "40", "memory", "5Gi"),
				}},
			},
		},
		ProdReclaimableMetric: &slo.ReclaimableMetric{Resource: resources("cpu", "3", "memory", "1Gi")},
	}}
	for i := range pods {
		p := &pods[i]
		p.Status.StartTime = ptr.To(metav1.NewTime(now.Add(-time.Hour)))
		if i == 1 { // it has started after the report: that is about an earlier pod of its name
			p.Status.StartTime = ptr.To(metav1.NewTime(now))
		}
		if i%3 != 2 {
			metric.Status.PodsMetric = append(metric.Status.PodsMetric, &slo.PodMetricInfo{
				Namespace: p.Namespace, Name: p.Name, PodUsage: resources("cpu", "1500m", "memory", "100Mi"),
				Extensions: slo.PodExtension{ThrottledMilliseconds: int64(i) * 40}.Encode(),
			})
		}
	}
	nodes[0].Status.Conditions = append(nodes[0].Status.Conditions, suppressed(corev1.ConditionTrue))
	nodes[1].Status.Conditions = append(nodes[1].Status.Conditions, suppressed(corev1.ConditionFalse))
	nodes[0].Status.Allocatable["kubernetes.io/batch-cpu"] = testobject.List("x", "23000")["x"]
	nodes[0].Status.Allocatable["kubernetes.io/batch-memory"] = testobject.List("x", "8Gi")["x"]
	metrics := map[string]*slo.NodeMetric{"epyc": metric, "static": {}, "gone": metric}
	a := newAccount(nodes, pods, topologies)
	for name, format := range map[string]string{"top-use.txt": "table", "top-use.json": "json"} {
		var out strings.Builder
		if err := printUse(&out, nodeUses(a, metrics, now), format, paint{}, 0); err != nil {
			t.Fatal(err)
		}
		golden(t, name, out.String())
	}
	for name, format := range map[string]string{"top-pods.txt": "table", "top-pods.json": "json"} {
		var out strings.Builder
		if err := printPodUse(&out, podUses(a, metrics, ""), format, paint{}, 0); err != nil {
			t.Fatal(err)
		}
		golden(t, name, out.String())
	}
}

// TestANodeMetricThatCannotBeReadHidesNoOther: the API server takes any text as the time of a percentile.
func TestANodeMetricThatCannotBeReadHidesNoOther(t *testing.T) {
	t.Parallel()
	metric := func(name, duration string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": name},
			"status": map[string]any{"nodeMetric": map[string]any{
				"aggregatedNodeUsages": []any{map[string]any{"duration": duration}},
			}},
		}}
		u.SetGroupVersionKind(slo.GroupVersion().WithKind(slo.NodeMetricKind))
		return u
	}
	c := cluster{dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(
		runtime.NewScheme(), map[schema.GroupVersionResource]string{slo.NodeMetrics(): "NodeMetricList"},
		metric("odd", "filled"), metric("sound", "5m"),
	)}
	found, err := c.metrics(t.Context(), "")
	testkit.Check(t, err)
	if len(found) != 1 || found["sound"] == nil {
		t.Errorf("got %v, want that of sound", found)
	}
}
