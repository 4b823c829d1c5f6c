package hooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestNodesAreLoggedWhereOtherPodsAreNominated: what the queue of Kubernetes says of each node changes for no call
// without the node's being logged, and no node is logged for an update of a pod that is nominated to none.
func TestNodesAreLoggedWhereOtherPodsAreNominated(t *testing.T) {
	t.Parallel()
	changed, quiet, logger := 0, 0, klog.New(logr.Discard().GetSink())
	ctx := klog.NewContext(t.Context(), logger)
	var exist []runtime.Object
	for i := range 3 {
		exist = append(exist, object.Pod(fmt.Sprint("n/p", i)))
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
		q := queue.NewTestQueueWithObjects(ctx, func(a, b fwk.QueuedEntityInfo) bool { return false }, exist)
		c := &Changes{}
		watched := (&Events{}).Watch(takeable(t, q), c)
		pods, popped := map[string]*corev1.Pod{}, map[string]*framework.QueuedPodInfo{}
		nominated := func() map[string]string {
			on := map[string]string{}
			for _, node := range []string{"a", "b"} {
				on[node] = said(q.NominatedPodsForNode(node))
			}
			return on
		}
		// In two of three cases no pod is nominated at any step.
		places := rapid.SampledFrom([][]string{{"", "a", "b"}, {""}, {""}}).Draw(rt, "places")
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			name := fmt.Sprint("p", rapid.IntRange(0, 2).Draw(rt, "pod"))
			was, from := nominated(), c.seen
			pod := object.Pod("n/" + name)
			pod.Status.NominatedNodeName = rapid.SampledFrom(places).Draw(rt, "status")
			cpus := resource.NewQuantity(rapid.Int64Range(0, 1).Draw(rt, "CPUs"), resource.DecimalSI)
			pod.Spec.Containers = make([]corev1.Container, 1)
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *cpus}
			info, err := framework.NewPodInfo(pod)
			if err != nil {
				rt.Fatal(err)
			}
			old, updates := pods[name], false
			switch step := rapid.IntRange(0, 10).Draw(rt, "step"); {
			case old == nil:
				watched.Add(ctx, pod)
				pods[name] = pod
			case step == 0:
				watched.Delete(klog.Background(), old)
				delete(pods, name)
				if popped[name] != nil {
					watched.Done(old.UID)
					delete(popped, name)
				}
			case step == 1 || step == 2:
				on := rapid.SampledFrom(append(slices.Clone(places), "as before")).Draw(rt, "to")
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
				if err := watched.AddUnschedulablePodIfNotPresent(logger, popped[name], 0); err != nil {
					rt.Fatal(err)
				}
				delete(popped, name)
			case popped[name] == nil && step == 5:
				popped[name] = watched.Take(logger, old)
			case step == 6 && len(q.PodsInActiveQ()) > 0:
				head, err := podqueue.Pods(watched.Pop)(logger)
				if err != nil {
					rt.Fatal(err)
				}
				popped[head.Pod.Name] = head
			default:
				watched.Update(ctx, old, pod)
				pods[name], updates = pod, true
			}
			now := nominated()
			log, _ := c.Since(from)
			for node := range now {
				if now[node] != was[node] {
					changed++
					if !slices.Contains(log, node) {
						rt.Fatalf("node %s is not logged: nominated were %s and are %s", node, was[node], now[node])
					}
				}
			}
			if updates && was["a"]+was["b"]+now["a"]+now["b"] == "[][][][]" {
				quiet++
				if len(log) > 0 {
					rt.Fatalf("nodes %v are logged, and no pod is nominated", log)
				}
			}
		}
	})
	if !testing.Short() && (changed < 100 || quiet < 100) {
		t.Errorf("%d changes of a node and %d updates that are none: too few to mean anything", changed, quiet)
	}
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
	inner := queue.NewTestQueue(ctx, func(a, b fwk.QueuedEntityInfo) bool { return false },
		queue.WithPreEnqueuePluginMap(map[string]map[string]fwk.PreEnqueuePlugin{"": {gate.Name(): gate}}),
		queue.WithQueueingHintMapPerProfile(queue.QueueingHintMapPerProfile{"": {
			{Resource: fwk.Node, ActionType: fwk.Add}: {{PluginName: gate.Name(), QueueingHintFn: alwaysQueue}},
		}}))
	q := Hold(takeable(t, inner), func(*corev1.Pod) bool { return false })
	comes := func() {
		node := fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}
		q.MoveAllToActiveOrBackoffQueue(logger, node, nil, &corev1.Node{}, nil)
	}
	const pods = 3
	for i := range pods {
		q.Add(ctx, object.Pod(fmt.Sprint("p", i)))
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
	inner := queue.NewTestQueue(ctx, func(a, b fwk.QueuedEntityInfo) bool { return false },
		queue.WithPreEnqueuePluginMap(map[string]map[string]fwk.PreEnqueuePlugin{"": {gate.Name(): gate}}))
	q := Hold(takeable(t, inner), func(*corev1.Pod) bool { return false })
	q.Add(ctx, object.Pod("p"))
	gate.open = true
	q.Run(logger)
	defer q.Close()
	if got := len(inner.PodsInActiveQ()); got != 1 {
		t.Fatalf("%d pods in the queue, want 1", got)
	}
}

