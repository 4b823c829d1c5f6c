package scalehelper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// world is a cluster with one node of two NUMA nodes of 4 CPUs, where two pods of 2 CPUs are on different NUMA nodes.
type world struct {
	t           *testing.T
	client      *fake.Clientset
	pods, nodes cache.Store
	events      *events.FakeRecorder
	reserved    amount.List
	held        []ledger.Entry
	stop        func()
	fails       string // the next write of this verb fails
	off         bool
}

func (w *world) Account(string) *ledger.View {
	return ledger.New(ledger.Facts{Machine: grid.Machine{Nodes: 2, Cores: 4}.Build(w.t)}, w.held...).View()
}

func (w *world) Reserved(string) amount.List { return w.reserved }

func (w *world) Request(p *corev1.Pod) *place.Request {
	cpus := int(convert.MilliCPU(p) / 1000)
	if cpus == 0 {
		return nil
	}
	return &place.Request{
		UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Class: qos.LSR, Role: qos.ExclusiveWithBE, CPUs: cpus,
		RequestMilli: int64(cpus) * 1000, Topology: hint.SingleNUMANode,
	}
}

// start starts a controller, in the place of one that ran before.
func (w *world) start() {
	w.stop()
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error)
	go func() {
		ended <- New(Options{
			Pods: w.pods, Nodes: w.nodes, Cluster: w, Client: w.client, Events: w.events,
			Schedulers: convert.NewSchedulers("tenon-scheduler"), Off: w.off,
		}).Start(ctx)
	}()
	w.stop = func() {
		cancel()
		testkit.Check(w.t, <-ended)
		w.stop = func() {}
	}
	synctest.Wait()
}

// wait lets time pass, with what the API server has in the cache at each interval.
func (w *world) wait(d time.Duration) {
	for ; d > 0; d -= interval {
		list, err := w.client.CoreV1().Pods(Namespace).List(w.t.Context(), metav1.ListOptions{})
		testkit.Check(w.t, err)
		for _, object := range w.pods.List() {
			if p := object.(*corev1.Pod); p.Namespace == Namespace {
				testkit.Check(w.t, w.pods.Delete(p))
			}
		}
		for i := range list.Items {
			testkit.Check(w.t, w.pods.Add(&list.Items[i]))
		}
		time.Sleep(min(d, interval)) //nolint:forbidigo // in synctest's time
		synctest.Wait()
	}
}

// helpers returns the pods that have helpers, in their order, with the reason that autoscalers read.
func (w *world) helpers() (all []string) {
	list, err := w.client.CoreV1().Pods(metav1.NamespaceAll).List(w.t.Context(), metav1.ListOptions{})
	testkit.Check(w.t, err)
	for i := range list.Items {
		h := &list.Items[i]
		text := h.Annotations[annotation.ScaleHelper]
		if c := condition(h); c != nil {
			text += " " + string(c.Status) + " " + c.Reason
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

func run(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, client: fake.NewClientset(), pods: cache.NewStore(cache.MetaNamespaceKeyFunc),
			nodes: cache.NewStore(cache.MetaNamespaceKeyFunc), events: events.NewFakeRecorder(100), stop: func() {},
		}
		w.client.PrependReactor("*", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetVerb() == w.fails {
				w.fails = ""
				return true, nil, errors.New("not now")
			}
			if a.GetVerb() == "create" {
				p := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
				p.UID, p.CreationTimestamp = types.UID("helper-"+p.Name), metav1.Now()
			}
			return false, nil, nil
		})
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "n", Labels: map[string]string{corev1.LabelHostname: "n.example.com", "zone": "a"},
		}}
		n.Status.Allocatable = corev1.ResourceList{
			"cpu": resource.MustParse("8"), "pods": resource.MustParse("10"), "memory": resource.MustParse("8Gi"),
		}
		testkit.Check(t, w.nodes.Add(n))
		for i, cpus := range []string{"0-1", "4-5"} {
			p := pod(fmt.Sprint("bound-", i), 2)
			p.Spec.NodeName, p.Status.Conditions = "n", nil
			testkit.Check(t, w.pods.Add(p))
			w.held = append(w.held, ledger.Entry{
				UID: string(p.UID), Class: qos.LSR, Role: qos.ExclusiveWithBE, CPUList: cpus,
			})
		}
		f(w)
		w.stop()
	})
}

