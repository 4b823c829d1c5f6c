package refusals

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/upstream/snapshot"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// plugin answers from two functions; nil ones accept.
type plugin struct {
	name      string
	preFilter func(pod *corev1.Pod) (*fwk.PreFilterResult, *fwk.Status)
	filter    func(node string) *fwk.Status
}

func (p *plugin) Name() string                                         { return p.name }
func (p *plugin) Less(fwk.QueuedEntityInfo, fwk.QueuedEntityInfo) bool { return false }
func (p *plugin) PreFilterExtensions() fwk.PreFilterExtensions         { return nil }

func (p *plugin) Bind(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status { return nil }

func (p *plugin) PreFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod,
	_ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	if p.preFilter == nil {
		return nil, nil
	}
	return p.preFilter(pod)
}

func (p *plugin) Filter(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, n fwk.NodeInfo) *fwk.Status {
	if p.filter == nil {
		return nil
	}
	return p.filter(n.Node().Name)
}

// nominations are pods by node.
type nominations map[string][]fwk.PodInfo

func (nominations) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (nominations) DeleteNominatedPodIfExists(*corev1.Pod)                        {}
func (nominations) UpdateNominatedPod(klog.Logger, *corev1.Pod, fwk.PodInfo)      {}
func (n nominations) NominatedPodsForNode(node string) []fwk.PodInfo              { return n[node] }

func profile(t *testing.T, lister fwk.SharedLister, nominated nominations, plugins ...*plugin) framework.Framework {
	t.Helper()
	metrics.Register()
	registry := frameworkruntime.Registry{}
	enabled := config.PluginSet{}
	for _, p := range plugins {
		registry[p.name] = func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return p, nil }
		enabled.Enabled = append(enabled.Enabled, config.Plugin{Name: p.name})
	}
	first := config.PluginSet{Enabled: enabled.Enabled[:1]}
	f, err := frameworkruntime.NewFramework(t.Context(), registry, &config.KubeSchedulerProfile{
		SchedulerName: "tenon-scheduler",
		Plugins:       &config.Plugins{QueueSort: first, Bind: first, PreFilter: enabled, Filter: enabled},
	}, frameworkruntime.WithSnapshotSharedLister(lister), frameworkruntime.WithPodNominator(nominated))
	testkit.Check(t, err)
	return f
}

func node(name string) *corev1.Node {
	return object.Node(name, nil, "cpu", "4", "memory", "8Gi", "pods", "1", "example.com/card", "2")
}

func asking(cpu, memory string) *corev1.Pod {
	return object.Pod("d/a", object.Scheduler("tenon-scheduler"),
		object.Requests("cpu", cpu, "memory", memory, "example.com/card", "3"))
}

type typedRefusal struct{ why.Reason }

func (r typedRefusal) Error() string        { return "ours" }
func (r typedRefusal) Finding() why.Finding { return why.Finding{Reason: r.Reason, Detail: "exactly"} }

