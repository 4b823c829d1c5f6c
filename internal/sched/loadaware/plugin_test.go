package loadaware

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

var now = time.Date(2026, 1, 1, 0, 10, 0, 0, time.UTC)

// judging is a plugin with one node of 10 CPUs and 10 GiB that is allocatable.
type judging struct {
	*Plugin
	node *corev1.Node
}

func newJudging(t *testing.T, args string, annotations map[string]string) judging {
	t.Helper()
	a, err := v1alpha1.Decode[v1alpha1.LoadAwareSchedulingArgs](&runtime.Unknown{Raw: []byte(args)})
	testkit.Check(t, err)
	p := newPlugin(kube.NewLoads(), func() time.Time { return now }, &a)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: annotations}}
	node.Status.Allocatable = object.List("cpu", "10", "memory", "10Gi", "pods", "100")
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	testkit.Check(t, factory.Core().V1().Nodes().Informer().GetIndexer().Add(node))
	p.nodes = factory.Core().V1().Nodes().Lister()
	return judging{p, node}
}

// metric is a NodeMetric of the node, with one prod pod that uses 1 CPU.
func (j judging) metric(cpu int64, age time.Duration) {
	j.loads.PutMetric(&kube.NodeMetric{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Report: &load.Report{
		Updated: now.Add(-age), Interval: time.Minute, Use: &amount.Pair{cpu, 1 << 30},
		Pods: map[string]load.PodUse{"default/prod": {Use: amount.Pair{1000, 1 << 20}, Prod: true}},
		Aggregates: []load.Aggregate{{
			Duration: 5 * time.Minute, Use: map[load.Statistic]amount.Pair{load.P95: {9000, 1 << 30}},
		}},
	}})
}

// ask returns why the node is refused, "" where it is not, and its score.
func (j judging) ask(pod *corev1.Pod) (string, int64) {
	cs, ctx := framework.NewCycleState(), context.Background()
	_, status := j.PreFilter(ctx, cs, pod, nil)
	if !status.IsSuccess() && !status.IsSkip() {
		return strings.Join(status.Reasons(), ", "), -1
	}
	info := framework.NewNodeInfo()
	info.SetNode(j.node)
	if !status.IsSkip() {
		if status := j.Filter(ctx, cs, pod, info); !status.IsSuccess() {
			return strings.Join(status.Reasons(), ", "), -1
		}
	}
	if j.PreScore(ctx, cs, pod, nil).IsSkip() {
		return "", 0
	}
	score, _ := j.Score(ctx, cs, pod, info)
	return "", score
}

func onePod(name string, options ...object.PodOption) *corev1.Pod {
	return object.Pod(name, append([]object.PodOption{
		object.Container("c", "i"), object.Requests("cpu", "1", "memory", "1Gi"),
	}, options...)...)
}

