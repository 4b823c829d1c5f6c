package elasticquota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// fixture is the plugin in a real framework with NodeResourcesFit, on two nodes of ten CPUs.
type fixture struct {
	*Plugin
	framework framework.Framework
	client    *fake.Clientset
	informers informers.SharedInformerFactory
	snapshot  *cache.Snapshot
	pods      []*corev1.Pod
	nodes     []*corev1.Node
	woken     *woken
	nominated map[string][]fwk.PodInfo
	events    chan string
}

// woken remembers the pods that were activated.
type woken struct {
	mu    sync.Mutex
	names []string
	more  chan struct{}
}

func (w *woken) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range pods {
		w.names = append(w.names, name)
	}
	w.more <- struct{}{}
}

type nominator struct {
	fwk.PodNominator
	byNode map[string][]fwk.PodInfo
}

func (n nominator) NominatedPodsForNode(node string) []fwk.PodInfo { return n.byNode[node] }

// shared is a snapshot that tests replace.
type shared struct {
	fwk.MutableSnapshotSharedLister
	fixture *fixture
}

func (s shared) NodeInfos() fwk.NodeInfoLister       { return s.fixture.snapshot.NodeInfos() }
func (s shared) StorageInfos() fwk.StorageInfoLister { return s.fixture.snapshot.StorageInfos() }

func (s shared) PodGroupStates() fwk.PodGroupStateLister { return s.fixture.snapshot.PodGroupStates() }

func newFixture(t testing.TB, args string) *fixture {
	t.Helper()
	metrics.Register() // upstream's; the framework cannot do without
	f := &fixture{
		client: fake.NewClientset(), woken: &woken{more: make(chan struct{}, 100)},
		nominated: map[string][]fwk.PodInfo{}, snapshot: cache.NewEmptySnapshot(),
	}
	f.informers = informers.NewSharedInformerFactory(f.client, 0)
	recorder := events.NewFakeRecorder(10)
	f.events = recorder.Events
	quotas := kube.NewQuotas(func() time.Time { return time.Unix(1_800_000_000, 0) })
	var made fwk.Plugin
	registry := frameworkplugins.NewInTreeRegistry()
	factory := Factory(quotas, NewMetrics(basemetrics.NewKubeRegistry().MustRegister))
	registry[Name] = func(ctx context.Context, args runtime.Object, h fwk.Handle) (p fwk.Plugin, err error) {
		made, err = factory(ctx, args, h)
		return made, err
	}
	profile := &config.KubeSchedulerProfile{SchedulerName: "s", Plugins: &config.Plugins{}}
	for _, name := range []string{names.PrioritySort, names.NodeResourcesFit, Name, names.DefaultBinder} {
		multi := &profile.Plugins.MultiPoint
		multi.Enabled = append(multi.Enabled, config.Plugin{Name: name, Weight: 1})
	}
	defaults, err := latest.Default()
	testkit.Check(t, err)
	profile.PluginConfig = defaults.Profiles[0].PluginConfig
	if args != "" {
		profile.PluginConfig = append(profile.PluginConfig, config.PluginConfig{
			Name: Name, Args: &runtime.Unknown{Raw: []byte(args), ContentType: runtime.ContentTypeJSON},
		})
	}
	f.framework, err = frameworkruntime.NewFramework(t.Context(), registry, profile,
		frameworkruntime.WithClientSet(f.client), frameworkruntime.WithInformerFactory(f.informers),
		frameworkruntime.WithSnapshotSharedLister(shared{fixture: f}),
		frameworkruntime.WithMutableSnapshotLister(shared{fixture: f}), frameworkruntime.WithEventRecorder(recorder),
		frameworkruntime.WithPodActivator(f.woken), frameworkruntime.WithPodNominator(nominator{byNode: f.nominated}),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
	)
	testkit.Check(t, err)
	f.Plugin = made.(*Plugin)
	for _, name := range []string{"n", "m"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Allocatable = object.List("cpu", "10", "pods", "100")
		f.nodes = append(f.nodes, n)
		f.quotas.PutNode(n)
	}
	f.refresh()
	return f
}

func (f *fixture) refresh() { f.snapshot = cache.NewSnapshot(f.pods, f.nodes) }

func elastic(name, parent, least, most string, isParent bool) *v1alpha1.ElasticQuota {
	return object.Quota("quotas/"+name, object.List("cpu", least), object.List("cpu", most),
		annotation.QuotaParent, parent, annotation.QuotaIsParent, fmt.Sprint(isParent))
}