func TestEveryFilterIsHeardOnEveryNode(t *testing.T) {
	nodes := cache.NewSnapshot(nil, []*corev1.Node{node("n0"), node("n1"), node("n2"), node("n3")})
	reject := func(text string, on ...string) func(string) *fwk.Status {
		return func(n string) *fwk.Status {
			if slices.Contains(on, n) {
				return fwk.NewStatus(fwk.Unschedulable, text)
			}
			return nil
		}
	}
	ours := func(n string) *fwk.Status {
		if n != "n1" {
			return nil
		}
		return fwk.NewStatus(fwk.Unschedulable).WithError(typedRefusal{why.Reason{
			Code: why.SMTAlignment, Asked: 3,
			Extra: 2,
		}})
	}
	f := profile(t, nodes, nominations{},
		&plugin{name: names.NodeAffinity, filter: reject("wrong label", "n0", "n1")},
		&plugin{name: names.NodeResourcesFit, filter: reject("Insufficient cpu", "n1", "n2")},
		&plugin{name: "Ours", filter: ours})
	v, err := Of(t.Context(), f, asking("6", "1Gi"))
	testkit.Check(t, err)
	shortage := why.Reason{Code: why.InsufficientCPU, Resource: why.CPU, Unit: why.MilliCPU, Asked: 6000, Free: 4000}
	want := []why.Finding{
		{
			Reason: why.Reason{Code: why.NodeAffinity}, Plugin: names.NodeAffinity, Phase: why.Filter, Object: "n0",
			Detail: "wrong label",
		},
		{
			Reason: why.Reason{Code: why.NodeAffinity}, Plugin: names.NodeAffinity, Phase: why.Filter, Object: "n1",
			Detail: "wrong label",
		},
		{Reason: shortage, Plugin: names.NodeResourcesFit, Phase: why.Filter, Object: "n1"},
		{
			Reason: why.Reason{Code: why.SMTAlignment, Asked: 3, Extra: 2}, Plugin: "Ours", Phase: why.Filter,
			Object: "n1", Detail: "exactly",
		},
		{Reason: shortage, Plugin: names.NodeResourcesFit, Phase: why.Filter, Object: "n2"},
	}
	slices.SortStableFunc(v.Findings, func(a, b why.Finding) int { return strings.Compare(a.Object, b.Object) })
	if diff := cmp.Diff(want, v.Findings); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if v.Feasible != 1 || v.Nodes != 4 || !v.Served {
		t.Errorf("got %d of %d nodes, served %t; want 1 of 4, served", v.Feasible, v.Nodes, v.Served)
	}
}

func TestARefusalBeforeTheFiltersIsAskedOncePerPod(t *testing.T) {
	nodes := cache.NewSnapshot(nil, []*corev1.Node{node("n0"), node("n1")})
	f := profile(t, nodes, nominations{},
		&plugin{name: "Ours", preFilter: func(*corev1.Pod) (*fwk.PreFilterResult, *fwk.Status) {
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(
				typedRefusal{why.Reason{Code: why.BadAnnotation, Extra: 7}})
		}})
	v, err := Of(t.Context(), f, asking("1", "1Gi"))
	want := []why.Finding{{
		Reason: why.Reason{Code: why.BadAnnotation, Extra: 7}, Plugin: "Ours", Phase: why.PreFilter,
		Detail: "exactly",
	}}
	if diff := cmp.Diff(want, v.Findings); err != nil || diff != "" {
		t.Errorf("error %v, findings (-want +got):\n%s", err, diff)
	}
}

func TestNodesThatAPluginLeftOutBeforehandNameIt(t *testing.T) {
	nodes := cache.NewSnapshot(nil, []*corev1.Node{node("n0"), node("n1")})
	f := profile(t, nodes, nominations{},
		&plugin{name: names.NodeAffinity, preFilter: func(*corev1.Pod) (*fwk.PreFilterResult, *fwk.Status) {
			return &fwk.PreFilterResult{NodeNames: sets.New("n1")}, nil
		}})
	v, err := Of(t.Context(), f, asking("1", "1Gi"))
	want := []why.Finding{{
		Reason: why.Reason{Code: why.NodeAffinity}, Plugin: names.NodeAffinity, Phase: why.PreFilter, Object: "n0",
		Detail: "node(s) didn't satisfy plugin NodeAffinity",
	}}
	if diff := cmp.Diff(want, v.Findings); err != nil || diff != "" || v.Feasible != 1 {
		t.Errorf("error %v, %d feasible, findings (-want +got):\n%s", err, v.Feasible, diff)
	}
}

func TestPluginErrorIsNotARefusal(t *testing.T) {
	nodes := cache.NewSnapshot(nil, []*corev1.Node{node("n0")})
	broken := errors.New("disk on fire")
	for name, p := range map[string]*plugin{
		"in a filter": {name: "Ours", filter: func(string) *fwk.Status { return fwk.AsStatus(broken) }},
		"before the filters": {
			name:      "Ours",
			preFilter: func(*corev1.Pod) (*fwk.PreFilterResult, *fwk.Status) { return nil, fwk.AsStatus(broken) },
		},
	} {
		if _, err := Of(t.Context(), profile(t, nodes, nominations{}, p), asking("1", "1Gi")); !errors.Is(err, broken) {
			t.Errorf("%s: got %v, want %v", name, err, broken)
		}
	}
}