// TestAPodIsWhereItsOrderIsWhenTheQueueRuns: a queue does not move a pod whose order changes while it is in the queue.
func TestAPodIsWhereItsOrderIsWhenTheQueueRuns(t *testing.T) {
	t.Parallel()
	logger := klog.New(logr.Discard().GetSink())
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	defer cancel()
	rank := map[string]int{}
	inner := queue.NewTestQueue(ctx, func(a, b fwk.QueuedEntityInfo) bool {
		return rank[podqueue.PodOf(a).Name] < rank[podqueue.PodOf(b).Name]
	})
	q := Hold(takeable(t, inner), func(p *corev1.Pod) bool { return strings.HasPrefix(p.Name, "member") })
	for i := range 8 {
		for _, name := range []string{fmt.Sprint("plain", i), fmt.Sprint("member", i)} {
			rank[name] = 10 * (1 + len(rank))
			q.Add(ctx, object.Pod(name))
		}
	}
	rank["member7"], rank["member5"] = 1, 2 // the first of all now
	changed := object.Pod("member4", object.Label("changed", "yes"))
	q.Update(ctx, object.Pod("member4"), changed)
	q.Update(ctx, object.Pod("plain4"), object.Pod("plain4"))
	q.Delete(klog.Background(), object.Pod("member6"))
	q.Delete(klog.Background(), object.Pod("plain6"))
	q.Delete(klog.Background(), object.Pod("member2"))
	q.Add(ctx, object.Pod("member2"))
	q.Run(logger)
	defer q.Close()
	rank["member8"] = 1000
	q.Add(ctx, object.Pod("member8"))
	var got []string
	for len(inner.PodsInActiveQ()) > 0 {
		pod, err := podqueue.Pods(q.Pop)(logger)
		testkit.Check(t, err)
		if got = append(got, pod.Pod.Name); pod.Pod.Name == "member4" && pod.Pod.Labels["changed"] == "" {
			t.Error("member4 is the pod before its update")
		}
	}
	want := "member7 member5 plain0 member0 plain1 member1 plain2 member2 plain3 member3 plain4 member4 plain5 " +
		"plain7 member8"
	if diff := gocmp.Diff(strings.Fields(want), got); diff != "" {
		t.Errorf("the order (-want +got):\n%s", diff)
	}
}