// tree is eng 8/12 { train 4/10, serve 4/10 } in a cluster of 20 CPUs.
func (f *fixture) tree() {
	f.quotas.PutQuota(elastic("eng", "", "8", "12", true))
	f.quotas.PutQuota(elastic("train", "eng", "4", "10", false))
	f.quotas.PutQuota(elastic("serve", "eng", "4", "10", false))
}

// put adds a pod to the API server, the account and, when it is bound, to its node.
func (f *fixture) put(
	t *testing.T,
	name, quotaName, node string,
	cpus, priority int,
	more ...func(*corev1.Pod),
) *corev1.Pod {
	t.Helper()
	at := metav1.NewTime(time.Unix(1_800_000_000, 0))
	pod := object.Pod("x/"+name, object.On(node), object.Priority(int32(priority)), object.Scheduler("s"),
		object.Label(annotation.QuotaName, quotaName), object.Container("c", ""),
		object.Requests("cpu", fmt.Sprint(cpus)))
	pod.Status.StartTime = &at
	for _, change := range more {
		change(pod)
	}
	testkit.Check(t, f.informers.Core().V1().Pods().Informer().GetStore().Add(pod))
	if _, err := f.client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.quotas.PutPod(pod)
	if node != "" {
		f.pods = append(f.pods, pod)
		f.refresh()
	}
	return pod
}

func (f *fixture) remove(pod *corev1.Pod) {
	f.quotas.RemovePod(pod)
	f.pods = slices.DeleteFunc(f.pods, func(p *corev1.Pod) bool { return p.UID == pod.UID })
	f.refresh()
}

// attempt is a scheduling cycle up to the choice of a node: the refusal of PreFilter or Filter, then what PostFilter
// says.
func (f *fixture) attempt(t *testing.T, pod *corev1.Pod) (refused *fwk.Status, preempts string, said string) {
	t.Helper()
	cs := framework.NewCycleState()
	nodes := framework.NewDefaultNodeToStatus()
	_, refused, _ = f.framework.RunPreFilterPlugins(t.Context(), cs, pod)
	if refused.IsSuccess() {
		all, err := f.snapshot.NodeInfos().List()
		testkit.Check(t, err)
		for _, n := range all {
			status := f.framework.RunFilterPluginsWithNominatedPods(t.Context(), cs, pod, n)
			if status.IsSuccess() {
				return nil, "", ""
			}
			nodes.Set(n.Node().Name, status)
			refused = status
		}
	} else {
		nodes.SetAbsentNodesStatus(refused)
	}
	result, status := f.framework.RunPostFilterPlugins(t.Context(), cs, pod, nodes)
	if status.IsSuccess() {
		return refused, result.NominatedNodeName, ""
	}
	return refused, "", status.Message()
}

// placed returns the pods of each node of the snapshot, in the order that it has them.
func (f *fixture) placed(t *testing.T) map[string][]string {
	t.Helper()
	all, err := f.snapshot.NodeInfos().List()
	testkit.Check(t, err)
	out := map[string][]string{}
	for _, n := range all {
		for _, p := range n.GetPods() {
			out[n.Node().Name] = append(out[n.Node().Name], p.GetPod().Name)
		}
	}
	return out
}

// deleted returns which of the pods are gone from the API server.
func (f *fixture) deleted(t *testing.T, pods ...*corev1.Pod) []string {
	t.Helper()
	var gone []string
	for _, p := range pods {
		if _, err := f.client.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{}); err != nil {
			gone = append(gone, p.Name)
		}
	}
	return gone
}

