package guard_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/sched/upstream/guard"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
	"github.com/tenon-project/tenon/internal/sched/upstream/ranking"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// panicky is a plugin at every extension point. It panics at one of them for the pod "bad".
type panicky struct {
	handle fwk.Handle
	at     string
	// refuses is the extension point that refuses the pod "bad" without a panic.
	refuses string
}

func (p *panicky) Name() string { return "Panicky" }

// step panics or refuses where it is to.
func (p *panicky) step(at string, pod *corev1.Pod) *fwk.Status {
	switch {
	case pod.Name != "bad":
	case at == p.at:
		panic("at " + at)
	case at == p.refuses:
		return fwk.NewStatus(fwk.Unschedulable, "refused")
	}
	return nil
}

func (p *panicky) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	return p.step("PreEnqueue", pod)
}

func (p *panicky) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	hint := func(_ klog.Logger, pod *corev1.Pod, _, _ any) (fwk.QueueingHint, error) {
		p.step("QueueingHint", pod)
		return fwk.QueueSkip, nil
	}
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, QueueingHintFn: hint},
	}, nil
}

func (p *panicky) PreFilter(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	p.handle.Parallelizer().Until(ctx, 100, func(int) { p.step("work", pod) }, "test")
	return nil, p.step("PreFilter", pod)
}

func (p *panicky) PreFilterExtensions() fwk.PreFilterExtensions { return p }

func (p *panicky) AddPod(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	return p.step("AddPod", pod)
}

func (p *panicky) RemovePod(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	return p.step("RemovePod", pod)
}

func (p *panicky) Filter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ fwk.NodeInfo) *fwk.Status {
	return p.step("Filter", pod)
}

func (p *panicky) PostFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	p.step("PostFilter", pod)
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

func (p *panicky) PreScore(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	return p.step("PreScore", pod)
}

func (p *panicky) Score(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ fwk.NodeInfo) (int64, *fwk.Status) {
	return 1, p.step("Score", pod)
}

func (p *panicky) ScoreExtensions() fwk.ScoreExtensions { return p }

func (p *panicky) NormalizeScore(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ fwk.NodeScoreList,
) *fwk.Status {
	return p.step("NormalizeScore", pod)
}

func (p *panicky) Reserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) *fwk.Status {
	return p.step("Reserve", pod)
}

func (p *panicky) Unreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	p.step("Unreserve", pod)
}

func (p *panicky) Permit(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) (*fwk.Status, time.Duration) {
	return p.step("Permit", pod), 0
}

func (p *panicky) PreBindPreFlight(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string,
) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	return nil, p.step("PreBindPreFlight", pod)
}

func (p *panicky) PreBind(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) *fwk.Status {
	return p.step("PreBind", pod)
}

func (p *panicky) Bind(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) *fwk.Status {
	p.step("Bind", pod)
	return fwk.NewStatus(fwk.Skip)
}

func (p *panicky) PostBind(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	p.step("PostBind", pod)
}

func (p *panicky) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, p.step("SignPod", pod)
}

// cluster is a guarded scheduling core with rankings, over two nodes of 4 CPUs each, of which a pod of priority 0 has
// one.
type cluster struct {
	*testing.T
	core   *scheduler.Scheduler
	client *fake.Clientset
	events *events.FakeRecorder
	panics *metrics.CounterVec
	now    time.Time // of the guard
	said   []string  // the Events so far
}