// TestPodsThatAreRefusedForTheirSiblingsAreNotAskedAboutOtherPods: apart from these, each event reaches each pod.
func TestPodsThatAreRefusedForTheirSiblingsAreNotAskedAboutOtherPods(t *testing.T) {
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
		for _, plugin := range []string{"Siblings", "Fit"} {
			hints[e] = append(hints[e], &queue.QueueingHintFunction{PluginName: plugin, QueueingHintFn: note})
		}
	}
	inner := queue.NewTestQueue(ctx, func(a, b fwk.QueuedEntityInfo) bool { return false },
		queue.WithQueueingHintMapPerProfile(queue.QueueingHintMapPerProfile{"": hints}))
	events := &Events{SiblingPlugin: "Siblings"}
	q := events.Watch(takeable(t, inner), &Changes{})
	refuse := func(name string, plugins ...string) {
		pod := object.Pod(name)
		q.Add(ctx, pod)
		info, err := podqueue.Pods(q.Pop)(logger)
		testkit.Check(t, err)
		info.UnschedulablePlugins = sets.New(plugins...)
		testkit.Check(t, q.AddUnschedulablePodIfNotPresent(logger, info, q.SchedulingCycle()))
	}
	refuse("sibling", "Siblings")
	refuse("asked", "Siblings", "Fit")
	refuse("plain", "Fit")
	refuse("gone", "Siblings")
	q.Delete(klog.Background(), object.Pod("gone"))
	refuse("gone", "Fit") // and is refused by another plugin when it comes again
	assigned := object.Pod("a", object.On("n"))
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
		if diff := gocmp.Diff(c.want, sets.List(asked)); diff != "" {
			t.Errorf("%s: pods that plugins are asked about (-want +got):\n%s", c.event.Label(), diff)
		}
	}
}

func alwaysQueue(klog.Logger, *corev1.Pod, any, any) (fwk.QueueingHint, error) { return fwk.Queue, nil }

// amounts compares CPUs alone, and fails where broken is set.
type amounts struct {
	fwk.FilterPlugin
	broken bool
}

func (amounts) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (amounts) PreFilter(context.Context, fwk.CycleState, *corev1.Pod, []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	return nil, nil
}

func (a amounts) Filter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, n fwk.NodeInfo) *fwk.Status {
	left := n.GetAllocatable().GetMilliCPU() - n.GetRequested().GetMilliCPU()
	switch info, err := framework.NewPodInfo(pod); {
	case a.broken || err != nil:
		return fwk.NewStatus(fwk.Error)
	case info.CalculateResource().Resource.GetMilliCPU() > left:
		return fwk.NewStatus(fwk.Unschedulable)
	}
	return nil
}