// pod is a pod of Tenon that was refused long ago.
func pod(name string, cpus int64, changes ...func(p *corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{
			SchedulerName: "tenon-scheduler", NodeSelector: map[string]string{"zone": "a"},
			Containers: []corev1.Container{{
				Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					"cpu": *resource.NewQuantity(cpus, resource.DecimalSI), "memory": resource.MustParse("1Gi"),
				}},
			}},
		},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		}}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

const helped = "ns/p False Unschedulable"

func TestWhichPodsGetHelpers(t *testing.T) {
	t.Parallel()
	condition := func(f func(c *corev1.PodCondition)) func(p *corev1.Pod) {
		return func(p *corev1.Pod) { f(&p.Status.Conditions[0]) }
	}
	node := func(f func(n *corev1.Node)) func(w *world) {
		return func(w *world) {
			object, _, _ := w.nodes.GetByKey("n")
			n := object.(*corev1.Node).DeepCopy()
			f(n)
			testkit.Check(w.t, w.nodes.Update(n))
		}
	}
	other := func(topology string) *corev1.PodAffinityTerm {
		return &corev1.PodAffinityTerm{TopologyKey: topology, LabelSelector: &metav1.LabelSelector{}}
	}
	for name, c := range map[string]struct {
		pod   func(p *corev1.Pod)
		world func(w *world)
		gets  bool
	}{
		"it fits by amounts alone": {gets: true},
		"it was refused just now": {pod: condition(func(c *corev1.PodCondition) {
			c.LastTransitionTime = metav1.Now()
		})},
		"it waits for its quota":  {pod: condition(func(c *corev1.PodCondition) { c.Reason = "QuotaExceeded" })},
		"it was not tried yet":    {pod: func(p *corev1.Pod) { p.Status.Conditions = nil }},
		"its condition is true":   {pod: condition(func(c *corev1.PodCondition) { c.Status = corev1.ConditionTrue })},
		"it has a nominated node": {pod: func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" }},
		"it is being deleted":     {pod: func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }},
		"it has failed":           {pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }},
		"another scheduler's":     {pod: func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" }},
		"a ProvisioningRequest provisions it": {pod: func(p *corev1.Pod) {
			p.Annotations = map[string]string{annotation.ConsumeProvisioningRequest: "r"}
		}},
		"it requires other pods in its zone": {pod: func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{*other("zone")},
			}}
		}},
		"it requires none in its zone": {pod: func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{*other("zone")},
			}}
		}},
		"it prefers none in its zone": {gets: true, pod: func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{
				PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{
					PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
						{Weight: 1, PodAffinityTerm: *other("zone")},
					},
				},
			}
		}},
		"it must be spread": {pod: func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: "DoNotSchedule"}}
		}},
		"it may be spread": {gets: true, pod: func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: "ScheduleAnyway"}}
		}},
		"it has a claim of a volume": {pod: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{},
			}}}
		}},
		"it has an ephemeral volume": {pod: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				Ephemeral: &corev1.EphemeralVolumeSource{},
			}}}
		}},
		"it has a volume of its own": {gets: true, pod: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{},
			}}}
		}},
		"it has claims of devices": {pod: func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c"}}
		}},
		"it has a port of the node": {pod: func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 1, HostPort: 80}}
		}},
		"it has a port": {gets: true, pod: func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 1}}
		}},
		"no node can take it as it is written": {pod: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = nil
		}},
		"its node selector excludes the node": {
			pod: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} },
		},
		"a taint excludes it": {world: node(func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: "NoSchedule"}}
		})},
		"a taint that it tolerates": {
			gets:  true,
			pod:   func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: "Exists"}} },
			world: node(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: "NoSchedule"}} }),
		},
		"a taint that excludes none": {gets: true, world: node(func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: "PreferNoSchedule"}}
		})},
		"the node is cordoned": {world: node(func(n *corev1.Node) { n.Spec.Unschedulable = true })},
		"the cluster has none": {world: func(w *world) { testkit.Check(w.t, w.nodes.Replace(nil, "")) }},
		"the node has fewer pods left than it needs": {world: node(func(n *corev1.Node) {
			n.Status.Allocatable["pods"] = resource.MustParse("2")
		})},
		"a pod that has ended uses nothing": {gets: true, world: func(w *world) {
			testkit.Check(w.t, w.pods.Add(pod("ended", 4, func(p *corev1.Pod) {
				p.Spec.NodeName, p.Status.Phase = "n", corev1.PodSucceeded
			})))
		}},
		"a Reservation holds the capacity": {
			gets: true, world: func(w *world) { w.held, w.reserved = nil, amount.List{"cpu": 4000} },
		},
		"without the other pods it starts": {world: func(w *world) { w.held = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(w *world) {
				p := pod("p", 4)
				if c.pod != nil {
					c.pod(p)
				}
				if c.world != nil {
					c.world(w)
				}
				testkit.Check(t, w.pods.Add(p))
				w.start()
				want := []string(nil)
				if c.gets {
					want = []string{helped}
				}
				if d := cmp.Diff(want, w.helpers()); d != "" {
					t.Error(d)
				}
			})
		})
	}
}