// Q24: users cannot find out why a pod is refused.
func TestAPodAboveItsQuotaIsRefusedWithTheNumbers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.tree()
	f.put(t, "held", "serve", "n", 8, 0)
	small, large := f.put(t, "small", "train", "", 2, 0), f.put(t, "large", "train", "", 9, 0)
	if refused, _, _ := f.attempt(t, small); !refused.IsSuccess() {
		t.Errorf("a pod within the runtime is refused: %v", refused)
	}
	refused, preempts, said := f.attempt(t, large)
	want := "Insufficient quotas, quotaName: train, runtime: cpu:6, used: cpu:0, pod's request: cpu:9, " +
		"exceedDimensions: [cpu], path: eng/train"
	if refused.Code() != fwk.Unschedulable || refused.Plugin() != Name || refused.Message() != want {
		t.Errorf("refused with %v %q by %q, want %q", refused.Code(), refused.Message(), refused.Plugin(), want)
	}
	if preempts != "" || !strings.Contains(said, "no victims in the pod's quota") {
		t.Errorf("preempts on %q: %q, want no victim", preempts, said)
	}
	r, ok := errors.AsType[*refusal](refused.AsError())
	if !ok {
		t.Fatalf("the status has a %T", refused.AsError())
	}
	found := r.Finding()
	if diff := cmp.Diff(why.Reason{
		Code: why.QuotaExceeded, Resource: why.CPU, Unit: why.MilliCPU, Asked: 9000, Free: 6000,
	}, found.Reason); diff != "" {
		t.Errorf("reason (-want +got):\n%s", diff)
	}
}

func TestAPodOfAGangIsRefusedWithWhatTheGangNeeds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.tree()
	inGang := func(p *corev1.Pod) { p.Labels["pod-group.scheduling.sigs.k8s.io/name"] = "g" }
	f.quotas.SetGang("x/g", gang.Bond{Least: 3})
	f.put(t, "low", "train", "n", 2, 0)
	first, second := f.put(t, "g0", "train", "", 4, 5, inGang), f.put(t, "g1", "train", "", 4, 5, inGang)
	if refused, _, _ := f.attempt(t, first); !refused.IsSuccess() {
		t.Errorf("two of the gang fit and a third has not come: %v", refused)
	}
	f.put(t, "g2", "train", "", 4, 5, inGang)
	for _, p := range []*corev1.Pod{first, second} {
		refused, preempts, _ := f.attempt(t, p)
		if !strings.Contains(refused.Message(), "request: cpu:12") ||
			!strings.HasSuffix(refused.Message(), "together with 2 more of its gang") {
			t.Errorf("refused with %q, want what three ask for", refused.Message())
		}
		if preempts != "" {
			t.Errorf("a pod is evicted on %s, and the gang does not fit without it", preempts)
		}
	}
}

func TestPlainPodsAreNotHeldUp(t *testing.T) {
	f := newFixture(t, "")
	plain := f.put(t, "plain", "", "", 1, 0)
	skips := func(when string) {
		t.Helper()
		cs := framework.NewCycleState()
		if _, s, _ := f.framework.RunPreFilterPlugins(t.Context(), cs, plain); !s.IsSuccess() {
			t.Fatalf("%s: refused: %v", when, s)
		}
		if !cs.GetSkipFilterPlugins().Has(Name) {
			t.Errorf("%s: the filter is asked for a plain pod, so it has no ranking", when)
		}
	}
	skips("without quotas")
	f.tree()
	skips("beside quotas")
	if fragments, s := f.SignPod(t.Context(), plain); len(fragments) != 0 || !s.IsSuccess() {
		t.Errorf("signed with %v, %v", fragments, s)
	}
	if n := testing.AllocsPerRun(100, func() { f.quotas.Limits(plain) }); n != 0 {
		t.Errorf("%v allocations to find that no quota limits a pod", n)
	}
}

