package upstream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// TestNodesAreLoggedWhereOtherPodsAreNominated: what the queue of Kubernetes says of each node changes for no call
// without the node's being logged, and no node is logged for an update of a pod that takes as much as before.
func TestNodesAreLoggedWhereOtherPodsAreNominated(t *testing.T) {
	t.Parallel()
	changed, quiet, logger := 0, 0, klog.New(logr.Discard().GetSink())
	ctx := klog.NewContext(t.Context(), logger)
	var exist []runtime.Object
	for i := range 3 {
		p := &corev1.Pod{}
		p.Namespace, p.Name = "n", fmt.Sprint("p", i)
		exist = append(exist, p)
	}
	said := func(nominated []fwk.PodInfo) string {
		var all []string
		for _, info := range nominated {
			p := info.GetPod()
			cpu := info.CalculateResource().Resource.GetMilliCPU()
			all = append(all, fmt.Sprint(p.UID, len(p.Spec.Containers), cpu))
		}
		slices.Sort(all)
		return fmt.Sprint(all)
	}
	rapid.Check(t, func(rt *rapid.T) {
		q := queue.NewTestQueueWithObjects(ctx, func(a, b fwk.QueuedPodInfo) bool { return false }, exist)
		c := &Changes{}
		watched := (&Events{}).Watch(q, c)
		pods, popped := map[string]*corev1.Pod{}, map[string]*framework.QueuedPodInfo{}
		nominated := func() map[string]string {
			on := map[string]string{}
			for _, node := range []string{"a", "b"} {
				on[node] = said(q.NominatedPodsForNode(node))
				if got := said(watched.NominatedPodsForNode(node)); got != on[node] {
					rt.Fatalf("nominated to %s are %s, want %s", node, got, on[node])
				}
			}
			return on
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			name := fmt.Sprint("p", rapid.IntRange(0, 2).Draw(rt, "pod"))
			was, from := nominated(), c.seen
			is := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name)}}
			is.Status.NominatedNodeName = rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "status")
			cpus := resource.NewQuantity(rapid.Int64Range(0, 1).Draw(rt, "CPUs"), resource.DecimalSI)
			is.Spec.Containers = make([]corev1.Container, 1)
			is.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *cpus}
			info, err := framework.NewPodInfo(is)
			if err != nil {
				rt.Fatal(err)
			}
			old, updates := pods[name], false
			switch step := rapid.IntRange(0, 10).Draw(rt, "step"); {
			case old == nil:
				watched.Add(ctx, is)
				pods[name] = is
			case step == 0:
				watched.Delete(old)
				delete(pods, name)
				if popped[name] != nil {
					watched.Done(old.UID)
					delete(popped, name)
				}
			case step == 1 || step == 2:
				on := rapid.SampledFrom([]string{"", "a", "b", "as before"}).Draw(rt, "to")
				to := &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: on}
				if on == "as before" {
					to = nil
				}
				watched.AddNominatedPod(logger, info, to)
			case step == 3:
				watched.DeleteNominatedPodIfExists(old)
			case step == 4:
				watched.UpdateNominatedPod(logger, old, info)
			case popped[name] != nil && step < 8: // as the handler of failures brings it back
				popped[name].PodInfo, _ = framework.NewPodInfo(old)
				if err := watched.AddUnschedulableIfNotPresent(logger, popped[name], 0); err != nil {
					rt.Fatal(err)
				}
				delete(popped, name)
			case popped[name] == nil && step == 5:
				popped[name] = watched.PopSpecificPod(logger, old)
			case step == 6 && len(q.PodsInActiveQ()) > 0:
				head, err := watched.Pop(logger)
				if err != nil {
					rt.Fatal(err)
				}
				popped[head.Pod.Name] = head
			default:
				watched.Update(ctx, old, is)
				pods[name], updates = is, true
			}
			now := nominated()
			log, _ := c.since(from)
			for node := range now {
				if now[node] != was[node] {
					changed++
					if !slices.Contains(log, node) {
						rt.Fatalf("node %s is not logged: nominated were %s and are %s", node, was[node], now[node])
					}
				}
			}
			if updates && maps.Equal(was, now) {
				quiet++
				if len(log) > 0 {
					rt.Fatalf("nodes %v are logged for a pod that takes as much as before: %v", log, now)
				}
			}
		}
	})
	if !testing.Short() && (changed < 100 || quiet < 100) {
		t.Errorf("%d changes of a node and %d updates that are none: too few to mean anything", changed, quiet)
	}
}

