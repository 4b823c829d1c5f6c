package nodenumaresource

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// fixture is the plugin in a real framework, over a store with two-thread machines.
type fixture struct {
	*Plugin
	framework framework.Framework
	factory   frameworkruntime.PluginFactory
	client    *fake.Clientset
	store     *kube.Store
	events    chan string
	clock     *manual
	woken     *woken
	nominated nominated
	tracker   *follow.Tracker
	metrics   basemetrics.KubeRegistry
}

// nominated are the pods that are nominated to nodes.
type nominated struct {
	fwk.PodNominator
	byNode map[string][]fwk.PodInfo
}

func (n nominated) NominatedPodsForNode(node string) []fwk.PodInfo { return n.byNode[node] }

// woken remembers the pods that were woken.
type woken struct {
	mu    sync.Mutex
	names []string
}

func (w *woken) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names = append(w.names, slices.Sorted(maps.Keys(pods))...)
}

// manual is a clock that stands still until it is moved.
type manual struct {
	mu  sync.Mutex
	now time.Time
}

func (m *manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *manual) advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(d)
}

// newFixture makes a profile of the queue's order, this plugin and binders, in the given order; none are the default.
func newFixture(t *testing.T, args string, binders ...string) *fixture {
	t.Helper()
	metrics.Register() // upstream's; the framework cannot do without
	if len(binders) == 0 {
		binders = []string{Name, names.DefaultBinder}
	}
	store, client, recorder := kube.NewStore(), fake.NewClientset(), events.NewFakeRecorder(10)
	registry := frameworkplugins.NewInTreeRegistry()
	activator, promised := &woken{}, nominated{byNode: map[string][]fwk.PodInfo{}}
	clock := &manual{now: time.Unix(1_800_000_000, 0)}
	measured := basemetrics.NewKubeRegistry()
	tracker := follow.NewTracker(store, follow.NewMetrics(measured.MustRegister), clock.Now)
	tracker.Leading.Store(true)
	factory := Factory(placement.NewDecisions(store, placement.NewMetrics(measured.MustRegister), tracker))
	registry[Name] = factory
	enabled := func(names ...string) (set config.PluginSet) {
		for _, n := range names {
			set.Enabled = append(set.Enabled, config.Plugin{Name: n, Weight: 1})
		}
		return set
	}
	profile := &config.KubeSchedulerProfile{SchedulerName: "s", Plugins: &config.Plugins{
		QueueSort: enabled(names.PrioritySort), PreFilter: enabled(Name), Filter: enabled(Name),
		PreScore: enabled(Name),
		Score:    enabled(Name), Reserve: enabled(Name), PreBind: enabled(Name), Bind: enabled(binders...),
	}}
	if args != "" {
		profile.PluginConfig = []config.PluginConfig{{
			Name: Name,
			Args: &runtime.Unknown{Raw: []byte(args), ContentType: runtime.ContentTypeJSON},
		}}
	}
	f, err := frameworkruntime.NewFramework(t.Context(), registry, profile,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(informers.NewSharedInformerFactory(client, 0)),
		frameworkruntime.WithSnapshotSharedLister(cache.NewEmptySnapshot()),
		frameworkruntime.WithEventRecorder(recorder),
		frameworkruntime.WithPodActivator(activator),
		frameworkruntime.WithPodNominator(promised),
	)
	testkit.Check(t, err)
	p, err := factory(t.Context(), pluginArgs(profile), f)
	testkit.Check(t, err)
	return &fixture{
		Plugin: p.(*Plugin), framework: f, factory: factory, client: client, store: store, events: recorder.Events,
		clock: clock, woken: activator, nominated: promised, tracker: tracker, metrics: measured,
	}
}

func pluginArgs(p *config.KubeSchedulerProfile) runtime.Object {
	if len(p.PluginConfig) == 0 {
		return nil
	}
	return p.PluginConfig[0].Args
}

// after returns the hint for events of a resource.
func (f *fixture) after(t *testing.T, resource fwk.EventResource) fwk.QueueingHintFn {
	t.Helper()
	events, err := f.EventsToRegister(t.Context())
	testkit.Check(t, err)
	i := slices.IndexFunc(events, func(e fwk.ClusterEventWithHint) bool { return e.Event.Resource == resource })
	if i < 0 {
		t.Fatalf("no event of %s", resource)
	}
	return events[i].QueueingHintFn
}

const (
	topologies     fwk.EventResource = "noderesourcetopologies.v1alpha2.topology.node.k8s.io"
	numatopologies fwk.EventResource = "numatopologies.v1alpha1.nodeinfo.volcano.sh"
	devices        fwk.EventResource = "devices.v1alpha1.scheduling.koordinator.sh"
)

// request reads a pod as the plugin does.
func (f *fixture) request(t *testing.T, pod *corev1.Pod) *place.Request {
	t.Helper()
	r, reason, detail := convert.Request(pod, f.store.Args())
	if !reason.OK() {
		t.Fatalf("pod %s: %v %s", pod.Name, reason, detail)
	}
	return r
}