// TestPreemptionRemainsInsideTheQuota, and takes the least that helps, of the snapshot nothing.
//
// Q8: pods of the default quota are evicted. Q11: a dry run changes the list of pods that it walks. Q13: no preemption
// when everything is used.
func TestPreemptionRemainsInsideTheQuota(t *testing.T) {
	t.Parallel()
	firm := func(p *corev1.Pod) { p.Labels[annotation.QuotaPreemptible] = "false" }
	gang := func(p *corev1.Pod) { p.Labels["pod-group.scheduling.sigs.k8s.io"] = "g" }
	for name, c := range map[string]struct {
		args  string
		setUp func(*testing.T, *fixture)
		pod   func(*testing.T, *fixture) *corev1.Pod
		node  string
		said  string
	}{
		"a pod of the same quota and lower priority": {
			setUp: func(t *testing.T, f *fixture) {
				f.put(t, "victim", "train", "m", 6, 0)
				f.put(t, "outsider", "serve", "n", 6, 0)
			},
			pod: func(t *testing.T, f *fixture) *corev1.Pod { return f.put(t, "p", "train", "", 4, 5) }, node: "m",
		},
		"the lower of two": {
			setUp: func(t *testing.T, f *fixture) {
				f.put(t, "victim", "train", "n", 5, 1)
				f.put(t, "spared", "train", "n", 5, 2)
			},
			pod: func(t *testing.T, f *fixture) *corev1.Pod { return f.put(t, "p", "train", "", 5, 5) }, node: "n",
		},
		"one of many in a quota that is full, for one CPU more": {
			setUp: func(t *testing.T, f *fixture) {
				f.put(t, "victim", "train", "n", 1, 1)
				for i := range 9 {
					f.put(t, fmt.Sprint("spared", i), "train", "n", 1, 2)
				}
			},
			pod: func(t *testing.T, f *fixture) *corev1.Pod { return f.put(t, "p", "train", "", 1, 5) }, node: "n",
		},
		"a level above that is full, of its own quota": {
			setUp: func(t *testing.T, f *fixture) {
				f.put(t, "victim", "train", "n", 6, 0)
				f.put(t, "outsider", "serve", "m", 6, 0)
			},
			pod: func(t *testing.T, f *fixture) *corev1.Pod { return f.put(t, "p", "train", "", 1, 5) }, node: "n",
		},
		"a outsider never": {
			setUp: func(t *testing.T, f *fixture) { f.put(t, "outsider", "serve", "n", 10, 0) },
			pod:   func(t *testing.T, f *fixture) *corev1.Pod { return f.put(t, "p", "train", "", 4, 5) },
			said:  "no victims in the pod's quota",
		},
		"a pod that is not preemptible never": {
			setUp: func(t *testing.T, f *fixture) { f.put(t, "spared", "train", "n", 10, 0, firm) },
			pod:   func(t *testing.T, f *fixture) *corev1.Pod { return f.put(t, "p", "train", "", 4, 5) },
			said:  "no victims in the pod's quota",
		},
		"a pod of its own gang never": {
			setUp: func(t *testing.T, f *fixture) { f.put(t, "spared", "train", "n", 10, 0, gang) },
			pod:   func(t *testing.T, f *fixture) *corev1.Pod { return f.put(t, "p", "train", "", 4, 5, gang) },
			said:  "no victims in the pod's quota",
		},
		"a pod of the same priority never": {
			setUp: func(t *testing.T, f *fixture) { f.put(t, "spared", "train", "n", 10, 5) },
			pod:   func(t *testing.T, f *fixture) *corev1.Pod { return f.put(t, "p", "train", "", 4, 5) },
			said:  "no victims in the pod's quota",
		},
		"for want of a node, too": {
			setUp: func(t *testing.T, f *fixture) {
				f.put(t, "plain-n", "", "n", 6, 0)
				f.put(t, "plain-m", "", "m", 4, 0)
				f.put(t, "victim", "train", "m", 4, 0)
			},
			pod: func(t *testing.T, f *fixture) *corev1.Pod { return f.put(t, "p", "train", "", 5, 5) }, node: "m",
		},
		"a plain pod takes no pod of a quota": {
			setUp: func(t *testing.T, f *fixture) {
				f.put(t, "team", "train", "n", 10, 0)
				f.put(t, "victim", "", "m", 10, 0)
			},
			pod: func(t *testing.T, f *fixture) *corev1.Pod { return f.put(t, "p", "", "", 4, 5) }, node: "m",
		},
		"not even from a node where it takes another": {
			setUp: func(t *testing.T, f *fixture) {
				f.put(t, "team", "train", "n", 5, 0)
				f.put(t, "victim", "", "n", 5, 1)
				f.put(t, "equal", "", "m", 10, 5)
			},
			pod: func(t *testing.T, f *fixture) *corev1.Pod { return f.put(t, "p", "", "", 5, 5) }, node: "n",
		},
		"a pod that may not preempt has no victim": {
			setUp: func(t *testing.T, f *fixture) {
				f.put(t, "equal-n", "", "n", 10, 0)
				f.put(t, "equal-m", "", "m", 10, 0)
			},
			pod: func(t *testing.T, f *fixture) *corev1.Pod {
				return f.put(t, "p", "", "", 4, 5, func(p *corev1.Pod) {
					p.Spec.PreemptionPolicy = new(corev1.PreemptNever)
				})
			},
			said: "not eligible",
		},
		"the default quota's max does not preempt": {
			args:  `{"defaultQuotaGroupMax":{"cpu":"4"}}`,
			setUp: func(t *testing.T, f *fixture) { f.put(t, "spared", "", "n", 4, 0) },
			pod:   func(t *testing.T, f *fixture) *corev1.Pod { return f.put(t, "p", "", "", 4, 5) },
			said:  "the quota allows none",
		},
		"unless the argument allows it": {
			args:  `{"defaultQuotaGroupMax":{"cpu":"4"},"disableDefaultQuotaPreemption":false}`,
			setUp: func(t *testing.T, f *fixture) { f.put(t, "victim", "", "n", 4, 0) },
			pod:   func(t *testing.T, f *fixture) *corev1.Pod { return f.put(t, "p", "", "", 4, 5) }, node: "n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, c.args)
			f.tree()
			c.setUp(t, f)
			others := slices.Clone(f.pods)
			pod := c.pod(t, f)
			before := f.placed(t)
			refused, node, said := f.attempt(t, pod)
			if refused.IsSuccess() || node != c.node || !strings.Contains(said, c.said) {
				t.Fatalf("refused %v; preempts on %q, %q; want node %q, %q", refused, node, said, c.node, c.said)
			}
			if diff := cmp.Diff(before, f.placed(t)); diff != "" {
				t.Errorf("the snapshot changed (-before +after):\n%s", diff)
			}
			var want []string
			if c.node != "" {
				want = []string{"victim"}
			}
			gone := f.deleted(t, others...)
			for end := time.Now().Add(5 * time.Second); len(gone) < len(want) && time.Now().Before(end); {
				time.Sleep(time.Millisecond) //nolint:forbidigo // evictions run in a goroutine of upstream
				gone = f.deleted(t, others...)
			}
			if !slices.Equal(gone, want) {
				t.Errorf("evicted %v, want %v", gone, want)
			}
		})
	}
}

