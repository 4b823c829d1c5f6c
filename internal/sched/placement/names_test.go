package placement_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/nodenumaresource"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// other is a second name of the decision, with a score of its own.
type other struct{ *placement.Plugin }

const otherName = "Other"

func newOther(d *placement.Decisions) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(_ context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		return &other{d.Join(h, otherName)}, nil
	}
}

// Score prefers the node with the most CPUs that no pod holds, as NodeNUMAResource does among equal machines.
func (*other) Score(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, n fwk.NodeInfo) (int64, *fwk.Status) {
	cpus := placement.Read(cs).View(n.Node().Name).Allocatable()
	return int64(cpus.Len()), nil
}

func (*other) ScoreExtensions() fwk.ScoreExtensions { return nil }

// bench is a scheduler with equal machines of 16 CPUs on two NUMA nodes.
type bench struct {
	*scheduler.Scheduler
	store   *kube.Store
	client  *fake.Clientset
	metrics metrics.KubeRegistry
	bound   chan *corev1.Binding
	pods    cache.Indexer
	factory informers.SharedInformerFactory
}

// plugin is a name of the decision in a profile, with its weight.
type plugin struct {
	name   string
	weight int32
}

func newBench(t *testing.T, nodes int, profiles ...[]plugin) *bench {
	t.Helper()
	return newBenchWith(t, "", nodes, profiles...)
}

// newBenchWith gives arguments to DeviceShare; "" gives none.
func newBenchWith(t *testing.T, args string, nodes int, profiles ...[]plugin) *bench {
	t.Helper()
	b := &bench{
		store: kube.NewStore(), client: fake.NewClientset(), metrics: metrics.NewKubeRegistry(),
		bound: make(chan *corev1.Binding, 1),
	}
	b.client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		binding, ok := a.(clienttesting.CreateAction).GetObject().(*corev1.Binding)
		if ok {
			b.bound <- binding
		}
		return ok, binding, nil
	})
	tracker := follow.NewTracker(b.store, follow.NewMetrics(b.metrics.MustRegister), time.Now)
	d := placement.NewDecisions(b.store, placement.NewMetrics(b.metrics.MustRegister), tracker)
	var made []config.KubeSchedulerProfile
	for i, plugins := range profiles {
		set := config.PluginSet{Enabled: []config.Plugin{{Name: names.PrioritySort}}}
		for _, p := range plugins {
			set.Enabled = append(set.Enabled, config.Plugin{Name: p.name, Weight: p.weight})
		}
		if !slices.ContainsFunc(plugins, func(p plugin) bool { return p.name == names.DefaultBinder }) {
			set.Enabled = append(set.Enabled, config.Plugin{Name: names.DefaultBinder})
		}
		profile := config.KubeSchedulerProfile{
			SchedulerName: profileName(i), Plugins: &config.Plugins{MultiPoint: set},
		}
		if args != "" {
			profile.PluginConfig = []config.PluginConfig{{
				Name: deviceshare.Name, Args: &runtime.Unknown{Raw: []byte(args)},
			}}
		}
		made = append(made, profile)
	}
	all, factory := int32(100), informers.NewSharedInformerFactory(b.client, 0)
	b.factory = factory
	b.pods = factory.Core().V1().Pods().Informer().GetIndexer()
	var err error
	b.Scheduler, err = scheduler.New(t.Context(), b.client, factory, nil,
		func(string) events.EventRecorderLogger { return events.NewFakeRecorder(100) },
		scheduler.WithProfiles(made...),
		scheduler.WithPercentageOfNodesToScore(&all),
		scheduler.WithFrameworkOutOfTreeRegistry(map[string]func(context.Context, runtime.Object,
			fwk.Handle) (fwk.Plugin, error){
			nodenumaresource.Name: nodenumaresource.Factory(d), otherName: newOther(d),
			deviceshare.Name: deviceshare.Factory(d),
		}))
	testkit.Check(t, err)
	for i := range nodes {
		b.addNode(t, fmt.Sprintf("n%d", i))
	}
	return b
}