// counted returns a counter by its name and the values of its labels, in the order of the labels' names.
func (f *fixture) counted(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := f.metrics.Gather()
	testkit.Check(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var values []string
			for _, label := range m.GetLabel() {
				values = append(values, label.GetValue())
			}
			if family.GetName() == name && slices.Equal(values, labels) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// machine has numa NUMA nodes of cores cores; the second thread of core c is CPU c + numa·cores.
func machine(t *testing.T, arch string, numa, cores, threads int) *topo.Machine {
	t.Helper()
	return grid.Machine{Arch: arch, Nodes: numa, Cores: cores, Threads: threads}.Build(t)
}

// nodeOption changes a node or its topology; both are at hand.
type nodeOption func(*corev1.Node, *v1alpha2.NodeResourceTopology)

func labelled(key, value string) nodeOption {
	return func(n *corev1.Node, _ *v1alpha2.NodeResourceTopology) { n.Labels[key] = value }
}

func cpuManager(settings string) nodeOption {
	return func(_ *corev1.Node, t *v1alpha2.NodeResourceTopology) {
		t.Annotations[annotation.KubeletCPUManagerPolicy] = settings
	}
}

// addNode puts a node and its topology into the store; m nil is a node without topology.
func (f *fixture) addNode(name string, m *topo.Machine, options ...nodeOption) fwk.NodeInfo {
	n, nrt := object.Node(name, nil), object.Topology(name, m, nil)
	if m != nil {
		n.Labels[corev1.LabelArchStable] = m.Arch()
	}
	for _, o := range options {
		o(n, nrt)
	}
	n.Status.Allocatable = amounts("64", "256Gi")
	f.store.PutNode(n)
	if m != nil {
		f.store.PutTopology(nrt)
	}
	info := framework.NewNodeInfo()
	info.SetNode(n)
	return info
}

func amounts(cpu, memory string) corev1.ResourceList {
	return object.List("cpu", cpu, "memory", memory)
}

type podOption = object.PodOption

func qosClass(c string) podOption { return object.Class(c) }

func spec(format string, args ...any) podOption {
	return func(p *corev1.Pod) { p.Annotations[annotation.ResourceSpecKey] = fmt.Sprintf(format, args...) }
}

func asks(cpu, limit string) podOption {
	return func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{
			Name:      "c",
			Resources: corev1.ResourceRequirements{Requests: amounts(cpu, "1Gi"), Limits: amounts(limit, "1Gi")},
		}}
	}
}

func bound(node, cpus string) podOption {
	return func(p *corev1.Pod) {
		p.Spec.NodeName = node
		p.Annotations[annotation.ResourceStatusKey] = annotation.Encode(annotation.ResourceStatus{CPUSet: cpus})
	}
}

func newPod(name string, options ...podOption) *corev1.Pod {
	p := object.Pod(name)
	p.ResourceVersion = "1"
	for _, o := range options {
		o(p)
	}
	return p
}

// lsr is an LSR pod of n CPUs.
func lsr(name string, n int, options ...podOption) *corev1.Pod {
	cpus := fmt.Sprint(n)
	return newPod(name, append([]podOption{qosClass("LSR"), asks(cpus, cpus)}, options...)...)
}

// preFilter starts a cycle; skipped reports that the pod does not concern the plugin.
func (f *fixture) preFilter(t *testing.T, pod *corev1.Pod) (cs fwk.CycleState, skipped bool) {
	t.Helper()
	cs = framework.NewCycleState()
	_, status := f.PreFilter(t.Context(), cs, pod, nil)
	if !status.IsSuccess() && !status.IsSkip() {
		t.Fatalf("PreFilter of %s: %s", pod.Name, status.Message())
	}
	return cs, status.IsSkip()
}

// schedule runs a whole cycle of the plugin on one node and returns the CPUs that the Binding carries.
func (f *fixture) schedule(t *testing.T, pod *corev1.Pod, n fwk.NodeInfo) string {
	t.Helper()
	testkit.Check(t, f.client.Tracker().Add(pod))
	cs, skipped := f.preFilter(t, pod)
	if skipped {
		t.Fatalf("pod %s does not concern the plugin", pod.Name)
	}
	for _, s := range []*fwk.Status{
		f.Filter(t.Context(), cs, pod, n),
		f.Reserve(t.Context(), cs, pod, n.Node().Name),
		f.PreBind(t.Context(), cs, pod, n.Node().Name),
		f.Bind(t.Context(), cs, pod, n.Node().Name),
	} {
		if !s.IsSuccess() {
			t.Fatalf("schedule %s: %s", pod.Name, s.Message())
		}
	}
	status, _, err := annotation.ParseResourceStatus(placement.Read(cs).Record()[annotation.ResourceStatusKey])
	testkit.Check(t, err)
	return status.CPUSet
}

func podInfo(t *testing.T, pod *corev1.Pod) fwk.PodInfo {
	t.Helper()
	info, err := framework.NewPodInfo(pod)
	testkit.Check(t, err)
	return info
}

// verdict is "" for a node that fits, else the status's code and text.
func verdict(s *fwk.Status) string {
	if s.IsSuccess() {
		return ""
	}
	return strings.TrimSpace(s.Code().String() + ": " + s.Message())
}