func TestReserveChecksAgainAndUnreserveTakesItBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.tree()
	a, b := f.put(t, "a", "train", "", 6, 0), f.put(t, "b", "train", "", 6, 0)
	used := func() int64 {
		r, _ := f.quotas.Report("eng")
		return r.Used["cpu"]
	}
	for _, p := range []*corev1.Pod{a, b} {
		if refused, _, _ := f.attempt(t, p); !refused.IsSuccess() {
			t.Fatalf("%s: %v", p.Name, refused)
		}
	}
	if s := f.Reserve(t.Context(), framework.NewCycleState(), a, "n"); !s.IsSuccess() {
		t.Fatal(s)
	}
	planned := framework.NewCycleState()
	Planned(planned)
	for _, cs := range []fwk.CycleState{planned, planned, framework.NewCycleState()} {
		if s := f.Reserve(t.Context(), cs, b, "n"); s.Code() != fwk.Unschedulable {
			t.Errorf("two pods of six CPUs within ten: %v", s)
		}
	}
	counted, err := testutil.GetCounterMetricValue(f.metrics.refusals.WithLabelValues("runtime", "Reserve"))
	if err != nil || counted != 1 {
		t.Errorf("%v refusals are counted, %v; want 1: two belong to a plan", counted, err)
	}
	if f.quotas.Grew("b") {
		t.Error("nothing has changed since the refusal")
	}
	for range 2 {
		f.Unreserve(t.Context(), nil, a, "n")
		if used() != 0 || !f.quotas.Grew("b") {
			t.Errorf("after a failed bind %d are used, the other pod wakes: %t", used(), f.quotas.Grew("b"))
		}
	}
	if s := f.Reserve(t.Context(), framework.NewCycleState(), b, "n"); !s.IsSuccess() || used() != 6000 {
		t.Errorf("%v, %d used", s, used())
	}
	bound := b.DeepCopy()
	bound.Spec.NodeName = "n"
	f.quotas.PutPod(bound)
	f.Unreserve(t.Context(), nil, b, "n")
	if used() != 6000 {
		t.Error("a pod that the API server says is bound lost its quota")
	}
}

