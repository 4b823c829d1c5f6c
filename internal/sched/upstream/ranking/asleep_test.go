package ranking

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestAPodSleepsUntilAPodLeavesItsRoom: a pod that all nodes refused and that the queue does not wake when a pod
// leaves a node fits on no node then, and has no node to preempt on that it did not have before, by a pass of the
// filters over all nodes. Among the pods are some that other nodes refuse because of the pod that left.
func TestAPodSleepsUntilAPodLeavesItsRoom(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 5)
	c.wait("12")
	p, asked, logger := c.profiles["all"], 0, klog.New(logr.Discard().GetSink())
	remembering := Remember(func(name string) *Profile { return c.profiles[name] }, c.choose(&asked))
	hints := queue.QueueingHintMap{}
	for _, f := range p.ListPlugins().Filter.Enabled {
		hints[framework.EventAssignedPodDelete] = append(hints[framework.EventAssignedPodDelete],
			&queue.QueueingHintFunction{PluginName: f.Name, QueueingHintFn: func(klog.Logger, *corev1.Pod, any, any,
			) (fwk.QueueingHint, error) {
				return fwk.Queue, nil
			}})
	}
	inner := queue.NewTestQueue(t.Context(), func(a, b fwk.QueuedEntityInfo) bool { return false },
		queue.WithQueueingHintMapPerProfile(queue.QueueingHintMapPerProfile{"all": hints}))
	q := (&hooks.Events{Attempts: p, Nodes: c.cache}).Watch(takeable(t, inner), &hooks.Changes{})
	asleep, helped, elsewhere, preempts := 0, 0, 0, 0
	for step := range 5_000 {
		if c.rnd.IntN(6) == 0 {
			c.disturb()
		}
		for len(c.pods) < 60 || c.rnd.IntN(2) == 0 {
			running := c.pod(c.rnd.IntN(workloads))
			object.Priority(int32(c.rnd.IntN(3)))(running)
			c.schedule(t.Context(), running)
		}
		testkit.Check(t, c.cache.UpdateSnapshot(klog.Background(), c.snapshot))
		uid, _ := anyOf(c, c.pods)
		if c.rnd.IntN(3) > 0 {
			uid = c.onTheEmptiest()
		}
		pod := c.waiter(c.pods[uid])
		q.Add(t.Context(), pod)
		info, err := podqueue.Pods(q.Pop)(logger)
		testkit.Check(t, err)
		info.PodSignature = p.SignPod(t.Context(), pod)
		_, err = remembering(t.Context(), p, framework.NewCycleState(), info)
		var fit *framework.FitError
		if !errors.As(err, &fit) {
			q.Done(pod.UID)
			q.Delete(klog.Background(), pod)
			continue
		}
		info.UnschedulablePlugins = fit.Diagnosis.UnschedulablePlugins
		testkit.Check(t, q.AddUnschedulablePodIfNotPresent(logger, info, q.SchedulingCycle()))
		edited := pod.DeepCopy()
		apart(edited, "app-0")
		if p.Amounts(edited) != nil {
			t.Fatalf("step %d: a pod that was edited since it was tried is known", step)
		}
		before, _ := c.helpedOn(p, pod)
		gone := c.pods[uid]
		testkit.Check(t, c.cache.RemovePod(logger, gone))
		c.loads.RemovePod(uid)
		delete(c.pods, uid)
		q.MoveAllToActiveOrBackoffQueue(logger, framework.EventAssignedPodDelete, gone, nil, nil)
		testkit.Check(t, c.cache.UpdateSnapshot(klog.Background(), c.snapshot))
		after, fits := c.helpedOn(p, pod)
		sleeps := slices.ContainsFunc(inner.UnschedulablePods(), func(in *corev1.Pod) bool { return in.UID == pod.UID })
		more := after.Difference(before)
		switch {
		case sleeps && (len(fits) > 0 || len(more) > 0):
			t.Fatalf("step %d: pod %v with priority %d sleeps after a pod has left %s: it fits on %v, and may preempt "+
				"on %v, where it could not before", step, pod.Labels, corev1helpers.PodPriority(pod),
				gone.Spec.NodeName, sets.List(fits), sets.List(more))
		case sleeps:
			asleep++
		case len(fits) > 0:
			helped++
		case more.Has(gone.Spec.NodeName):
			preempts++
		case len(more) > 0:
			elsewhere++
		}
		q.Delete(klog.Background(), pod)
	}
	t.Logf("%d slept; of those that woke %d fit, %d could preempt on the node, %d elsewhere", asleep, helped, preempts,
		elsewhere)
	if asleep < 500 || helped < 50 || preempts < 20 || elsewhere < 10 {
		t.Error("too few of a kind for the steps to mean anything")
	}
}