func profileName(i int) string { return fmt.Sprintf("profile-%d", i) }

func (b *bench) addNode(t *testing.T, name string) *corev1.Node {
	t.Helper()
	m := grid.Machine{Arch: "amd64", Nodes: 2, Cores: 4, Threads: 2}.Build(t)
	node := object.Node(name, map[string]string{corev1.LabelArchStable: "amd64"}, "cpu", "16", "pods", "110")
	b.store.PutNode(node)
	b.store.PutTopology(object.Topology(name, m, nil))
	b.Cache.AddNode(klog.FromContext(t.Context()), node)
	return node
}

// hold lets a pod have CPUs of a node, as many as it asks for.
func (b *bench) hold(t *testing.T, node, cpus string) {
	t.Helper()
	set := cpuset.MustParse(cpus)
	p := pod("on-"+node, "another", int64(set.Len()))
	p.Spec.NodeName = node
	p.Annotations = map[string]string{
		annotation.ResourceStatusKey: annotation.Encode(annotation.ResourceStatus{CPUSet: cpus}),
	}
	b.store.PutPod(p)
	testkit.Check(t, b.Cache.AddPod(klog.Background(), p))
}

// pod asks for CPUs of its own.
func pod(name, profile string, cpus int64) *corev1.Pod {
	p := object.Pod(name, object.Class("LSR"), object.Scheduler(profile), object.Both("cpu", fmt.Sprint(cpus)))
	p.ResourceVersion = "1"
	return p
}

// try runs one scheduling cycle for a pod.
func (b *bench) try(t *testing.T, p *corev1.Pod) {
	t.Helper()
	testkit.Check(t, b.client.Tracker().Add(p))
	testkit.Check(t, b.pods.Add(p))
	b.SchedulingQueue.Add(t.Context(), p)
	b.ScheduleOne(t.Context())
}