func TestFilter(t *testing.T) {
	t.Parallel()
	daemon := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: new(true)}}
	}
	annotated := func(key, value string) object.PodOption {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{key: value} }
	}
	const expired, hot = "node(s) nodeMetric expired", "node(s) cpu usage exceed threshold"
	for name, c := range map[string]struct {
		args       string
		annotation string // usage-thresholds without a key
		key        string
		cpu        int64 // 0 for no NodeMetric
		age        time.Duration
		pod        object.PodOption
		want       string
	}{
		"no NodeMetric":                  {},
		"with the pod 65 % are used":     {cpu: 5690},
		"with the pod 66 % are used":     {cpu: 5700, want: hot},
		"a pod of a DaemonSet":           {cpu: 5700, pod: daemon},
		"an old NodeMetric":              {cpu: 1, age: 3 * time.Minute, want: expired},
		"an old NodeMetric, a DaemonSet": {cpu: 1, age: 3 * time.Minute, pod: daemon},
		"1 ns less than old":             {cpu: 1, age: 3*time.Minute - 1},
		"old ones let pods pass": {
			args: `"enableScheduleWhenNodeMetricsExpired":true`, cpu: 9000, age: time.Hour,
		},
		"old ones count, and refuse": {
			args: `"filterExpiredNodeMetrics":false`, cpu: 9000, age: time.Hour, want: hot,
		},
		"old ones count, and do not": {args: `"filterExpiredNodeMetrics":false`, cpu: 1, age: time.Hour},
		"another threshold":          {args: `"usageThresholds":{"cpu":80}`, cpu: 7000},
		"memory has no threshold then": {
			args: `"usageThresholds":{"memory":5}`, cpu: 9000, want: "node(s) memory usage exceed threshold",
		},
		"a threshold of the node":       {annotation: `{"usageThresholds":{"cpu":95}}`, cpu: 8000},
		"a lower threshold of the node": {annotation: `{"usageThresholds":{"cpu":10}}`, cpu: 1000, want: hot},
		"one that cannot be read":       {annotation: `{"usageThresholds":{"cpu":-1}}`, cpu: 5700, want: hot},
		"CPUs that another program has amplified are not there": {
			key:        annotation.RawAllocatableKey,
			annotation: `{"cpu":"5"}`, cpu: 2500, want: hot,
		},
		"amplified CPUs that cannot be read count as they are shown": {
			key:        annotation.RawAllocatableKey,
			annotation: `{"cpu":"-5"}`, cpu: 2500,
		},
		"a percentile": {
			args: `"aggregated":{"usageThresholds":{"cpu":60},"usageAggregationType":"p95"}`, cpu: 1,
			want: "node(s) cpu aggregated usage exceed threshold",
		},
		"production pods by their own use": {args: `"prodUsageThresholds":{"cpu":10}`, cpu: 9000, want: ""},
		"an annotation that is not read": {
			cpu: 5690, pod: annotated(annotation.EstimatedScalingFactorsKey, `{"cpu":0}`),
		},
		"an annotation that is read": {
			args: `"allowCustomizeEstimation":true`, cpu: 5690,
			pod: annotated(annotation.EstimatedScalingFactorsKey, `{"cpu":100}`), want: hot,
		},
		"an annotation that cannot be read": {
			args: `"allowCustomizeEstimation":true`, cpu: 1,
			pod: annotated(annotation.EstimatedSecondsAfterInitialized, "NaN"),
			want: "invalid annotation: scheduling.koordinator.sh/load-estimated-seconds-after-initialized: byte 0: " +
				`Invalid value "NaN": must be ` +
				"a whole number of seconds from 0 to 3155760000 (100 years)",
		},
	} {
		var annotations map[string]string
		if c.annotation != "" {
			annotations = map[string]string{cmp.Or(c.key, annotation.UsageThresholdsKey): c.annotation}
		}
		j := newJudging(t, "{"+c.args+"}", annotations)
		if c.cpu > 0 {
			j.metric(c.cpu, c.age)
		}
		pod := onePod("a")
		if name == "production pods by their own use" {
			pod.Labels[annotation.PriorityClass] = "koord-batch"
			c.want = hot
		}
		if c.pod != nil {
			c.pod(pod)
		}
		if got, _ := j.ask(pod); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestTheSuccessorAvoidsTheNode that has evicted its predecessor, with and without NodeMetrics, until it may return.
func TestTheSuccessorAvoidsTheNode(t *testing.T) {
	t.Parallel()
	const avoided = "node(s) recently evicted a pod of the same workload"
	controlled := func(kind, uid string) object.PodOption {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, UID: types.UID(uid), Controller: new(true)}}
		}
	}
	successor := controlled("ReplicaSet", "w")
	for name, c := range map[string]struct {
		pod     object.PodOption
		reports bool
		ago     time.Duration
		want    string
	}{
		"at once":                           {successor, true, 0, avoided},
		"without a NodeMetric":              {successor, false, 0, avoided},
		"after five minutes":                {successor, true, 5 * time.Minute, ""},
		"a nanosecond before":               {successor, true, 5*time.Minute - 1, avoided},
		"a pod of another workload":         {controlled("ReplicaSet", "v"), true, 0, ""},
		"a pod of the workload's DaemonSet": {controlled("DaemonSet", "w"), true, 0, ""},
		"a pod without a workload":          {func(*corev1.Pod) {}, true, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJudging(t, "{}", nil)
			if c.reports {
				j.metric(1000, 0)
			}
			gone := onePod("gone", object.On("n"), successor)
			gone.Status.Phase = corev1.PodFailed
			gone.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.DisruptionTarget, Reason: "BestEffortEvicted",
				LastTransitionTime: metav1.NewTime(now.Add(-c.ago)),
			}}
			unsigned, _ := j.SignPod(t.Context(), onePod("next", c.pod))
			j.loads.PutPod(gone)
			next := onePod("next", c.pod)
			if got, _ := j.ask(next); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			hint, _ := j.hint(klog.Background(), next, nil, j.node)
			if !convert.IsOfDaemonSet(next) && (hint == fwk.QueueSkip) != (c.want != "") {
				t.Errorf("an event of the node: %v", hint)
			}
			if signed, _ := j.SignPod(t.Context(), next); (signed[0] == unsigned[0]) == (next.OwnerReferences != nil &&
				next.OwnerReferences[0].UID == "w") {
				t.Errorf("the signature is %v, and was %v before the eviction", signed, unsigned)
			}
		})
	}
}