// onTheEmptiest returns a pod of the node with the most CPUs left among those that run one.
func (c *cluster) onTheEmptiest() (uid types.UID) {
	c.t.Helper()
	most := int64(-1)
	for id, pod := range c.pods {
		n, err := c.snapshot.NodeInfos().Get(pod.Spec.NodeName)
		testkit.Check(c.t, err)
		if left := leftOf(n); left > most || left == most && id < uid {
			uid, most = id, left
		}
	}
	return uid
}

// leftOf is how many CPUs a node has left, in 1/1000.
func leftOf(n fwk.NodeInfo) int64 {
	return n.GetAllocatable().GetMilliCPU() - n.GetRequested().GetMilliCPU()
}

// waiter makes a pod of one of three priorities for which there is seldom room, or what the node of another pod has
// about when that pod leaves, with or without pods of lower priority. Some must be apart from the other pod, or are
// spread.
func (c *cluster) waiter(other *corev1.Pod) *corev1.Pod {
	c.t.Helper()
	pod := c.large(c.rnd.IntN(8))
	priority := int32(c.rnd.IntN(3))
	if c.rnd.IntN(4) > 0 {
		n, err := c.snapshot.NodeInfos().Get(other.Spec.NodeName)
		testkit.Check(c.t, err)
		milli, lower := leftOf(n), c.rnd.IntN(2) == 0
		for _, i := range n.GetPods() {
			if i.GetPod().UID == other.UID || lower && corev1helpers.PodPriority(i.GetPod()) < priority {
				milli += i.CalculateResource().Resource.GetMilliCPU()
			}
		}
		pod = c.pod(2 * c.rnd.IntN(2))
		object.Requests("cpu", fmt.Sprintf("%dm", max(milli-50+int64(c.rnd.IntN(2)*100), 100)))(pod)
	}
	switch c.rnd.IntN(4) {
	case 0:
		apart(pod, other.Labels["app"])
	case 1:
		pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": other.Labels["app"]}},
		})
	}
	object.Priority(priority)(pod)
	return pod
}

// apart lets a pod start in no zone with pods of an app.
func apart(pod *corev1.Pod, app string) {
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey:   corev1.LabelTopologyZone,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}},
	}}
}

// helpedOn returns the nodes that accept a pod once all pods of lower priority have left, and those that accept it now.
func (c *cluster) helpedOn(p *Profile, pod *corev1.Pod) (emptied, now sets.Set[string]) {
	c.t.Helper()
	emptied, now = sets.New[string](), sets.New[string]()
	f, ctx, state := p.Framework, c.t.Context(), framework.NewCycleState()
	allowed, status, _ := f.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		return emptied, now
	}
	nodes, err := c.snapshot.NodeInfos().List()
	testkit.Check(c.t, err)
	for _, n := range nodes {
		name := n.Node().Name
		if !allowed.AllNodes() && !allowed.NodeNames.Has(name) {
			continue
		}
		if f.RunFilterPluginsWithNominatedPods(ctx, state, pod, n).IsSuccess() {
			now.Insert(name)
		}
		without, dry := n.Snapshot(), state.Clone()
		for _, i := range n.GetPods() {
			if corev1helpers.PodPriority(i.GetPod()) < corev1helpers.PodPriority(pod) {
				testkit.Check(c.t, without.RemovePod(klog.Background(), i.GetPod()))
				if s := f.RunPreFilterExtensionRemovePod(ctx, dry, pod, i, without); !s.IsSuccess() {
					c.t.Fatal(s)
				}
			}
		}
		if f.RunFilterPluginsWithNominatedPods(ctx, dry, pod, without).IsSuccess() {
			emptied.Insert(name)
		}
	}
	return emptied, now
}