// TestTheHelperIsWhatAutoscalersAddANodeFor, and no more than its pod.
func TestTheHelperIsWhatAutoscalersAddANodeFor(t *testing.T) {
	t.Parallel()
	zoned := []corev1.NodeSelectorRequirement{{Key: "zone", Operator: "Exists"}}
	named := []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"x"}}}
	run(t, func(w *world) {
		testkit.Check(t, w.pods.Add(pod("p", 4, func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: "Exists"}}
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{
						{}, {MatchExpressions: zoned}, {MatchFields: named},
					},
				},
			}}
		})))
		w.start()
		h, err := w.client.CoreV1().Pods(Namespace).Get(t.Context(), "scale-helper-uid-p", metav1.GetOptions{})
		testkit.Check(t, err)
		elsewhere := corev1.NodeSelectorRequirement{
			Key: "kubernetes.io/hostname", Operator: "NotIn", Values: []string{"n.example.com"},
		}
		want := []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{zoned[0], elsewhere}},
			{MatchExpressions: []corev1.NodeSelectorRequirement{elsewhere}, MatchFields: named},
		}
		required := h.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		if d := cmp.Diff(want, required.NodeSelectorTerms); d != "" {
			t.Error(d)
		}
		if amounts := h.Spec.Containers[0].Resources; amounts.Requests.Cpu().Value() != 4 ||
			amounts.Requests.Memory().Value() != 1<<30 ||
			!maps.EqualFunc(amounts.Requests, amounts.Limits, resource.Quantity.Equal) {
			t.Errorf("the helper requests %v", amounts)
		}
		if h.Spec.SchedulerName != "tenon-scale-helper" || h.Spec.NodeSelector["zone"] != "a" ||
			len(h.Spec.Tolerations) != 1 || h.Labels["tenon.sh/scale-helper"] != "uid-p" {
			t.Errorf("the helper is %+v", h)
		}
		const said = "Normal ScaleHelperCreated 1 nodes have the amounts, but not for this pod: pod " +
			"tenon-scale-helper/scale-helper-uid-p asks cluster autoscalers for a new node"
		if got := <-w.events.Events; got != said {
			t.Errorf("the Event is %q", got)
		}
	})
}

