package kube_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

const wholeMetric = `{"metadata":{"name":"n"},"spec":{"metricCollectPolicy":{"reportIntervalSeconds":30}},"status":{
"updateTime":"2026-01-01T00:00:00Z","nodeMetric":{
"nodeUsage":{"resources":{"cpu":"1500m","memory":"1Gi","nvidia.com/gpu":"1"},"devices":[{"type":"gpu"}]},
"systemUsage":{"resources":{"cpu":"100m","memory":1024}},
"aggregatedNodeUsages":[{"duration":"5m0s","usage":{"p95":{"resources":{"cpu":"2","memory":"2Gi"}},"p99":{}}}]},
"podsMetric":[{"namespace":"d","name":"a","priority":"koord-prod","podUsage":{"resources":{"cpu":"1","memory":"1Ki"}}},
{"namespace":"d","name":"b","priority":"koord-batch","podUsage":{"resources":{"cpu":"1","memory":"1Ki"}}},
{"namespace":"d","name":"c","podUsage":{"resources":{"cpu":"1"}}}]}}`

func TestNodeMetricsAreRead(t *testing.T) {
	t.Parallel()
	want := &load.Report{
		Updated: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Interval: 30 * time.Second,
		Use: &amount.Pair{1500, 1 << 30}, System: amount.Pair{100, 1024},
		Aggregates: []load.Aggregate{{
			Duration: 5 * time.Minute, Use: map[load.Statistic]amount.Pair{load.P95: {2000, 2 << 30}},
		}},
		Pods: map[string]load.PodUse{
			"d/a": {Use: amount.Pair{1000, 1024}, Prod: true}, "d/b": {Use: amount.Pair{1000, 1024}},
		},
	}
	got := kube.ReadNodeMetric([]byte(wholeMetric))
	if diff := cmp.Diff(want, got.Report); diff != "" || got.Name != "n" || got.Problem != "" {
		t.Errorf("%s, %q (-want +got):\n%s", got.Name, got.Problem, diff)
	}
}

// TestAReportIsWholeIfItHasAllThatRuns: what is not reported of a pod or application is in the node's use alone.
func TestAReportIsWholeIfItHasAllThatRuns(t *testing.T) {
	t.Parallel()
	const use = `{"resources":{"cpu":"1","memory":"1"}}`
	const pod, app = `{"namespace":"d","name":"a","podUsage":` + use + `}`, `{"name":"b","usage":` + use + `}`
	for name, c := range map[string]struct {
		system, pods, apps string
		want               bool
	}{
		"all":                  {use, pod, app, true},
		"no pods":              {use, "", "", true},
		"a part of the system": {`{"resources":{"cpu":"1"}}`, pod, app, false},
		"a part of a pod": {
			use, `{"namespace":"d","name":"a","podUsage":{"resources":{"cpu":"1"}}}`, app, false,
		},
		"a part of an application":    {use, pod, `{"name":"b","usage":{}}`, false},
		"two pods with the same name": {use, pod + "," + pod, app, false},
	} {
		got := kube.ReadNodeMetric([]byte(`{"metadata":{"name":"n"},"status":{"updateTime":"2026-01-01T00:00:00Z",` +
			`"nodeMetric":{"nodeUsage":` + use + `,"systemUsage":` + c.system + `},"podsMetric":[` + c.pods +
			`],"hostApplicationMetric":[` + c.apps + `]}}`))
		if got.Problem != "" || got.Report.Whole != c.want {
			t.Errorf("%s: %+v, %q; want whole: %t", name, got.Report, got.Problem, c.want)
		}
		if c.want && c.apps != "" && got.Report.Apps != (amount.Pair{1000, 1}) {
			t.Errorf("%s: applications use %v", name, got.Report.Apps)
		}
	}
}

func TestNodeMetricsThatCannotBeReadAreExpired(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ old, new, want string }{
		"a use that is not a number": {`"1500m"`, `"NaN"`, "quantities must match"},
		"a negative use":             {`"1500m"`, `"-1"`, "the use -1 of cpu is negative"},
		"a use that takes seconds":   {`"1500m"`, `"1e-9999999"`, "a quantity is out of range"},
		"a time that is not one":     {`"2026-01-01T00:00:00Z"`, `"yesterday"`, "yesterday"},
		"a duration that is not one": {`"5m0s"`, `"5"`, "missing unit"},
		"pods that are no list":      {`"podsMetric":[`, `"podsMetric":0,"x":[`, "podsMetric"},
	} {
		m := kube.ReadNodeMetric([]byte(strings.Replace(wholeMetric, c.old, c.new, 1)))
		if !strings.Contains(m.Problem, c.want) || m.Name != "n" {
			t.Errorf("%s: %s: got %q, want %q", name, m.Name, m.Problem, c.want)
		}
		if (load.Expiry{}).Check(m.Report, time.Now()) != load.Refused {
			t.Errorf("%s: the report counts", name)
		}
	}
	empty := kube.ReadNodeMetric([]byte(`{"metadata":{"name":"n"}}`))
	if empty.Problem != "" || (load.Expiry{}).Check(empty.Report, time.Now()) != load.Refused {
		t.Errorf("a NodeMetric without a status: %q counts", empty.Problem)
	}
}