func TestEventsWakeOnlyPodsThatTheyCanHelp(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.tree()
	held, other := f.put(t, "held", "train", "n", 8, 9), f.put(t, "other", "", "m", 1, 9)
	pod := f.put(t, "p", "train", "", 4, 0)
	if refused, _, _ := f.attempt(t, pod); refused.IsSuccess() {
		t.Fatal("the pod is admitted")
	}
	registered, err := f.EventsToRegister(t.Context())
	testkit.Check(t, err)
	var resources []string
	for _, e := range registered {
		resources = append(resources, string(e.Event.Resource))
	}
	slices.Sort(resources)
	if diff := cmp.Diff([]string{
		"Node", "Pod", "elasticquotas.v1alpha1.scheduling.sigs.k8s.io", "elasticquotas.v1alpha1.scheduling.x-k8s.io",
	}, resources); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	hint := func(old, object any) fwk.QueueingHint {
		h, err := registered[0].QueueingHintFn(klog.Background(), pod, old, object)
		testkit.Check(t, err)
		return h
	}
	f.remove(other)
	if hint(other, nil) != fwk.QueueSkip {
		t.Error("the end of a plain pod wakes the pod")
	}
	if hint(pod, pod) != fwk.Queue {
		t.Error("a change of the pod itself does not wake it")
	}
	f.quotas.PutQuota(elastic("train", "eng", "4", "10", false))
	if hint(nil, nil) != fwk.QueueSkip {
		t.Error("a quota that is the same wakes the pod")
	}
	f.remove(held)
	if hint(held, nil) != fwk.Queue {
		t.Error("the end of a pod of the quota does not wake the pod")
	}
}

// TestAPendingPodThatLeavesWakesOthers: the queue has no event for it, and what it asked for is divided anew.
func TestAPendingPodThatLeavesWakesOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.tree()
	rival, pod := f.put(t, "rival", "serve", "", 10, 0), f.put(t, "p", "train", "", 8, 0)
	if refused, _, _ := f.attempt(t, pod); refused.IsSuccess() {
		t.Fatal("twelve CPUs are divided in halves, and a pod of eight is admitted")
	}
	f.remove(rival)
	select {
	case <-f.woken.more:
	case <-time.After(10 * time.Second):
		t.Fatal("no pod was woken")
	}
	f.woken.mu.Lock()
	defer f.woken.mu.Unlock()
	if !slices.Equal(f.woken.names, []string{"x/p"}) {
		t.Errorf("woken %v, want x/p", f.woken.names)
	}
}

func TestAQuotaThatDoesNotExist(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.tree()
	pod := f.put(t, "p", "absent", "", 4, 0)
	if refused, _, _ := f.attempt(t, pod); !refused.IsSuccess() {
		t.Errorf("refused: %v", refused)
	}
	cs := framework.NewCycleState()
	for range 3 { // a plan reserves and releases a pod many times
		if s := f.Reserve(t.Context(), cs, pod, "n"); !s.IsSuccess() {
			t.Fatal(s)
		}
		f.Unreserve(t.Context(), cs, pod, "n")
	}
	if len(f.events) > 0 {
		t.Errorf("event %q before the pod is bound", <-f.events)
	}
	f.PostBind(t.Context(), cs, pod, "n")
	select {
	case e := <-f.events:
		if !strings.Contains(e, "QuotaNotFound") || len(f.events) > 0 {
			t.Errorf("event %q and %d more, want one about the quota", e, len(f.events))
		}
	default:
		t.Error("no event")
	}

	f = newFixture(t, `{"missingQuotaPolicy":"Reject"}`)
	pod = f.put(t, "p", "absent", "", 4, 0)
	refused, _, _ := f.attempt(t, pod)
	if refused.Code() != fwk.UnschedulableAndUnresolvable ||
		!strings.Contains(refused.Message(), `"absent" does not exist`) {
		t.Errorf("got %v %q", refused.Code(), refused.Message())
	}
	if f.quotas.Grew("p") {
		t.Error("nothing has changed")
	}
	f.quotas.PutQuota(elastic("absent", "", "0", "4", false))
	if !f.quotas.Grew("p") {
		t.Error("the quota exists now, and the pod sleeps")
	}
}