// TestBesideKarpenterNodesAreExcludedByALabel: it ignores pods that name hosts. The label goes when no helper needs it,
// and when the setting is off.
func TestBesideKarpenterNodesAreExcludedByALabel(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world){
		"the pod is gone": func(w *world) {
			object, _, _ := w.pods.GetByKey("ns/p")
			testkit.Check(w.t, w.pods.Delete(object))
			w.wait(interval)
		},
		"the setting is off": func(w *world) {
			w.off = true
			w.start()
		},
		"the setting is off, and the API server refuses at first": func(w *world) {
			w.off = true
			refused := 0
			w.client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
				refused++
				return refused == 1, nil, errors.New("refused")
			})
			w.start()
			w.wait(interval)
		},
	} {
		run(t, func(w *world) {
			w.client.Resources = []*metav1.APIResourceList{{GroupVersion: "karpenter.sh/v1"}}
			object, _, _ := w.nodes.GetByKey("n")
			small := object.(*corev1.Node).DeepCopy()
			small.Name, small.Labels = "small", map[string]string{"tenon.sh/scale-helper": "excluded"}
			small.Status.Allocatable["cpu"] = resource.MustParse("1")
			testkit.Check(t, w.nodes.Add(small))
			for _, object := range w.nodes.List() {
				_, err := w.client.CoreV1().Nodes().Create(t.Context(), object.(*corev1.Node), metav1.CreateOptions{})
				testkit.Check(t, err)
			}
			labelled := func() (all []string) {
				list, err := w.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
				testkit.Check(t, err)
				for i := range list.Items {
					n := &list.Items[i]
					testkit.Check(t, w.nodes.Update(n))
					if n.Labels["tenon.sh/scale-helper"] != "" {
						all = append(all, n.Name)
					}
				}
				return all
			}
			testkit.Check(t, w.pods.Add(pod("p", 4)))
			w.start()
			h, err := w.client.CoreV1().Pods(Namespace).Get(t.Context(), "scale-helper-uid-p", metav1.GetOptions{})
			testkit.Check(t, err)
			required := h.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			want := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: "tenon.sh/scale-helper", Operator: "DoesNotExist",
			}}}}
			if d := cmp.Diff(want, required); d != "" {
				t.Errorf("%s: %s", name, d)
			}
			if got := labelled(); !slices.Equal(got, []string{"n"}) {
				t.Errorf("%s: labelled are %v", name, got)
			}
			end(w)
			if got := labelled(); len(got) > 0 {
				t.Errorf("%s: labelled are %v", name, got)
			}
		})
	}
}

// TestAHelperGoesAsSoonAsItsPodHasANode: an autoscaler must not find it beside the node that it has added.
func TestAHelperGoesAsSoonAsItsPodHasANode(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *world, p *corev1.Pod){
		"it is bound": func(w *world, p *corev1.Pod) {
			p.Spec.NodeName = "new"
			testkit.Check(w.t, w.pods.Update(p))
		},
		"it is gone": func(w *world, p *corev1.Pod) { testkit.Check(w.t, w.pods.Delete(p)) },
		"another one has its name": func(w *world, p *corev1.Pod) {
			p.UID = "another"
			testkit.Check(w.t, w.pods.Update(p))
		},
	} {
		for _, planned := range []time.Duration{0, interval} { // in the round that made it, and in a later one
			run(t, func(w *world) {
				testkit.Check(t, w.pods.Add(pod("p", 4)))
				w.start()
				w.wait(planned + time.Second)
				if got := w.helpers(); len(got) != 1 {
					t.Fatalf("the helpers are %v", got)
				}
				object, _, _ := w.pods.GetByKey("ns/p")
				change(w, object.(*corev1.Pod).DeepCopy())
				w.wait(soon)
				if got := w.helpers(); len(got) > 0 {
					t.Errorf("%s: the helpers are %v", name, got)
				}
			})
		}
	}
}

