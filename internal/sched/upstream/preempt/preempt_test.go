package preempt

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func TestMain(m *testing.M) {
	metrics.Register() // the framework cannot do without
	m.Run()
}

// nominator knows no nominated pod.
type nominator struct{ fwk.PodNominator }

func (nominator) NominatedPodsForNode(string) []fwk.PodInfo { return nil }

// activator activates no pod.
type activator struct{ fwk.PodActivator }

func (activator) Activate(klog.Logger, map[string]*corev1.Pod) {}

// fixture is a profile that preempts, on nodes of 4 CPUs.
type fixture struct {
	framework.Framework
	*Chooser
	nodes []fwk.NodeInfo
}

// newFixture returns nodes with pods. The pod that preempts must be one of pods, without a node.
func newFixture(t *testing.T, nodes []string, pods ...*corev1.Pod) *fixture {
	t.Helper()
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	var objects []*corev1.Node
	for _, name := range nodes {
		objects = append(objects, object.Node(name, nil, "cpu", "4", "pods", "10"))
	}
	var bound []*corev1.Pod
	for _, p := range pods {
		testkit.Check(t, factory.Core().V1().Pods().Informer().GetStore().Add(p))
		if p.Spec.NodeName != "" {
			bound = append(bound, p)
		}
	}
	snapshot := cache.NewSnapshot(bound, objects)
	defaults, err := latest.Default()
	testkit.Check(t, err)
	profile := &config.KubeSchedulerProfile{
		SchedulerName: "s", Plugins: &config.Plugins{}, PluginConfig: defaults.Profiles[0].PluginConfig,
	}
	for _, name := range []string{
		names.PrioritySort, names.NodeResourcesFit, names.DefaultPreemption, names.DefaultBinder,
	} {
		profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled,
			config.Plugin{Name: name, Weight: 1})
	}
	f := &fixture{}
	f.Framework, err = frameworkruntime.NewFramework(t.Context(), frameworkplugins.NewInTreeRegistry(), profile,
		frameworkruntime.WithClientSet(client), frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(snapshot), frameworkruntime.WithMutableSnapshotLister(snapshot),
		frameworkruntime.WithEventRecorder(events.NewFakeRecorder(10)),
		frameworkruntime.WithPodActivator(activator{}), frameworkruntime.WithPodNominator(nominator{}),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
	)
	testkit.Check(t, err)
	for _, p := range f.PreEnqueuePlugins() {
		if c := Of(p); c != nil {
			f.Chooser = c
		}
	}
	if f.Chooser == nil {
		t.Fatal("kube-scheduler's preemption is not found among the PreEnqueue plugins")
	}
	for _, name := range nodes {
		info, err := snapshot.NodeInfos().Get(name)
		testkit.Check(t, err)
		f.nodes = append(f.nodes, info)
	}
	return f
}