// TestPodsAreWokenByWhatAPodLeaves: pods that each node refuses by itself wake when a pod leaves a node that has what
// they ask for then, and in case of doubt. Of the 8 CPUs of the node, 3 are taken by a pod of priority 5.
func TestPodsAreWokenByWhatAPodLeaves(t *testing.T) {
	t.Parallel()
	never := func(p *corev1.Pod) { p.Spec.PreemptionPolicy = new(corev1.PreemptNever) }
	nominated := func(node string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.NominatedNodeName = node }
	}
	nodeUpdate := fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Update}
	for name, c := range map[string]struct {
		cpus     string
		priority int32
		pod      func(*corev1.Pod)
		edit     func(*corev1.Pod)
		event    fwk.ClusterEvent
		gone     *corev1.Pod
		unknown  bool // whether each node refuses the pod by itself
		broken   bool
		want     bool
	}{
		"it fits":                            {cpus: "5", want: true},
		"it does not":                        {cpus: "6"},
		"it does, but not on such nodes":     {cpus: "9"},
		"it may preempt":                     {cpus: "8", priority: 6, want: true},
		"that does not suffice":              {cpus: "9", priority: 6},
		"of its own priority are no victims": {cpus: "6", priority: 5},
		"it may not preempt: in doubt":       {cpus: "8", priority: 6, pod: never, want: true},
		"it waits for the node":              {cpus: "6", pod: nominated("n"), want: true},
		"it waits for another":               {cpus: "6", pod: nominated("m")},
		"other pods may concern it":          {cpus: "6", unknown: true, want: true},
		"it was edited":                      {cpus: "6", edit: object.Label("a", "b"), want: true},
		"it has another status":              {cpus: "6", edit: func(p *corev1.Pod) { p.Status.Message = "m" }},
		"the plugin fails":                   {cpus: "6", broken: true, want: true},
		"the node is not known":              {cpus: "6", gone: object.Pod("gone", object.On("m")), want: true},
		"the pod that is gone was of a gang": {
			cpus: "6", want: true,
			gone: object.Pod("gone", object.On("n"), object.Label("pod-group.scheduling.sigs.k8s.io", "g")),
		},
		"the pod that is gone was nominated":  {cpus: "6", gone: object.Pod("gone"), want: true},
		"a pod has changed, and is not gone":  {cpus: "6", event: framework.EventAssignedPodUpdate, want: true},
		"a node has changed, and no pod left": {cpus: "6", event: nodeUpdate, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logger := klog.New(logr.Discard().GetSink())
			ctx := klog.NewContext(t.Context(), logger)
			hints := queue.QueueingHintMap{}
			for _, e := range []fwk.ClusterEvent{
				framework.EventAssignedPodDelete, framework.EventAssignedPodUpdate,
				{Resource: fwk.Node, ActionType: fwk.Update},
			} {
				hints[e] = []*queue.QueueingHintFunction{{PluginName: "Fit", QueueingHintFn: alwaysQueue}}
			}
			inner := queue.NewTestQueue(ctx, func(a, b fwk.QueuedEntityInfo) bool { return false },
				queue.WithQueueingHintMapPerProfile(queue.QueueingHintMapPerProfile{"": hints}))
			node := framework.NewNodeInfo(object.Pod("runs", object.Requests("cpu", "3"), object.Priority(5)))
			node.SetNode(object.Node("n", nil, "cpu", "8"))
			q := (&Events{
				Attempts: attempts{unknown: c.unknown, broken: c.broken}, Nodes: nodes{"n": node},
			}).Watch(takeable(t, inner), &Changes{})
			pod := object.Pod("p", object.Requests("cpu", c.cpus), object.Priority(c.priority))
			if c.pod != nil {
				c.pod(pod)
			}
			q.Add(ctx, pod)
			info, err := podqueue.Pods(q.Pop)(logger)
			testkit.Check(t, err)
			info.UnschedulablePlugins = sets.New("Fit")
			testkit.Check(t, q.AddUnschedulablePodIfNotPresent(logger, info, q.SchedulingCycle()))
			if c.edit != nil {
				edited := pod.DeepCopy()
				c.edit(edited)
				q.Update(ctx, pod, edited)
			}
			if c.event == (fwk.ClusterEvent{}) {
				c.event = framework.EventAssignedPodDelete
			}
			gone := cmp.Or(c.gone, object.Pod("gone", object.On("n")))
			q.MoveAllToActiveOrBackoffQueue(logger, c.event, gone, nil, nil)
			if got := len(inner.UnschedulablePods()) == 0; got != c.want {
				t.Errorf("the pod wakes: %t, want %t", got, c.want)
			}
		})
	}
}

// attempts are those on pods that all nodes refuse.
type attempts struct{ unknown, broken bool }

func (a attempts) Amounts(*corev1.Pod) Amounts {
	if a.unknown {
		return nil
	}
	return amounts{broken: a.broken}
}

// nodes are those of a cache, by name.
type nodes map[string]*framework.NodeInfo

func (n nodes) GetNode(name string) (*framework.NodeInfo, error) {
	if n[name] == nil {
		return nil, errors.New("not found")
	}
	return n[name], nil
}

// rooms are opened by an event whose object is the name of their owner.
type rooms struct{}

func (rooms) Opened(_, obj any) func(*corev1.Pod) bool {
	if owner, ok := obj.(string); ok {
		return func(p *corev1.Pod) bool { return p.Name == owner }
	}
	return nil
}