// TestARestartDecidesAlike is U4: a scheduler that starts now has the same account.
func TestARestartDecidesAlike(t *testing.T) {
	t.Parallel()
	f, again := newFixture(t, ""), newFixture(t, "")
	f.tree()
	f.put(t, "a", "train", "n", 5, 0)
	f.put(t, "b", "serve", "m", 4, 0)
	f.put(t, "c", "train", "", 4, 0)
	gone := f.put(t, "gone", "train", "m", 2, 0)
	f.remove(gone)
	again.put(t, "c", "train", "", 4, 0)
	again.put(t, "b", "serve", "m", 4, 0)
	again.put(t, "a", "train", "n", 5, 0)
	again.tree()
	hash := func(f *fixture) (h uint64) {
		f.quotas.Read(func(a *quota.Account) { h = a.Hash() })
		return h
	}
	if hash(f) != hash(again) {
		t.Errorf("(-restarted +live):\n%s", cmp.Diff(again.quotas.Reports(), f.quotas.Reports()))
	}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.tree()
	f.put(t, "a", "train", "n", 5, 0)
	all := func(string) bool { return true }
	endpoint := func(path string) func(query string, mayRead func(string) bool) string {
		for _, e := range f.Diagnostics().Endpoints {
			if e.Path == path {
				return func(query string, mayRead func(string) bool) string {
					r := httptest.NewRequest(http.MethodGet, "/?"+query, nil)
					r.SetPathValue("name", "train")
					text, err := json.Marshal(e.Answer(r, mayRead))
					testkit.Check(t, err)
					return string(text)
				}
			}
		}
		t.Fatalf("no endpoint %s", path)
		return nil
	}
	for _, path := range []string{"quota/{name}", "quotas/{name}"} {
		text := endpoint(path)("includePods=true", all)
		for _, want := range []string{
			`"name":"train"`, `"parentName":"eng"`, `"path":["eng","train"]`, `"runtime":{"cpu":"5"}`,
			`"used":{"cpu":"5"}`,
			`"max":{"cpu":"10"}`, `"exactShare":{"cpu":"5000.000"}`, `"podCache":{"x/a":{"isAssigned":true,`,
			`"trace":{"cpu":{"total":5000,"effectiveMin":4000,"limited":5000,"base":4000,"pool":1000,"rounds":[{`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %s:\n%s", path, want, text)
			}
		}
	}
	if text := endpoint("quotas")("", all); !strings.Contains(text, `"koordinator-default-quota":{`) ||
		!strings.Contains(text, `"serve":{`) || strings.Contains(text, "podCache") {
		t.Errorf("quotas: %s", text)
	}
	if text := endpoint("quota/{name}")("", func(string) bool { return false }); text != "null" {
		t.Errorf("a caller without rights sees %s", text)
	}
	hidden := endpoint("quota/{name}")("includePods=true", func(namespace string) bool { return namespace == "quotas" })
	if !strings.Contains(hidden, `"podsHidden":1`) || strings.Contains(hidden, "x/a") {
		t.Errorf("a caller who may not read the pod sees %s", hidden)
	}
}

func TestProfilesThatPreemptTwiceAreRefused(t *testing.T) {
	t.Parallel()
	plugins := func(names ...string) *config.Plugins {
		p := &config.Plugins{}
		for _, name := range names {
			p.PostFilter.Enabled = append(p.PostFilter.Enabled, config.Plugin{Name: name})
		}
		return p
	}
	if err := Exclusive(plugins(Name, names.DynamicResources)); err != nil {
		t.Error(err)
	}
	if err := Exclusive(plugins(names.DefaultPreemption)); err != nil {
		t.Error(err)
	}
	err := Exclusive(plugins(Name, names.DefaultPreemption))
	if err == nil || !strings.Contains(err.Error(), "disable") {
		t.Errorf("got %v, want what to disable", err)
	}
}

func TestProfilesMustAgreeOnArguments(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	other := Factory(f.quotas, f.metrics)
	if _, err := other(t.Context(), &runtime.Unknown{Raw: []byte(`{"enableMinQuotaScale":false}`)}, f.framework); err == nil ||
		!strings.Contains(err.Error(), "equal arguments") {
		t.Errorf("got %v", err)
	}
	if _, err := other(t.Context(), &runtime.Unknown{Raw: []byte(`{"missingQuotaPolicy":"Ask"}`)}, f.framework); err == nil ||
		!strings.Contains(err.Error(), `"Default", "Reject"`) {
		t.Errorf("got %v", err)
	}
}

// TestADryRunWithoutATrialOfQuotasChangesNothing: the pod is one that no quota limits, or has no cycle.
func TestADryRunWithoutATrialOfQuotasChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "{}")
	victim, err := framework.NewPodInfo(object.Pod("victim"))
	testkit.Check(t, err)
	for _, c := range []*cycle{nil, {}} {
		cs := framework.NewCycleState()
		if c != nil {
			cs.Write(stateKey, c)
		}
		for _, status := range []*fwk.Status{
			f.RemovePod(t.Context(), cs, nil, victim, nil), f.AddPod(t.Context(), cs, nil, victim, nil),
		} {
			if status != nil {
				t.Errorf("with cycle %v: %v", c, status)
			}
		}
	}
}