func newCluster(t *testing.T, plugin *panicky) *cluster {
	t.Helper()
	c := &cluster{T: t, client: fake.NewClientset(), events: events.NewFakeRecorder(100), now: time.Now()}
	factory := informers.NewSharedInformerFactory(c.client, 0)
	enabled := config.PluginSet{}
	for _, name := range []string{
		names.PrioritySort, names.NodeResourcesFit, "Panicky", names.DefaultPreemption, names.DefaultBinder,
	} {
		enabled.Enabled = append(enabled.Enabled, config.Plugin{Name: name, Weight: 1})
	}
	profile := config.KubeSchedulerProfile{
		SchedulerName: "s", Plugins: &config.Plugins{MultiPoint: enabled}, PluginConfig: []config.PluginConfig{
			{Name: names.NodeResourcesFit, Args: &config.NodeResourcesFitArgs{ScoringStrategy: &config.ScoringStrategy{
				Type: config.LeastAllocated, Resources: []config.ResourceSpec{{Name: "cpu", Weight: 1}},
			}}},
			{Name: names.DefaultPreemption, Args: &config.DefaultPreemptionArgs{MinCandidateNodesAbsolute: 10}},
		},
	}
	registry := frameworkruntime.Registry{"Panicky": func(_ context.Context, _ runtime.Object, h fwk.Handle) (
		fwk.Plugin, error,
	) {
		plugin.handle = h
		return plugin, nil
	}}
	var err error
	c.core, err = scheduler.New(t.Context(), c.client, factory, nil,
		func(string) events.EventRecorderLogger { return c.events },
		scheduler.WithProfiles(profile), scheduler.WithFrameworkOutOfTreeRegistry(registry))
	testkit.Check(t, err)
	register := func(all ...metrics.Registerable) {
		c.panics = all[0].(*metrics.CounterVec)
		metrics.NewKubeRegistry().MustRegister(c.panics)
	}
	testkit.Check(t, guard.New(register, func() time.Time { return c.now }).Scheduler(c.core))
	ranked, err := ranking.NewProfile(t.Context(), c.core.Profiles["s"], &profile, &hooks.Changes{}, "Panicky")
	testkit.Check(t, err)
	c.core.Profiles["s"] = ranked
	for _, name := range []string{"a", "b"} {
		c.create(object.Node(name, nil, "cpu", "4", "pods", "10"))
		c.create(object.Pod("low-"+name, object.Scheduler("s"), object.On(name), object.Requests("cpu", "1")))
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	testkit.Check(t, c.core.WaitForHandlersSync(t.Context()))
	return c
}

// create creates an object.
func (c *cluster) create(o runtime.Object) {
	c.Helper()
	var err error
	switch o := o.(type) {
	case *corev1.Node:
		_, err = c.client.CoreV1().Nodes().Create(c.Context(), o, metav1.CreateOptions{})
	case *corev1.Pod:
		_, err = c.client.CoreV1().Pods("default").Create(c.Context(), o, metav1.CreateOptions{})
	}
	testkit.Check(c.T, err)
}

// until waits for what goroutines of the scheduler do.
func (c *cluster) until(what string, done func() bool) {
	c.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); {
		if time.Now().After(deadline) {
			c.Fatalf("%s: not so after a minute; bound: %v, Events: %q", what, c.bound(), c.said)
		}
		<-time.After(time.Millisecond)
	}
}

// schedule creates a pod and attempts it, unless a plugin keeps it from the queue.
func (c *cluster) schedule(pod *corev1.Pod) {
	c.Helper()
	c.create(pod)
	q := c.core.SchedulingQueue
	c.until("the pod is queued", func() bool {
		return slices.ContainsFunc(append(q.PodsInActiveQ(), q.UnschedulablePods()...),
			func(p *corev1.Pod) bool { return p.Name == pod.Name })
	})
	if len(q.PodsInActiveQ()) > 0 {
		c.core.ScheduleOne(klog.NewContext(c.Context(), logr.Discard()))
	}
}

// bound returns the names of the pods that were bound, in order.
func (c *cluster) bound() (bound []string) {
	for _, a := range c.client.Actions() {
		if created, ok := a.(clienttesting.CreateAction); ok && a.GetSubresource() == "binding" {
			bound = append(bound, created.GetObject().(*corev1.Binding).Name)
		}
	}
	return bound
}

// says reports whether an Event so far has a text.
func (c *cluster) says(text string) bool {
	for {
		select {
		case e := <-c.events.Events:
			c.said = append(c.said, e)
		default:
			return slices.ContainsFunc(c.said, func(e string) bool { return strings.Contains(e, text) })
		}
	}
}

// count returns how many panics were counted at an extension point.
func (c *cluster) count(point string) float64 {
	n, err := testutil.GetCounterMetricValue(c.panics.WithLabelValues("Panicky", point))
	testkit.Check(c.T, err)
	return n
}