// counted returns the sum of a counter with a label of a value.
func (b *bench) counted(t *testing.T, name, value string) (sum float64) {
	t.Helper()
	families, err := b.metrics.Gather()
	testkit.Check(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && m.GetLabel()[0].GetValue() == value {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// Whatever the names that the decision has in a profile, each pod gets the same CPUs of the same node, by one Commit
// and one Binding.
func TestADecisionIsTheSameUnderAnyNames(t *testing.T) {
	t.Parallel()
	own, second := plugin{nodenumaresource.Name, 1}, plugin{otherName, 1}
	var want []string
	for _, tc := range []struct {
		name     string
		profiles [][]plugin
	}{
		{"the only name", [][]plugin{{own}}},
		{"a second name", [][]plugin{{own, second}}},
		{"the other order", [][]plugin{{second, own}}},
		{"the first name is disabled", [][]plugin{{second}}},
		{"other weights", [][]plugin{{{own.name, 7}, {second.name, 3}}}},
		{"two profiles", [][]plugin{{own, second}, {second, own}}},
		{"two profiles with one name each", [][]plugin{{second}, {own}}},
	} {
		b := newBench(t, 3, tc.profiles...)
		var got []string
		sizes := []int64{8, 4, 6, 6, 6, 3} // at each step one node has the most free CPUs
		for name, cpus := range map[string]string{"n1": "0,8", "n2": "0-1,8-9"} {
			b.hold(t, name, cpus)
		}
		for i, cpus := range sizes {
			name := fmt.Sprintf("p%d", i)
			b.try(t, pod(name, profileName(i%len(tc.profiles)), cpus))
			select {
			case binding := <-b.bound:
				got = append(got, fmt.Sprintf("%s on %s: %s", binding.Name, binding.Target.Name,
					binding.Annotations[annotation.ResourceStatusKey]))
			case <-time.After(time.Minute):
				t.Fatalf("%s: pod %s is not bound", tc.name, name)
			}
		}
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: placements (-%s +got):\n%s", tc.name, "the only name", diff)
		}
		if n := b.counted(t, "tenon_ledger_commits_total", "ok"); int(n) != len(sizes) {
			t.Errorf("%s: %v commits, want one for each of %d pods", tc.name, n, len(sizes))
		}
		if len(b.bound) > 0 {
			t.Errorf("%s: a pod is bound twice", tc.name)
		}
	}
}

func TestAnotherBinderGetsOneRecordWhateverTheNames(t *testing.T) {
	t.Parallel()
	binder, own, second := plugin{names.DefaultBinder, 0}, plugin{nodenumaresource.Name, 1}, plugin{otherName, 1}
	for _, order := range [][]plugin{{binder, own, second}, {binder, second, own}, {binder, second}} {
		b := newBench(t, 1, order)
		b.try(t, pod("p", profileName(0), 4))
		if binding := <-b.bound; len(binding.Annotations) > 0 {
			t.Errorf("%v: the Binding of another binder has annotations: %v", order, binding.Annotations)
		}
		patches := 0
		for _, a := range b.client.Actions() {
			if a.Matches("patch", "pods") && a.GetSubresource() == "" {
				patches++
			}
		}
		if patches != 1 {
			t.Errorf("%v: %d records, want one", order, patches)
		}
	}
}

// TestWhatAnotherBinderCouldNotBindIsGivenUp: a read decides whether the pod is bound all the same.
func TestWhatAnotherBinderCouldNotBindIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, bound := range []string{"n0", ""} {
		b := newBench(t, 0, []plugin{{names.DefaultBinder, 0}, {nodenumaresource.Name, 1}})
		n := nodeWith(nil)
		n.SetNode(b.addNode(t, "n0"))
		f, cs, p := b.Profiles[profileName(0)], framework.NewCycleState(), pod("p", profileName(0), 4)
		testkit.Check(t, b.client.Tracker().Add(p))
		if _, s, _ := f.RunPreFilterPlugins(t.Context(), cs, p); !s.IsSuccess() {
			t.Fatal(s.Message())
		}
		for _, s := range []*fwk.Status{
			f.RunFilterPlugins(t.Context(), cs, p, n), f.RunReservePluginsReserve(t.Context(), cs, p, "n0"),
			f.RunPreBindPlugins(t.Context(), cs, p, "n0"),
		} {
			if !s.IsSuccess() {
				t.Fatal(s.Message())
			}
		}
		b.client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			written := p.DeepCopy()
			written.Spec.NodeName = bound
			return true, written, nil
		})
		f.RunReservePluginsUnreserve(t.Context(), cs, p, "n0")
		if _, held := b.store.View("n0").Entry("p"); held != (bound == "n0") {
			t.Errorf("the pod is bound to %q, and its reservation is there: %t", bound, held)
		}
	}
}

// The queue asks the hints of the plugin alone that refused a pod.
func TestARefusalUnderEitherNameWakesOnTheEventsOfBoth(t *testing.T) {
	t.Parallel()
	own, second := plugin{nodenumaresource.Name, 1}, plugin{otherName, 1}
	for _, order := range [][]plugin{{own, second}, {second, own}} {
		for what, happens := range map[string]func(b *bench){
			"an event of the accounts": func(b *bench) {
				b.SchedulingQueue.MoveAllToActiveOrBackoffQueue(klog.Background(), fwk.ClusterEvent{
					Resource: fwk.Node, ActionType: fwk.Add,
				}, nil, b.addNode(t, "another"), nil)
			},
		} {
			b := newBench(t, 1, order)
			b.try(t, pod("first", profileName(0), 10))
			<-b.bound
			b.try(t, pod("refused", profileName(0), 10))
			refused := b.SchedulingQueue.UnschedulablePods()
			if len(refused) != 1 || refused[0].Name != "refused" {
				t.Fatalf("unschedulable are %v, want the pod that does not fit", refused)
			}
			if n := b.counted(t, "tenon_ledger_commits_total", "ok"); n != 1 {
				t.Fatalf("%v commits, want one", n)
			}
			happens(b)
			if left := b.SchedulingQueue.UnschedulablePods(); len(left) != 0 {
				t.Errorf("refused by %s: %s does not wake the pod", order[0].name, what)
			}
		}
	}
}