// TestAHelperEnds: with what made it necessary, or at the end of its life; then its pod has none for a while.
func TestAHelperEnds(t *testing.T) {
	t.Parallel()
	expect := func(w *world, when string, want ...string) {
		w.t.Helper()
		if d := cmp.Diff(want, w.helpers()); d != "" {
			w.t.Errorf("%s: %s", when, d)
		}
	}
	for name, end := range map[string]func(w *world, p *corev1.Pod){
		"the pod is bound":      func(_ *world, p *corev1.Pod) { p.Spec.NodeName = "n" },
		"the pod fits again":    func(w *world, _ *corev1.Pod) { w.held = nil },
		"the pod is gone":       func(w *world, p *corev1.Pod) { testkit.Check(w.t, w.pods.Delete(p)) },
		"its reason is another": func(_ *world, p *corev1.Pod) { p.Status.Conditions[0].Reason = "WaitingForGang" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(w *world) {
				p := pod("p", 4)
				testkit.Check(t, w.pods.Add(p))
				w.start()
				w.wait(5 * time.Minute)
				expect(w, "before", helped)
				testkit.Check(t, w.pods.Update(p))
				end(w, p)
				w.wait(2 * interval)
				expect(w, "after")
			})
		})
	}
	t.Run("its life ends", func(t *testing.T) {
		t.Parallel()
		run(t, func(w *world) {
			testkit.Check(t, w.pods.Add(pod("p", 4)))
			w.start()
			w.wait(lifetime - interval)
			expect(w, "before", helped)
			w.wait(2 * interval)
			expect(w, "after its life")
			w.wait(pause - 2*interval)
			expect(w, "in the pause")
			w.wait(3 * interval)
			expect(w, "after the pause", helped)
			w.wait(lifetime)
			testkit.Check(t, w.pods.Delete(pod("p", 4)))
			w.wait(interval)
			testkit.Check(t, w.pods.Add(pod("p", 4)))
			w.wait(interval)
			expect(w, "what ended is forgotten with the pod", helped)
		})
	})
}

// TestFailedWritesAreMadeAgain: also by another controller.
func TestFailedWritesAreMadeAgain(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		testkit.Check(t, w.pods.Add(pod("p", 4)))
		w.fails = "create"
		w.start()
		if got := w.helpers(); len(got) > 0 {
			t.Errorf("created in vain: %q", got)
		}
		w.fails = "patch"
		w.wait(interval)
		if got := w.helpers(); !slices.Equal(got, []string{"ns/p"}) {
			t.Errorf("without condition: %q", got)
		}
		w.wait(0)
		w.start() // whose cache does not show the helper yet
		w.wait(interval)
		if got := w.helpers(); !slices.Equal(got, []string{helped}) {
			t.Errorf("in the end: %q", got)
		}
		w.fails = "delete"
		w.held = nil
		w.wait(interval)
		w.wait(interval)
		if got := w.helpers(); len(got) > 0 {
			t.Errorf("not deleted: %q", got)
		}
	})
}

// TestTheOldestPodsOfTheHighestPriorityComeFirst: where helpers are few.
func TestTheOldestPodsOfTheHighestPriorityComeFirst(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		object, _, _ := w.nodes.GetByKey("n")
		for i := range 30 {
			n := object.(*corev1.Node).DeepCopy()
			n.Name, n.Labels = fmt.Sprint("n-", i), map[string]string{"number": fmt.Sprint(i)}
			testkit.Check(t, w.nodes.Add(n))
			for half := range 2 {
				bound := pod(fmt.Sprintf("bound-%d-%d", i, half), 2)
				bound.Spec.NodeName = n.Name
				testkit.Check(t, w.pods.Add(bound))
			}
			testkit.Check(t, w.pods.Add(pod(fmt.Sprintf("p-%02d", i), 4, func(p *corev1.Pod) {
				p.Spec.NodeSelector = n.Labels
				priority := int32(i % 2)
				p.Spec.Priority = &priority
				p.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Duration(i/4) * time.Minute))
			})))
		}
		w.start()
		w.wait(5 * interval)
		var got []string
		for _, text := range w.helpers() {
			got = append(got, strings.TrimSuffix(strings.TrimPrefix(text, "ns/p-"), " False Unschedulable"))
		}
		// All with the priority 1, and of the others the oldest.
		want := "01 03 05 07 09 11 13 15 17 19 20 21 22 23 24 25 26 27 28 29"
		if strings.Join(got, " ") != want {
			t.Errorf("got %s, want %s", strings.Join(got, " "), want)
		}
	})
}