func TestRoomReservedForNominatedPodIsReported(t *testing.T) {
	nodes := cache.NewSnapshot(nil, []*corev1.Node{node("n0")})
	high := asking("1", "1Gi")
	high.UID, high.Name = "high", "high"
	priority := int32(100)
	high.Spec.Priority = &priority
	info, err := framework.NewPodInfo(high)
	testkit.Check(t, err)
	p := &plugin{name: "Full"}
	f := profile(t, nodes, nominations{"n0": {info}}, p, &plugin{name: "Count"})
	calls := 0
	p.filter = func(string) *fwk.Status { // accepts the node as it is, refuses it with the nominated pod on it
		if calls++; calls > 1 {
			return fwk.NewStatus(fwk.Unschedulable, "full")
		}
		return nil
	}
	v, err := Of(t.Context(), f, asking("1", "1Gi"))
	if err != nil || len(v.Findings) != 1 || v.Findings[0].Code != why.NominatedElsewhere ||
		v.Findings[0].Object != "n0" || v.Feasible != 0 {
		t.Errorf("got %+v, %v, want NominatedElsewhere on n0", v, err)
	}
}

func TestShortagesHaveBothNumbers(t *testing.T) {
	info := framework.NewNodeInfo(asking("3", "6Gi"))
	info.SetNode(node("n0"))
	pod := asking("2", "4Gi")
	status := fwk.NewStatus(fwk.Unschedulable, "Insufficient cpu", "Insufficient memory", "Too many pods",
		"Insufficient example.com/card", "odd").
		WithPlugin(names.NodeResourcesFit)
	var got []why.Reason
	for _, f := range Findings(pod, info, why.Filter, status, "") {
		got = append(got, f.Reason)
	}
	want := []why.Reason{
		{Code: why.InsufficientCPU, Resource: why.CPU, Unit: why.MilliCPU, Asked: 2000, Free: 1000},
		{Code: why.InsufficientMemory, Resource: why.Memory, Unit: why.Bytes, Asked: 4 << 30, Free: 2 << 30},
		{Code: why.InsufficientPods, Unit: why.Count, Asked: 1},
		{Code: why.InsufficientExtended, Unit: why.Count, Asked: 3, Extra: 2},
		{Code: why.UpstreamFilter},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	for _, s := range []*fwk.Status{nil, fwk.NewStatus(fwk.Skip), fwk.NewStatus(fwk.Wait)} {
		if f := Findings(pod, info, why.Filter, s, ""); f != nil {
			t.Errorf("%v is not a refusal: got %v", s, f)
		}
	}
}

func TestTaintSelectorAndPortAreNamed(t *testing.T) {
	taken := asking("1", "1Gi")
	taken.Spec.Containers[0].Ports = []corev1.ContainerPort{
		{HostPort: 80, Protocol: corev1.ProtocolTCP},
		{HostPort: 81, Protocol: corev1.ProtocolTCP},
	}
	info := framework.NewNodeInfo(taken)
	n := node("n0")
	n.Labels = map[string]string{"zone": "a", "disk": "hdd"}
	n.Spec.Unschedulable = true
	n.Spec.Taints = []corev1.Taint{
		{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
		{Key: "team", Value: "x", Effect: corev1.TaintEffectNoSchedule},
		{Key: "known", Effect: corev1.TaintEffectNoExecute},
		{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule},
	}
	info.SetNode(n)
	pod := asking("1", "1Gi")
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "known", Operator: corev1.TolerationOpExists}}
	pod.Spec.NodeSelector = map[string]string{"zone": "a", "disk": "ssd"}
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{
		{HostPort: 80, Protocol: corev1.ProtocolTCP},
		{HostPort: 82, Protocol: corev1.ProtocolTCP},
	}
	affine := asking("1", "1Gi")
	selector := &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}},
				{Key: "gpu", Operator: corev1.NodeSelectorOpExists},
			},
			MatchFields: []corev1.NodeSelectorRequirement{{
				Key: "metadata.name", Operator: corev1.NodeSelectorOpIn,
				Values: []string{"n1"},
			}},
		}},
	}
	affine.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector},
	}
	for _, c := range []struct {
		pod          *corev1.Pod
		plugin, want string
	}{
		{pod, names.TaintToleration, "text: team=x:NoSchedule"},
		{pod, names.NodeAffinity, "text: disk=ssd"},
		{affine, names.NodeAffinity, "text: gpu Exists, metadata.name In n1"},
		{pod, names.NodePorts, "text: 80/TCP"},
	} {
		got := Findings(c.pod, info, why.Filter, fwk.NewStatus(fwk.Unschedulable, "text").WithPlugin(c.plugin), "")
		if len(got) != 1 || got[0].Detail != c.want {
			t.Errorf("%s: got %+v, want the detail %q", c.plugin, got, c.want)
		}
	}
	n.Spec.Taints = n.Spec.Taints[:1]
	status := fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "text").WithPlugin(names.TaintToleration)
	if got := Findings(pod, info, why.Filter, status, ""); len(got) != 0 {
		t.Errorf("the taint of a cordon counts beside the cordon: %+v", got)
	}
	n.Spec.Unschedulable = false
	if got := Findings(pod, info, why.Filter, status, ""); len(got) != 1 {
		t.Errorf("the taint alone is refused: got %+v", got)
	}
}