func TestScoreAndReserve(t *testing.T) {
	t.Parallel()
	j := newJudging(t, `{"usageThresholds":{"cpu":100}}`, nil)
	if _, got := j.ask(onePod("a")); got != 0 {
		t.Errorf("without a NodeMetric the score is %d, want 0", got)
	}
	j.metric(2000, 0)
	_, before := j.ask(onePod("a"))
	other, cs := onePod("b"), framework.NewCycleState()
	if status := j.Reserve(t.Context(), cs, other, "n"); !status.IsSuccess() {
		t.Fatal(status)
	}
	_, reserved := j.ask(onePod("a"))
	j.Unreserve(t.Context(), cs, other, "n")
	_, after := j.ask(onePod("a"))
	if before != 76 || reserved != 69 || after != before {
		t.Errorf("scores %d, with a pod that is reserved %d, after it %d; want 76, 69, 76", before, reserved, after)
	}
	trial := placement.NewTrial(kube.NewStore())
	cs = framework.NewCycleState()
	trial.Mark(cs)
	j.Reserve(t.Context(), cs, other, "n")
	if _, got := j.ask(onePod("a")); got != before {
		t.Errorf("a pod that is reserved on trial changes the score to %d", got)
	}
	info := framework.NewNodeInfo()
	info.SetNode(j.node)
	onTrial := framework.NewCycleState()
	trial.Mark(onTrial)
	j.PreFilter(t.Context(), onTrial, onePod("a"), nil)
	if got, _ := j.Score(t.Context(), onTrial, onePod("a"), info); got != reserved {
		t.Errorf("on the same trial the score is %d, want %d", got, reserved)
	}
	j.Unreserve(t.Context(), cs, other, "n")
	if got, _ := j.Score(t.Context(), onTrial, onePod("a"), info); got != before {
		t.Errorf("after it was given back the score is %d, want %d", got, before)
	}
	j.node.Annotations = map[string]string{annotation.RawAllocatableKey: `{"cpu":"5","memory":"20Gi"}`}
	if _, got := j.ask(onePod("a")); got != 62 {
		t.Errorf("of 5 CPUs that were amplified to 10 the score is %d, want 62", got)
	}
	j.metric(2000, time.Hour)
	j.expiry.Pass = true
	if _, got := j.ask(onePod("a")); got != 0 {
		t.Errorf("with an old NodeMetric the score is %d, want 0", got)
	}
}