// TestAPanicEndsTheAttemptOfItsPodAlone: at each extension point, the process lives, the next pod is bound, and the
// error names plugin, extension point and pod.
func TestAPanicEndsTheAttemptOfItsPodAlone(t *testing.T) {
	t.Parallel()
	const failed, placed, neither = "failed", "bound", "neither"
	for at, test := range map[string]struct {
		cpus    string // of the pod, 1 by default
		refuses string // the extension point that refuses it
		ends    string // how its attempt ends
		point   string // of the panic, at by default
	}{
		"PreFilter":        {ends: failed},
		"work":             {ends: failed, point: "PreFilter"},
		"Filter":           {ends: failed},
		"PostFilter":       {cpus: "64", ends: failed},
		"RemovePod":        {cpus: "4", ends: failed},
		"AddPod":           {cpus: "4", ends: failed},
		"PreScore":         {ends: failed},
		"Score":            {ends: failed},
		"NormalizeScore":   {ends: failed},
		"Reserve":          {ends: failed},
		"Unreserve":        {refuses: "Permit", ends: neither},
		"Permit":           {ends: failed},
		"PreBindPreFlight": {ends: failed},
		"PreBind":          {ends: failed},
		"Bind":             {ends: failed},
		"PostBind":         {ends: placed},
		"SignPod":          {ends: placed},
		"PreEnqueue":       {ends: neither},
		"QueueingHint":     {refuses: "Filter", ends: neither},
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, &panicky{at: at, refuses: test.refuses})
			point := cmp.Or(test.point, at)
			if test.cpus == "" { // the ranking of an equal pod asks plugins by itself
				c.schedule(object.Pod("equal", object.Scheduler("s"), object.Priority(10), object.Requests("cpu", "1")))
				c.until("an equal pod is bound", func() bool { return slices.Contains(c.bound(), "equal") })
			}
			c.schedule(object.Pod("bad", object.Scheduler("s"), object.Priority(10),
				object.Requests("cpu", cmp.Or(test.cpus, "1"))))
			if at == "QueueingHint" {
				c.until("the attempt ends", func() bool { return len(c.core.SchedulingQueue.UnschedulablePods()) > 0 })
				c.create(object.Node("c", nil, "cpu", "4", "pods", "10"))
				c.until("the event lets the pod be tried again",
					func() bool { return len(c.core.SchedulingQueue.PodsInBackoffQ()) > 0 })
			}
			c.until("the panic is counted", func() bool { return c.count(point) > 0 })
			want := fmt.Sprintf("plugin Panicky panicked in %s for pod default/bad: at ", point)
			switch test.ends {
			case failed:
				c.until("an Event says "+want, func() bool { return c.says(want) })
			case placed:
				c.until("the pod is bound", func() bool { return slices.Contains(c.bound(), "bad") })
			}
			c.schedule(object.Pod("good", object.Scheduler("s"), object.Priority(20), object.Requests("cpu", "1")))
			c.until("the next pod is bound", func() bool { return slices.Contains(c.bound(), "good") })
			if slices.Contains(c.bound(), "bad") && test.ends != placed {
				t.Error("the pod is bound although its attempt has failed")
			}
		})
	}
}

func TestAPodWithTwoPanicsIsHeld(t *testing.T) {
	t.Parallel()
	c := newCluster(t, &panicky{at: "Filter"})
	bad := object.Pod("bad", object.Scheduler("s"), object.Requests("cpu", "1"))
	q := c.core.SchedulingQueue
	waits := func() []why.Finding { return refusals.Held(t.Context(), c.core.Profiles["s"], bad) }
	again := func() { // what the queue does when the back-off of the pod, or its time among the unschedulable, is over
		q.Activate(klog.Background(), map[string]*corev1.Pod{"default/bad": bad})
		if len(q.PodsInActiveQ()) > 0 {
			c.core.ScheduleOne(klog.NewContext(t.Context(), logr.Discard()))
		}
	}
	c.schedule(bad)
	if reasons := waits(); len(reasons) > 0 {
		t.Errorf("held after one panic: %v", reasons)
	}
	again()
	panics := c.count("Filter")
	for range 3 {
		again()
	}
	if c.count("Filter") != panics {
		t.Error("the pod is tried a third time")
	}
	reasons := waits()
	until := " held back until " + c.now.Add(5*time.Minute).UTC().Format(time.RFC3339) + " after 2 such attempts"
	if len(reasons) != 1 || reasons[0].Code != why.PluginFailed || reasons[0].Plugin != "Panicky" ||
		!strings.Contains(reasons[0].Detail, until) {
		t.Errorf("got %v, want the reason why the pod is held: %q", reasons, until)
	}
	c.schedule(object.Pod("good", object.Scheduler("s"), object.Requests("cpu", "1")))
	c.until("the other pod is bound", func() bool { return slices.Equal(c.bound(), []string{"good"}) })

	c.now = c.now.Add(5 * time.Minute)
	q.MoveAllToActiveOrBackoffQueue(klog.Background(), framework.EventUnschedulableTimeout, nil, nil, nil)
	again()
	if c.count("Filter") == panics {
		t.Error("the pod is not tried again after 5 minutes")
	}
	if reasons := waits(); len(reasons) != 1 || !strings.Contains(reasons[0].Detail, "after 3 such attempts") {
		t.Errorf("got %v, want that the pod is held again", reasons)
	}
}

// Questions are asked on profiles of their own: what panics there is an error of the answer.
func TestAPanicIsAReasonOfTheAttempt(t *testing.T) {
	t.Parallel()
	status := fwk.AsStatus(fmt.Errorf("running Filter: %w", &guard.Panic{
		Plugin: "P", Point: "Filter", Pod: "default/bad", Cause: errors.New("index out of range"),
	}))
	findings, _ := refusals.Attempt(nil, object.Pod("bad"), status)
	if len(findings) != 1 || findings[0].Code != why.PluginFailed || findings[0].Plugin != "P" ||
		!strings.Contains(findings[0].Detail, "panicked in Filter for pod default/bad: index out of range") {
		t.Errorf("got %v", findings)
	}
}