// TestAPodThatIsSetAsideKeepsItsNode: what it asks for counts there although it has left the queue, until it yields no
// more.
func TestAPodThatIsSetAsideKeepsItsNode(t *testing.T) {
	t.Parallel()
	logger := klog.New(logr.Discard().GetSink())
	ctx := klog.NewContext(t.Context(), logger)
	p := testPod("p")
	p.Status.NominatedNodeName = "a"
	events, c := &Events{}, &Changes{}
	q := events.Watch(queue.NewTestQueueWithObjects(ctx, func(a, b fwk.QueuedPodInfo) bool { return false },
		[]runtime.Object{p}), c)
	q.Add(ctx, p)
	counts := func(when string, want int64) {
		t.Helper()
		got := int64(0)
		for _, info := range q.NominatedPodsForNode("a") {
			got += info.CalculateResource().Resource.GetMilliCPU()
		}
		if got != want {
			t.Errorf("%s: %d thousandths of a CPU count on the node, want %d", when, got, want)
		}
	}
	counts("in the queue", 2000)
	info, err := q.Pop(logger)
	if err != nil {
		t.Fatal(err)
	}
	counts("taken", 0)
	from := c.seen
	events.SetAside(info)
	counts("set aside", 2000)
	if log, _ := c.since(from); !slices.Contains(log, "a") {
		t.Errorf("the node is not logged: %v", log)
	}
	q.Update(ctx, p, p.DeepCopy())
	counts("updated", 2000)
	events.SetAside(nil)
	counts("tried", 0)
	events.SetAside(info)
	q.Delete(p)
	counts("deleted", 0)
	events.SetAside(nil)
	counts("deleted, and tried", 0)
}

// TestNewcomersAreTheFirstThatWereNeverTried: of those with the highest priority, and none twice. Pods with gates come
// when these go.
func TestNewcomersAreTheFirstThatWereNeverTried(t *testing.T) {
	t.Parallel()
	logger := klog.New(logr.Discard().GetSink())
	ctx := klog.NewContext(t.Context(), logger)
	taken, none, opened := 0, 0, 0
	hint := queue.QueueingHintFunction{PluginName: names.SchedulingGates, QueueingHintFn: alwaysQueue}
	opens := fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.UpdatePodSchedulingGatesEliminated}
	rapid.Check(t, func(rt *rapid.T) {
		events := &Events{}
		q := events.Watch(queue.NewTestQueue(ctx, func(a, b fwk.QueuedPodInfo) bool { return false },
			queue.WithPreEnqueuePluginMap(map[string]map[string]fwk.PreEnqueuePlugin{"": {hint.PluginName: gates{}}}),
			queue.WithQueueingHintMapPerProfile(queue.QueueingHintMapPerProfile{"": {
				opens: {&hint},
			}})), &Changes{})
		var fresh, queued, gated []*corev1.Pod
		leaves := func(p *corev1.Pod) {
			is := func(o *corev1.Pod) bool { return o.UID == p.UID }
			fresh, queued = slices.DeleteFunc(fresh, is), slices.DeleteFunc(queued, is)
		}
		skipped := func(p *corev1.Pod) bool { return p.Labels != nil }
		for i := range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch step := rapid.IntRange(0, 7).Draw(rt, "step"); {
			case step == 7 && len(gated) > 0:
				old := rapid.SampledFrom(gated).Draw(rt, "opened")
				gated = slices.DeleteFunc(gated, func(o *corev1.Pod) bool { return o == old })
				p := old.DeepCopy()
				p.Spec.SchedulingGates = nil
				q.Update(ctx, old, p)
				fresh, queued = append(fresh, p), append(queued, p)
				opened++
			case step <= 2 || len(queued) == 0:
				name := fmt.Sprint("p", i)
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
				p.Spec.Priority = ptr.To(rapid.Int32Range(0, 2).Draw(rt, "priority"))
				if rapid.IntRange(0, 3).Draw(rt, "skipped") == 0 {
					p.Labels = map[string]string{"skip": ""}
				}
				if rapid.IntRange(0, 2).Draw(rt, "gated") == 0 {
					p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}}
					gated = append(gated, p)
				} else {
					fresh, queued = append(fresh, p), append(queued, p)
				}
				q.Add(ctx, p)
			case step == 3:
				p := rapid.SampledFrom(queued).Draw(rt, "deleted")
				q.Delete(p)
				leaves(p)
			case step == 4: // tried, and back in the queue
				p := rapid.SampledFrom(queued).Draw(rt, "tried")
				if err := q.AddUnschedulableIfNotPresent(logger, q.PopSpecificPod(logger, p), 0); err != nil {
					rt.Fatal(err)
				}
				fresh = slices.DeleteFunc(fresh, func(o *corev1.Pod) bool { return o.UID == p.UID })
			default:
				least := rapid.Int32Range(0, 2).Draw(rt, "least")
				want, first := "", -1
				for priority := int32(2); priority >= least && first < 0; priority-- {
					first = slices.IndexFunc(fresh, func(p *corev1.Pod) bool {
						return *p.Spec.Priority == priority && !skipped(p)
					})
				}
				if none++; first >= 0 {
					want = fresh[first].Name
					none, taken = none-1, taken+1
				}
				got := ""
				if info := events.Newcomer(logger, least, skipped); info != nil {
					got = info.Pod.Name
				}
				if got != want {
					rt.Fatalf("got %q of priority %d at least, want %q", got, least, want)
				}
				if first >= 0 {
					leaves(fresh[first])
				}
			}
		}
	})
	if !testing.Short() && (taken < 50 || none < 50 || opened < 50) {
		t.Errorf("%d newcomers, %d times none, %d gates that went: too few to mean anything", taken, none, opened)
	}
}