func FuzzNodeMetric(f *testing.F) {
	f.Add([]byte(wholeMetric))
	f.Add([]byte(`{"status":{"nodeMetric":{"nodeUsage":{"resources":{"cpu":9223372036854775807,"memory":"9E"}}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := kube.ReadNodeMetric(text).Report
		if r == nil || r.Interval < 0 {
			t.Fatalf("%q: %+v", text, r)
		}
		for name, p := range r.Pods {
			for _, n := range p.Use {
				if n < 0 || n > load.Most {
					t.Fatalf("%q: pod %s uses %d", text, name, n)
				}
			}
		}
	})
}

func TestTheInformerOfNodeMetrics(t *testing.T) {
	t.Parallel()
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(strings.Replace(wholeMetric, `{"metadata"`,
		`{"apiVersion":"slo.koordinator.sh/v1alpha1","kind":"NodeMetric","metadata"`, 1))); err != nil {
		t.Fatal(err)
	}
	c, _ := client(t, o)
	loads := kube.NewLoads()
	loads.Enable(convert.LoadSettings{}, time.Minute)
	i := kube.First(kube.Handler(loads.PutMetric, loads.RemoveMetric), kube.NewUsageInformer(c))
	seen := make(chan any, 1)
	handler := cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { seen <- obj }}
	if _, err := i.AddEventHandler(handler); err != nil {
		t.Fatal(err)
	}
	go i.Run(t.Context().Done())
	<-seen
	if got := loads.View("n").Report.Use; *got != (amount.Pair{1500, 1 << 30}) {
		t.Errorf("the node uses %v", *got)
	}
}

// Each agent writes the NodeMetric of its node: none may keep the manager from reading the others.
func TestTheInformerOfWholeNodeMetricsReadsNoSlowQuantity(t *testing.T) {
	t.Parallel()
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(strings.NewReplacer(`{"metadata"`,
		`{"apiVersion":"slo.koordinator.sh/v1alpha1","kind":"NodeMetric","metadata"`, `"1500m"`, `"1e-99999999"`).
		Replace(wholeMetric))); err != nil {
		t.Fatal(err)
	}
	c, _ := client(t, o)
	i := kube.NewNodeMetricInformer(c)
	seen := make(chan any, 1)
	handler := cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { seen <- obj }}
	if _, err := i.AddEventHandler(handler); err != nil {
		t.Fatal(err)
	}
	go i.Run(t.Context().Done())
	if got := (<-seen).(*slo.NodeMetric); got.Name != "n" || got.Status.NodeMetric != nil {
		t.Errorf("got %s with %+v", got.Name, got.Status.NodeMetric)
	}
}

func loadPod(name, node string) *corev1.Pod {
	p := testobject.Pod(name, testobject.Container("c", "i"), testobject.Requests("cpu", "1", "memory", "1Gi"))
	p.Spec.NodeName, p.UID = node, types.UID(name)
	p.Status.StartTime = &metav1.Time{Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	return p
}

func TestLoadsFollowPods(t *testing.T) {
	t.Parallel()
	loads := kube.NewLoads()
	loads.Enable(convert.LoadSettings{Factors: load.Percents{100, 100}}, time.Minute)
	var changed []string
	loads.OnChange(func(node string) { changed = append(changed, node) }, func(string) {})
	h := kube.Handler(loads.PutPod, func(p *corev1.Pod) { loads.RemovePod(p.UID) })
	cpu := func(node string) int64 { return loads.View(node).Use(load.Measure{})[amount.CPU] }
	check := func(what string, onN, onM int64, nodes ...string) {
		t.Helper()
		if cpu("n") != onN || cpu("m") != onM || fmt.Sprint(changed) != fmt.Sprint(nodes) {
			t.Errorf("%s: n uses %d, m uses %d, changed %v; want %d, %d, %v", what, cpu("n"), cpu("m"), changed,
				onN, onM, nodes)
		}
		changed = nil
	}
	a := loadPod("a", "n")
	h.OnAdd(a, true)
	check("a pod is bound", 1000, 0, "n")
	h.OnUpdate(a, a)
	check("nothing changed", 1000, 0)
	pending := loadPod("b", "")
	h.OnAdd(pending, false)
	estimated, _ := loads.Estimate(pending, time.Now())
	loads.Assign("m", estimated)
	check("a pod is reserved", 1000, 1000, "m")
	h.OnUpdate(pending, pending)
	check("its state in the API is older", 1000, 1000)
	bound := loadPod("b", "m")
	h.OnUpdate(pending, bound)
	check("it is bound", 1000, 1000)
	moved := loadPod("b", "n")
	h.OnUpdate(bound, moved)
	check("it is bound to another node", 2000, 0, "n", "m")
	namesake := loadPod("a", "m")
	namesake.UID = "other"
	h.OnAdd(namesake, false)
	check("a namesake", 2000, 1000, "m")
	ended := a.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	h.OnUpdate(a, ended)
	check("it has ended", 1000, 1000, "n")
	h.OnDelete(ended)
	check("it is deleted, too", 1000, 1000)
	h.OnDelete(cache.DeletedFinalStateUnknown{Obj: moved})
	h.OnDelete(namesake)
	check("all are gone", 0, 0, "n", "m")
	if got := loads.Pods("n"); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

// A scheduler that starts between two Bindings reads pods and NodeMetrics in any order, and counts what the one before
// it did.
func TestARestartedSchedulerCountsTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		live, restarted := kube.NewLoads(), kube.NewLoads()
		for _, l := range []*kube.Loads{live, restarted} {
			l.Enable(convert.LoadSettings{Factors: load.Percents{85, 70}}, time.Hour)
		}
		second := func(name string) time.Time {
			return time.Unix(int64(rapid.IntRange(0, 200).Draw(t, name)), 0).UTC()
		}
		var events []func(*kube.Loads)
		report := &load.Report{
			Updated: second("updated"), Interval: time.Minute, Use: &amount.Pair{3000, 1 << 30},
			Pods: map[string]load.PodUse{},
		}
		for i := range rapid.IntRange(0, 5).Draw(t, "pods") {
			bound := loadPod(fmt.Sprint(i), "n")
			at := second("bound")
			bound.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at),
			}}
			if rapid.Bool().Draw(t, "reported") {
				report.Pods["default/"+bound.Name] = load.PodUse{Use: amount.Pair{100, 1 << 20}, Prod: true}
			}
			estimated, _ := live.Estimate(bound, at)
			live.Assign("n", estimated)
			if rapid.Bool().Draw(t, "seen") {
				live.PutPod(bound)
			}
			events = append(events, func(l *kube.Loads) { l.PutPod(bound) })
		}
		metric := &kube.NodeMetric{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Report: report}
		live.PutMetric(metric)
		events = append(events, func(l *kube.Loads) { l.PutMetric(metric) })
		for _, event := range rapid.Permutation(events).Draw(t, "order") {
			event(restarted)
		}
		if got, want := restarted.View("n"), live.View("n"); got != want {
			t.Fatalf("after a restart %+v, before %+v", got, want)
		}
	})
}

func TestReportsExpireOnce(t *testing.T) {
	t.Parallel()
	loads := kube.NewLoads()
	loads.Enable(convert.LoadSettings{}, time.Minute)
	var expired []string
	loads.OnChange(func(string) {}, func(node string) { expired = append(expired, node) })
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	put := func(node string, s int) {
		loads.PutMetric(&kube.NodeMetric{
			ObjectMeta: metav1.ObjectMeta{Name: node}, Report: &load.Report{Updated: at(s)},
		})
	}
	put("a", 0)
	put("b", 10)
	put("never", -62135596800)
	for i, step := range []struct {
		now  int
		want string
	}{{59, "[]"}, {60, "[a]"}, {61, "[]"}, {70, "[b]"}, {500, "[]"}} {
		expired = nil
		loads.Expire(at(step.now))
		if got := fmt.Sprint(expired); got != step.want {
			t.Errorf("step %d: at %d s expire %s, want %s", i, step.now, got, step.want)
		}
	}
	put("a", 490)
	loads.Expire(at(549))
	expired = nil
	if loads.Expire(at(550)); fmt.Sprint(expired) != "[a]" {
		t.Errorf("after a new report expire %v, want [a]", expired)
	}
	put("a", 600)
	loads.RemoveMetric(&kube.NodeMetric{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	expired = nil
	if loads.Expire(at(5000)); len(expired) != 0 {
		t.Errorf("a report that is gone expires: %v", expired)
	}
}