// TestPodsWakeWhenRoomIsKeptForThem: whoever refused them, and also if they are tried while the room comes.
func TestPodsWakeWhenRoomIsKeptForThem(t *testing.T) {
	t.Parallel()
	logger := klog.New(logr.Discard().GetSink())
	ctx := klog.NewContext(t.Context(), logger)
	inner := queue.NewTestQueue(ctx, func(a, b fwk.QueuedEntityInfo) bool { return false },
		queue.WithQueueingHintMapPerProfile(queue.QueueingHintMapPerProfile{"": {
			{Resource: fwk.Node, ActionType: fwk.All}: {{PluginName: "Fit", QueueingHintFn: alwaysQueue}},
		}}))
	q := (&Events{Rooms: rooms{}}).Watch(takeable(t, inner), &Changes{})
	tried := map[string]*framework.QueuedPodInfo{}
	for _, name := range []string{"waits", "owner", "tried"} {
		q.Add(ctx, object.Pod(name))
		info, err := podqueue.Pods(q.Pop)(logger)
		testkit.Check(t, err)
		info.UnschedulablePlugins = sets.New("Fit")
		tried[name] = info
	}
	refuse := func(name string) {
		testkit.Check(t, q.AddUnschedulablePodIfNotPresent(logger, tried[name], q.SchedulingCycle()))
	}
	asleep := func(want ...string) {
		t.Helper()
		got := sets.New[string]()
		for _, p := range inner.UnschedulablePods() {
			got.Insert(p.Name)
		}
		if diff := gocmp.Diff(sets.List(sets.New(want...)), sets.List(got)); diff != "" {
			t.Errorf("pods that sleep (-want +got):\n%s", diff)
		}
	}
	refuse("waits")
	refuse("owner")
	room := fwk.ClusterEvent{Resource: "rooms.v1.example.com", ActionType: fwk.Update}
	q.MoveAllToActiveOrBackoffQueue(logger, room, nil, 1, nil)
	asleep("owner", "waits")
	q.MoveAllToActiveOrBackoffQueue(logger, room, nil, "owner", nil)
	asleep("waits")
	q.MoveAllToActiveOrBackoffQueue(logger, room, nil, "tried", nil)
	refuse("tried")
	asleep("waits")
}

// takeable returns a queue of upstream as Tenon uses it.
func takeable(t *testing.T, q queue.SchedulingQueue) podqueue.Queue {
	t.Helper()
	out, err := podqueue.New(q)
	testkit.Check(t, err)
	return out
}

// TestAPodWakesForOtherPluginsThanThoseThatRefusedIt: the queue keeps both names.
func TestAPodWakesForOtherPluginsThanThoseThatRefusedIt(t *testing.T) {
	t.Parallel()
	kept := &kept{}
	e := &Events{Also: kept}
	q := e.Watch(kept, &Changes{})
	for refused, want := range map[string][]string{"Claims": {"Cards", "Claims"}, "Fit": {"Fit"}} {
		info, err := framework.NewPodInfo(object.Pod("p"))
		testkit.Check(t, err)
		pod := &framework.QueuedPodInfo{PodInfo: info}
		pod.UnschedulablePlugins, pod.PendingPlugins = sets.New(refused), sets.New[string]()
		testkit.Check(t, q.AddUnschedulablePodIfNotPresent(klog.Background(), pod, 0))
		if got := sets.List(kept.last); !slices.Equal(got, want) {
			t.Errorf("a pod that %s refused wakes for %v, want %v", refused, got, want)
		}
	}
}

// kept is a queue that keeps the plugins of the last pod.
type kept struct {
	podqueue.Queue
	last sets.Set[string]
}

func (k *kept) AddUnschedulablePodIfNotPresent(_ klog.Logger, pod *framework.QueuedPodInfo, _ int64) error {
	k.last = pod.UnschedulablePlugins
	return nil
}

// Wakes says that pods which Claims refuses may fit once Cards has changed.
func (*kept) Wakes(p *framework.QueuedPodInfo) []string {
	if p.UnschedulablePlugins.Has("Claims") {
		return []string{"Cards"}
	}
	return nil
}

func (*kept) NominatedPodsForNode(string) []fwk.PodInfo { return nil }