// gates holds pods back that have gates.
type gates struct{}

func (gates) Name() string { return names.SchedulingGates }

func (gates) PreEnqueue(_ context.Context, p *corev1.Pod) *fwk.Status {
	if len(p.Spec.SchedulingGates) > 0 {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	}
	return nil
}

// TestANewcomerThatIsBeingAddedIsNotLost: it is waited for, and is not left to its turn among the pods that were tried.
func TestANewcomerThatIsBeingAddedIsNotLost(t *testing.T) {
	t.Parallel()
	logger := klog.New(logr.Discard().GetSink())
	ctx := klog.NewContext(t.Context(), logger)
	inner := slowQueue{
		queue.NewTestQueue(ctx, func(a, b fwk.QueuedPodInfo) bool { return false }),
		make(chan struct{}), make(chan struct{}),
	}
	events := &Events{}
	q := events.Watch(inner, &Changes{})
	go q.Add(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}})
	<-inner.asked
	got := make(chan *framework.QueuedPodInfo)
	go func() {
		got <- events.Newcomer(logger, 0, func(*corev1.Pod) bool { return false })
	}()
	select {
	case <-got:
		t.Fatal("the pod is not in the queue yet, and was not waited for")
	case <-time.After(50 * time.Millisecond):
	}
	close(inner.adds)
	if info := <-got; info == nil || info.Pod.Name != "p" {
		t.Errorf("got %v, want the pod", info)
	}
}

// slowQueue adds a pod when adds is closed.
type slowQueue struct {
	queue.SchedulingQueue
	asked, adds chan struct{}
}

func (q slowQueue) Add(ctx context.Context, pod *corev1.Pod) {
	close(q.asked)
	<-q.adds
	q.SchedulingQueue.Add(ctx, pod)
}

// holdBack is a plugin that lets pods into the queue when it is open.
type holdBack struct {
	open  bool
	asked int
}

func (h *holdBack) Name() string { return "HoldBack" }

func (h *holdBack) PreEnqueue(context.Context, *corev1.Pod) *fwk.Status {
	h.asked++
	if h.open {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
}

// TestPodsThatAreHeldBackAreAskedAboutOnceAtStart: not for each node that exists, and for each event from then on.
func TestPodsThatAreHeldBackAreAskedAboutOnceAtStart(t *testing.T) {
	t.Parallel()
	gate, logger := &holdBack{}, klog.New(logr.Discard().GetSink())
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	defer cancel()
	inner := queue.NewTestQueue(ctx, func(a, b fwk.QueuedPodInfo) bool { return false },
		queue.WithPreEnqueuePluginMap(map[string]map[string]fwk.PreEnqueuePlugin{"": {gate.Name(): gate}}),
		queue.WithQueueingHintMapPerProfile(queue.QueueingHintMapPerProfile{"": {
			{Resource: fwk.Node, ActionType: fwk.Add}: {{PluginName: gate.Name(), QueueingHintFn: alwaysQueue}},
		}}))
	q := Hold(inner)
	comes := func() {
		node := fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}
		q.MoveAllToActiveOrBackoffQueue(logger, node, nil, &corev1.Node{}, nil)
	}
	const pods = 3
	for i := range pods {
		q.Add(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint(i))}})
	}
	for range 10 {
		comes()
	}
	if gate.asked != pods || len(inner.PodsInActiveQ()) != 0 {
		t.Fatalf("before the start: asked %d times about %d pods, %d in the queue", gate.asked, pods,
			len(inner.PodsInActiveQ()))
	}
	q.Run(logger)
	defer q.Close()
	if gate.asked != 2*pods || len(inner.PodsInActiveQ()) != 0 {
		t.Fatalf("at the start: asked %d times about %d pods", gate.asked, pods)
	}
	gate.open = true
	comes()
	if got := len(inner.PodsInActiveQ()); got != pods {
		t.Fatalf("a node comes after the start: %d pods of %d are in the queue", got, pods)
	}
}

