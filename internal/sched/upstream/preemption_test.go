package upstream

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	"k8s.io/utils/ptr"
)

// eager are rules of Kubernetes that let each pod preempt, and note what they are asked.
type eager struct {
	preemption.Interface
	node string
	says *fwk.Status
}

func (e *eager) PodEligibleToPreemptOthers(_ context.Context, pod *corev1.Pod, nominated *fwk.Status) (bool, string) {
	e.node, e.says = pod.Status.NominatedNodeName, nominated
	return true, ""
}

// seen is a handle with a snapshot and what informers know.
type seen struct {
	fwk.Handle
	snapshot *cache.Snapshot
	factory  informers.SharedInformerFactory
}

func (s *seen) SnapshotSharedLister() fwk.SharedLister                 { return s.snapshot }
func (s *seen) SharedInformerFactory() informers.SharedInformerFactory { return s.factory }

// TestAPodHasNoMoreVictimsWhileItsFirstOnesGo: neither that its status does not name the node yet nor that the snapshot
// is older than what woke it lets it preempt again.
func TestAPodHasNoMoreVictimsWhileItsFirstOnesGo(t *testing.T) {
	t.Parallel()
	unresolvable := fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(time.Unix(1, 0))) }
	marked := func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
		})
	}
	preempted := func(p *corev1.Pod) {
		marked(p)
		deleted(p)
	}
	for name, c := range map[string]struct {
		written  bool // the status names the node
		nowhere  bool // no node is nominated
		snapshot func(victim *corev1.Pod)
		known    func(victim *corev1.Pod) // nil where it is gone
		priority int32                    // of the other pod on the node
		says     *fwk.Status
		want     bool
	}{
		"nothing goes":                          {known: func(*corev1.Pod) {}, want: true},
		"nothing goes, and the status knows":    {written: true, known: func(*corev1.Pod) {}, want: true},
		"it is gone":                            {written: true},
		"it is gone, and no status knows":       {},
		"it goes":                               {known: preempted},
		"another of its name came":              {known: func(p *corev1.Pod) { p.UID = "other" }},
		"it is to go, and may yet be kept":      {known: marked, want: true},
		"so says the snapshot":                  {snapshot: preempted, known: preempted, want: true},
		"it goes for another reason":            {known: deleted, want: true},
		"its priority is higher":                {priority: 20, want: true},
		"no node is nominated":                  {nowhere: true, want: true},
		"the node can never have the pod":       {written: true, says: unresolvable, want: true},
		"of another node nothing is to be read": {says: unresolvable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logger := klog.New(logr.Discard().GetSink())
			ctx := klog.NewContext(t.Context(), logger)
			pod, victim := testPod("p"), testPod("victim")
			pod.Spec.Priority, victim.Spec.Priority = ptr.To[int32](10), ptr.To(c.priority)
			victim.Spec.NodeName = "a"
			events := &Events{}
			q := events.Watch(queue.NewTestQueueWithObjects(ctx, func(a, b fwk.QueuedPodInfo) bool { return false },
				[]runtime.Object{pod}), &Changes{})
			q.Add(ctx, pod)
			info, err := framework.NewPodInfo(pod)
			if err != nil {
				t.Fatal(err)
			}
			want := "a"
			if c.nowhere {
				want = ""
			} else {
				to := &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: want}
				q.AddNominatedPod(logger, info, to)
			}
			asked := pod.DeepCopy()
			if c.written {
				asked.Status.NominatedNodeName = "a"
			}
			h := &seen{factory: informers.NewSharedInformerFactory(nil, 0)}
			if c.known != nil {
				known := victim.DeepCopy()
				c.known(known)
				if err := h.factory.Core().V1().Pods().Informer().GetStore().Add(known); err != nil {
					t.Fatal(err)
				}
			}
			if c.snapshot != nil {
				c.snapshot(victim)
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			h.snapshot = cache.NewSnapshot([]*corev1.Pod{victim}, []*corev1.Node{node})
			rules := &eager{}
			may, reason := events.Patient(h, rules).PodEligibleToPreemptOthers(ctx, asked, c.says)
			if may != c.want || may != (reason == "") {
				t.Errorf("it may preempt: %t (%s), want %t", may, reason, c.want)
			}
			if rules.node != want {
				t.Errorf("Kubernetes' rule is asked with node %q, want %q", rules.node, want)
			}
			if c.written != (rules.says == c.says) && c.says != nil {
				t.Errorf("Kubernetes' rule gets %v for the node", rules.says)
			}
			if asked.Status.NominatedNodeName == "a" != c.written {
				t.Error("the pod of the informer is changed")
			}
		})
	}
}

// TestANominationHoldsUntilTheStatusSaysIt: attempts that change nothing about it do not end it before.
func TestANominationHoldsUntilTheStatusSaysIt(t *testing.T) {
	t.Parallel()
	logger := klog.New(logr.Discard().GetSink())
	ctx := klog.NewContext(t.Context(), logger)
	pod := testPod("p")
	events := &Events{}
	q := events.Watch(queue.NewTestQueueWithObjects(ctx, func(a, b fwk.QueuedPodInfo) bool { return false },
		[]runtime.Object{pod}), &Changes{})
	q.Add(ctx, pod)
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		t.Fatal(err)
	}
	override := func(node string) *fwk.NominatingInfo {
		return &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: node}
	}
	for i, step := range []struct {
		to   *fwk.NominatingInfo
		want string
	}{{nil, ""}, {override("a"), "a"}, {nil, "a"}, {override("b"), "b"}, {override(""), ""}, {nil, ""}} {
		q.AddNominatedPod(logger, info, step.to)
		if on := events.Nominated(pod.UID); on != step.want || (len(q.NominatedPodsForNode("a")) > 0) != (on == "a") {
			t.Errorf("step %d: nominated to %q, want %q", i+1, on, step.want)
		}
	}
}