// pod returns a pod of CPUs and a priority.
func pod(name, node string, cpus int, priority int32, more ...object.PodOption) *corev1.Pod {
	return object.Pod(name, append([]object.PodOption{
		object.On(node), object.Priority(priority), object.Container("c", ""), object.Scheduler("s"),
		object.Requests("cpu", fmt.Sprint(cpus)),
	}, more...)...)
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

// candidates returns the candidates for a pod as node: victims, by name.
func (f *fixture) candidates(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	state := framework.NewCycleState()
	if _, status, _ := f.RunPreFilterPlugins(t.Context(), state, p); !status.IsSuccess() {
		t.Fatal(status)
	}
	budgets, err := f.Budgets()
	testkit.Check(t, err)
	found, err := f.Candidates(t.Context(), state, p, f.nodes, budgets)
	testkit.Check(t, err)
	slices.SortFunc(found, func(a, b Candidate) int { return cmp.Compare(a.Node, b.Node) })
	var out []string
	for _, c := range found {
		slices.SortFunc(c.Victims, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
		out = append(out, c.Node+": "+namesOf(c.Victims))
	}
	return strings.Join(out, "; ")
}

func namesOf(pods []*corev1.Pod) string {
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

func TestEachRuleMustAllowAVictim(t *testing.T) {
	t.Parallel()
	urgent := pod("urgent", "", 4, 9)
	f := newFixture(t, []string{"n"}, pod("a", "n", 1, 1), pod("b", "n", 1, 1), pod("c", "n", 1, 1), urgent)
	if got := f.candidates(t, urgent); got != "n: a b c" {
		t.Errorf("without rules: got %q", got)
	}
	f.Restrict(func(_ fwk.NodeInfo, victim fwk.PodInfo, _ *corev1.Pod) bool { return victim.GetPod().Name != "a" })
	before := f.Rules()
	var asked []string
	f.Restrict(func(node fwk.NodeInfo, victim fwk.PodInfo, preemptor *corev1.Pod) bool {
		asked = append(asked, node.Node().Name+" "+victim.GetPod().Name+" "+preemptor.Name)
		return victim.GetPod().Name != "b"
	})
	for _, info := range f.nodes[0].GetPods() {
		name := info.GetPod().Name
		if got, want := f.Rules()(f.nodes[0], info, urgent), name == "c"; got != want {
			t.Errorf("both rules allow %s: %t", name, got)
		}
		if got, want := before(f.nodes[0], info, urgent), name != "a"; got != want {
			t.Errorf("the first rule allows %s: %t", name, got)
		}
	}
	slices.Sort(asked)
	if want := []string{"n b urgent", "n c urgent"}; !slices.Equal(asked, want) {
		t.Errorf("the second rule was asked %q, want what the first allows: %q", asked, want)
	}
	if got := f.candidates(t, urgent); got != "" {
		t.Errorf("a and b are protected, so that no victims help: got %q", got)
	}
	two := pod("two", "", 2, 9)
	if got := f.candidates(t, two); got != "n: c" {
		t.Errorf("got %q for two CPUs, want c", got)
	}
}

// removing removes the terminating pods before others are chosen.
type removing struct{ Choice }

func (r removing) Victims(ctx context.Context, run *DryRun) ([]*corev1.Pod, int, *fwk.Status) {
	for _, info := range slices.Clone(run.Node.GetPods()) {
		if info.GetPod().DeletionTimestamp != nil {
			if status := run.Remove(ctx, info); !status.IsSuccess() {
				return nil, 0, status
			}
		}
	}
	return r.Choice.Victims(ctx, run)
}

// TestARemovedPodIsNotChosen: the inner choice neither removes it again, which fails, nor returns it.
func TestARemovedPodIsNotChosen(t *testing.T) {
	t.Parallel()
	urgent := pod("urgent", "", 4, 9)
	f := newFixture(t, []string{"n"}, pod("ends", "n", 2, 1, terminating), pod("stays", "n", 2, 1), urgent)
	f.Choose(func(inner Choice) Choice { return removing{inner} })
	if got := f.candidates(t, urgent); got != "n: stays" {
		t.Errorf("got %q, want n: stays", got)
	}
}

// TestADryRunChangesNeitherNodeNorState: both are copies.
func TestADryRunChangesNeitherNodeNorState(t *testing.T) {
	t.Parallel()
	urgent := pod("urgent", "", 4, 9)
	f := newFixture(t, []string{"n"}, pod("a", "n", 2, 1), urgent)
	state := framework.NewCycleState()
	if _, status, _ := f.RunPreFilterPlugins(t.Context(), state, urgent); !status.IsSuccess() {
		t.Fatal(status)
	}
	run := NewDryRun(f, state, urgent, f.nodes[0])
	if run.Fits(t.Context()) {
		t.Error("it fits beside a")
	}
	if status := run.Remove(t.Context(), f.nodes[0].GetPods()[0]); !status.IsSuccess() || !run.Fits(t.Context()) {
		t.Errorf("it does not fit without a: %v", status)
	}
	if status := run.Remove(t.Context(), f.nodes[0].GetPods()[0]); status.IsSuccess() {
		t.Error("a is removed twice")
	}
	if len(f.nodes[0].GetPods()) != 1 {
		t.Error("the node has changed")
	}
}

// layer is a Choice that notes its calls, and prefers a node.
type layer struct {
	Choice
	name    string
	prefers string
	calls   *[]string
}

func (l layer) Sample(nodes int32) (first, enough int32) {
	*l.calls = append(*l.calls, fmt.Sprint(l.name, " samples ", nodes))
	return l.Choice.Sample(nodes)
}

func (l layer) Ranks(ctx context.Context, victims map[string]*extenderv1.Victims) []func(string) int64 {
	*l.calls = append(*l.calls, fmt.Sprint(l.name, " ranks ", len(victims)))
	return append(l.Choice.Ranks(ctx, victims), func(node string) int64 {
		if node == l.prefers {
			return 1
		}
		return 0
	})
}

// TestTheOuterLayerOfAChoiceIsAskedFirst: it asks the inner one, whose rules come first.
func TestTheOuterLayerOfAChoiceIsAskedFirst(t *testing.T) {
	t.Parallel()
	urgent := pod("urgent", "", 4, 9)
	f := newFixture(t, []string{"n0", "n1", "n2"}, pod("a", "n0", 2, 1), pod("b", "n1", 2, 1), pod("c", "n2", 2, 1),
		urgent)
	var calls []string
	f.Choose(func(inner Choice) Choice { return layer{inner, "inner", "n1", &calls} })
	f.Choose(func(inner Choice) Choice { return layer{inner, "outer", "n2", &calls} })
	state, refused := framework.NewCycleState(), framework.NewDefaultNodeToStatus()
	if _, status, _ := f.RunPreFilterPlugins(t.Context(), state, urgent); !status.IsSuccess() {
		t.Fatal(status)
	}
	node, victims, err := f.Best(t.Context(), state, urgent, f.nodes, nil)
	if err != nil || node != "n1" || namesOf(victims) != "b" {
		t.Errorf("got %s with %s: %v, want n1 with b: the inner layer decides before the outer one", node,
			namesOf(victims), err)
	}
	refused.SetAbsentNodesStatus(fwk.NewStatus(fwk.Unschedulable))
	result, status := f.PostFilter(t.Context(), state, urgent, refused)
	if !status.IsSuccess() || result.NominatedNodeName != "n1" {
		t.Errorf("got %v, %v, want a nomination to n1", result, status)
	}
	if want := []string{
		"outer ranks 3", "inner ranks 3", "outer samples 3", "inner samples 3", "outer ranks 3", "inner ranks 3",
	}; !slices.Equal(calls, want) {
		t.Errorf("calls %q, want %q", calls, want)
	}
}

// TestNoVictimsAreBestWhereNoneHelp: an error is one of the dry run alone.
func TestNoVictimsAreBestWhereNoneHelp(t *testing.T) {
	t.Parallel()
	urgent := pod("urgent", "", 8, 9)
	f := newFixture(t, []string{"n"}, pod("a", "n", 2, 1), urgent)
	state := framework.NewCycleState()
	if _, status, _ := f.RunPreFilterPlugins(t.Context(), state, urgent); !status.IsSuccess() {
		t.Fatal(status)
	}
	if node, victims, err := f.Best(t.Context(), state, urgent, f.nodes, nil); err != nil || len(victims) > 0 {
		t.Errorf("got %s with %s: %v", node, namesOf(victims), err)
	}
}

func TestTheOrderDecidesWhoIsSpared(t *testing.T) {
	t.Parallel()
	urgent := pod("urgent", "", 2, 9)
	for spared, victim := range map[string]string{"a": "b", "b": "a"} {
		f := newFixture(t, []string{"n"}, pod("a", "n", 2, 1), pod("b", "n", 2, 1), urgent)
		f.OrderBy(func(x, _ *corev1.Pod) bool { return x.Name == spared })
		if got := f.candidates(t, urgent); got != "n: "+victim {
			t.Errorf("%s is spared: got %q", spared, got)
		}
		if !f.MoreImportant(pod(spared, "", 1, 1), urgent) || f.MoreImportant(urgent, pod(spared, "", 1, 1)) {
			t.Errorf("MoreImportant does not follow the order that spares %s", spared)
		}
	}
}

func TestAPodWhoseVictimsHaveYetToEndMayNotPreempt(t *testing.T) {
	t.Parallel()
	nominated := func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" }
	never := func(p *corev1.Pod) { p.Spec.PreemptionPolicy = new(corev1.PreemptNever) }
	evicted := func(p *corev1.Pod) {
		terminating(p)
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
		}}
	}
	f := newFixture(t, []string{"n"}, pod("victim", "n", 2, 1, evicted))
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"no victims so far": {pod("p", "", 2, 9), true},
		"its victim ends":   {pod("p", "", 2, 9, nominated), false},
		"its policy":        {pod("p", "", 2, 9, never), false},
	} {
		if got := f.MayPreempt(t.Context(), c.pod); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}

// recording is a layer that notes evictions.
type recording struct {
	inner Evictor
	name  string
	calls chan<- string
}

func (r recording) Evict(ctx context.Context, e Eviction) (rejected bool, err error) {
	r.calls <- fmt.Sprintf("%s: %s for %s on %s by %s", r.name, e.Victim.Name, e.By.GetName(), e.Node, e.Plugin)
	if r.inner != nil {
		return r.inner.Evict(ctx, e)
	}
	return true, nil
}

// TestTheOuterLayerEvictsForKubeScheduler: with what it passes on, the inner ones after it.
func TestTheOuterLayerEvictsForKubeScheduler(t *testing.T) {
	t.Parallel()
	urgent := pod("urgent", "", 4, 9)
	f := newFixture(t, []string{"n"}, pod("a", "n", 2, 1), urgent)
	calls := make(chan string, 10)
	f.EvictBy(func(Evictor) Evictor { return recording{nil, "inner", calls} })
	f.EvictBy(func(inner Evictor) Evictor { return recording{inner, "outer", calls} })
	state, refused := framework.NewCycleState(), framework.NewDefaultNodeToStatus()
	if _, status, _ := f.RunPreFilterPlugins(t.Context(), state, urgent); !status.IsSuccess() {
		t.Fatal(status)
	}
	refused.SetAbsentNodesStatus(fwk.NewStatus(fwk.Unschedulable))
	if _, status := f.PostFilter(t.Context(), state, urgent, refused); !status.IsSuccess() {
		t.Fatal(status)
	}
	for _, name := range []string{"outer", "inner"} {
		if got, want := <-calls, name+": a for urgent on n by DefaultPreemption"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestOnlyDefaultPreemptionIsAChooser(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	for _, e := range f.EnqueueExtensions() {
		if got, want := Of(e) != nil, e.Name() == names.DefaultPreemption; got != want {
			t.Errorf("%s is a chooser: %t", e.Name(), got)
		}
	}
}