// TestPodsThatAreHeldBackNoLongerStart: what let them in came before the start, so no event follows.
func TestPodsThatAreHeldBackNoLongerStart(t *testing.T) {
	t.Parallel()
	gate, logger := &holdBack{}, klog.New(logr.Discard().GetSink())
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	defer cancel()
	inner := queue.NewTestQueue(ctx, func(a, b fwk.QueuedPodInfo) bool { return false },
		queue.WithPreEnqueuePluginMap(map[string]map[string]fwk.PreEnqueuePlugin{"": {gate.Name(): gate}}))
	q := Hold(inner)
	q.Add(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "1"}})
	gate.open = true
	q.Run(logger)
	defer q.Close()
	if got := len(inner.PodsInActiveQ()); got != 1 {
		t.Fatalf("%d pods in the queue, want 1", got)
	}
}

// TestPodsThatOnlyTheDeafPluginHasRefusedAreNotAskedAboutOtherPods: apart from these, each event reaches each pod.
func TestPodsThatOnlyTheDeafPluginHasRefusedAreNotAskedAboutOtherPods(t *testing.T) {
	t.Parallel()
	logger := klog.New(logr.Discard().GetSink())
	ctx := klog.NewContext(t.Context(), logger)
	asked := sets.New[string]()
	note := func(_ klog.Logger, pod *corev1.Pod, _, _ any) (fwk.QueueingHint, error) {
		asked.Insert(pod.Name)
		return fwk.QueueSkip, nil
	}
	hints := queue.QueueingHintMap{}
	for _, e := range []fwk.ClusterEvent{
		{Resource: fwk.Pod, ActionType: fwk.All}, {Resource: fwk.Node, ActionType: fwk.All},
	} {
		for _, plugin := range []string{"Deaf", "Fit"} {
			hints[e] = append(hints[e], &queue.QueueingHintFunction{PluginName: plugin, QueueingHintFn: note})
		}
	}
	inner := queue.NewTestQueue(ctx, func(a, b fwk.QueuedPodInfo) bool { return false },
		queue.WithQueueingHintMapPerProfile(queue.QueueingHintMapPerProfile{"": hints}))
	events := &Events{Deaf: "Deaf"}
	q := events.Watch(inner, &Changes{})
	refuse := func(name string, plugins ...string) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		q.Add(ctx, pod)
		info, err := q.Pop(logger)
		if err != nil {
			t.Fatal(err)
		}
		info.UnschedulablePlugins = sets.New(plugins...)
		if err := q.AddUnschedulableIfNotPresent(logger, info, q.SchedulingCycle()); err != nil {
			t.Fatal(err)
		}
	}
	refuse("sibling", "Deaf")
	refuse("asked", "Deaf", "Fit")
	refuse("plain", "Fit")
	refuse("gone", "Deaf")
	q.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "gone", UID: "gone"}})
	refuse("gone", "Fit") // and is refused by another plugin when it comes again
	assigned := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{NodeName: "n"}}
	for _, c := range []struct {
		event fwk.ClusterEvent
		check queue.PreEnqueueCheck
		want  []string
	}{
		{framework.EventAssignedPodAdd, nil, []string{"asked", "gone", "plain"}},
		{framework.EventAssignedPodDelete, nil, []string{"asked", "gone", "plain"}},
		{
			framework.EventAssignedPodUpdate, func(p *corev1.Pod) bool { return p.Name != "plain" },
			[]string{"asked", "gone"},
		},
		{fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, nil, []string{"asked", "gone", "plain", "sibling"}},
	} {
		asked.Clear()
		q.MoveAllToActiveOrBackoffQueue(logger, c.event, nil, assigned, c.check)
		if diff := cmp.Diff(c.want, sets.List(asked)); diff != "" {
			t.Errorf("%s: pods that plugins are asked about (-want +got):\n%s", c.event.Label(), diff)
		}
	}
}

func alwaysQueue(klog.Logger, *corev1.Pod, any, any) (fwk.QueueingHint, error) { return fwk.Queue, nil }