// The framework clones a cycle for each node with nominated pods, and removes and adds victims on copies.
func TestNominatedPodsAndVictimsCount(t *testing.T) {
	t.Parallel()
	j := newJudging(t, `{}`, nil)
	j.metric(5000, 0)
	info := framework.NewNodeInfo()
	info.SetNode(j.node)
	cs, pod := framework.NewCycleState(), onePod("a")
	j.PreFilter(t.Context(), cs, pod, nil)
	passes := func(cs fwk.CycleState) bool { return j.Filter(t.Context(), cs, pod, info).IsSuccess() }
	extensions := j.PreFilterExtensions()
	put := func(name string, change func(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo, fwk.NodeInfo,
	) *fwk.Status, on fwk.CycleState,
	) {
		p, err := framework.NewPodInfo(onePod(name))
		if err != nil || !change(t.Context(), on, pod, p, info).IsSuccess() {
			t.Fatal(name, err)
		}
	}
	one, two := cs.Clone(), cs.Clone()
	put("b", extensions.AddPod, one)
	put("c", extensions.AddPod, two)
	put("c", extensions.RemovePod, two)
	if !passes(cs) || passes(one) || !passes(two) {
		t.Errorf("the node passes: %v; with a nominated pod: %v; without it again: %v; want all but the second",
			passes(cs), passes(one), passes(two))
	}
	j.Reserve(t.Context(), framework.NewCycleState(), onePod("v"), "n")
	victim := cs.Clone()
	put("v", extensions.RemovePod, victim)
	if passes(victim) {
		t.Error("the use of a victim does not count")
	}
	j.metric(4500, 0)
	put("v", extensions.AddPod, victim)
	if !passes(victim) {
		t.Error("a victim that is kept counts twice")
	}
}

func TestPodsWakeForANodeThatDoesNotRefuseThem(t *testing.T) {
	t.Parallel()
	j := newJudging(t, `{}`, nil)
	pod, metric := onePod("a"), &kube.NodeMetric{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	ended := onePod("b")
	ended.Spec.NodeName = "n"
	for name, c := range map[string]struct {
		cpu         int64
		old, object any
		want        fwk.QueueingHint
	}{
		"a node that uses much":       {9000, nil, metric, fwk.QueueSkip},
		"a node that uses little now": {1000, metric, metric, fwk.Queue},
		"a NodeMetric is gone":        {1000, metric, nil, fwk.Queue},
		"an unknown node": {
			1000, nil, &kube.NodeMetric{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, fwk.QueueSkip,
		},
		"a pod ended there":          {1000, ended, nil, fwk.Queue},
		"a pod ended on a hot node":  {9000, ended, nil, fwk.QueueSkip},
		"the pod itself has changed": {9000, pod, pod, fwk.Queue},
		"thresholds of the node":     {1000, j.node, j.node, fwk.Queue},
	} {
		j.metric(c.cpu, 0)
		if got, err := j.hint(klog.Background(), pod, c.old, c.object); err != nil || got != c.want {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, c.want)
		}
	}
}

func TestTheEndpointShowsWhatCounts(t *testing.T) {
	t.Parallel()
	j := newJudging(t, `{}`, map[string]string{annotation.UsageThresholdsKey: `{"usageThresholds":{"cpu":101}}`})
	j.metric(2000, 0)
	for i, namespace := range []string{"default", "hidden"} {
		p := onePod(fmt.Sprint("p", i))
		p.Namespace, p.Spec.NodeName, p.UID = namespace, "n", "u"+p.UID
		p.Status.StartTime = &metav1.Time{Time: now}
		j.loads.PutPod(p)
	}
	answer, err := json.Marshal(j.use("n", func(namespace string) bool { return namespace == "default" }))
	const want = `{"updateTime":"2026-01-01T00:10:00Z","use":{"cpu":"3700m","memory":"2576980378"},` +
		`"prodUse":{"cpu":"1700m","memory":"1503238554"},"problem":"byte 19: usageThresholds.cpu: must be 0…100 ` +
		`percent, is 101","pods":[{"timestamp":"2026-01-01T00:10:00Z","pod":{"namespace":"default","name":"p0",` +
		`"uid":"up0"},"estimate":{"cpu":"850m","memory":"751619277"}}],"podsHidden":1}`
	if got := string(answer); err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if j.use("x", nil) != nil {
		t.Error("an unknown node has an answer")
	}
}