func TestLiveFollowsTheCacheWhileManyAsk(t *testing.T) {
	logger := klog.Background()
	c := cache.New(t.Context(), nil, false, false)
	c.AddNode(logger, node("n0"))
	live := NewLive(snapshot.NewCopy(c), func(lister fwk.SharedLister) (map[string]framework.Framework, error) {
		full := &plugin{name: names.NodeName}
		full.filter = func(n string) *fwk.Status {
			if n == "n0" {
				return fwk.NewStatus(fwk.Unschedulable, "not n0")
			}
			return nil
		}
		return map[string]framework.Framework{"tenon-scheduler": profile(t, lister, nominations{}, full)}, nil
	})
	if v, err := live.Evaluate(t.Context(), asking("1", "1Gi")); err != nil || v.Feasible != 0 || len(v.Findings) != 1 {
		t.Fatalf("one node: got %+v, %v", v, err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if _, err := live.Evaluate(t.Context(), asking("1", "1Gi")); err != nil {
					t.Error(err)
				}
				live.NodeInfo("n0")
			}
		})
	}
	for i := range 50 {
		c.AddNode(logger, node("late"))
		if i < 49 {
			if err := c.RemoveNode(logger, node("late")); err != nil {
				t.Error(err)
			}
		}
	}
	wg.Wait()
	if v, err := live.Evaluate(t.Context(), asking("1", "1Gi")); err != nil || v.Feasible != 1 || v.Nodes != 2 {
		t.Errorf("two nodes: got %+v, %v", v, err)
	}
	foreign := asking("1", "1Gi")
	foreign.Spec.SchedulerName = "other"
	if v, err := live.Evaluate(t.Context(), foreign); err != nil || v.Served || v.Nodes != 2 ||
		!slices.Equal(v.Names, []string{"tenon-scheduler"}) {
		t.Errorf("a foreign scheduler name: got %+v, %v", v, err)
	}
	if n, ok := live.NodeInfo("n0"); !ok || n.Node().Name != "n0" {
		t.Errorf("NodeInfo(n0): got %v, %t", n, ok)
	}
	if _, ok := live.NodeInfo("nope"); ok {
		t.Error("NodeInfo(nope): found")
	}
}

func TestLiveNeedsItsPlugins(t *testing.T) {
	broken := errors.New("no plugins today")
	live := NewLive(nil, func(fwk.SharedLister) (map[string]framework.Framework, error) { return nil, broken })
	_, err := live.Evaluate(t.Context(), &corev1.Pod{})
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}
