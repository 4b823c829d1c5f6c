package hooks

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// calls are the replaced parts that kube-scheduler has called.
type calls struct {
	mu    sync.Mutex
	names []string
}

func (c *calls) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = append(c.names, name)
}

// want waits for calls.
func (c *calls) want(t *testing.T, names ...string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for _, name := range names {
		for {
			c.mu.Lock()
			called := slices.Contains(c.names, name)
			c.mu.Unlock()
			if called {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("kube-scheduler does not call the replaced %s", name)
				break
			}
			time.Sleep(time.Millisecond) //nolint:forbidigo // the binding cycle and handlers run in goroutines
		}
	}
}

type replacedCache struct {
	schedulercache.Cache
	calls *calls
}

func (c *replacedCache) AddNode(logger klog.Logger, n *corev1.Node) {
	c.calls.add("Cache.AddNode")
	c.Cache.AddNode(logger, n)
}

func (c *replacedCache) UpdateNode(logger klog.Logger, old, n *corev1.Node) {
	c.calls.add("Cache.UpdateNode")
	c.Cache.UpdateNode(logger, old, n)
}

func (c *replacedCache) RemoveNode(logger klog.Logger, n *corev1.Node) error {
	c.calls.add("Cache.RemoveNode")
	return c.Cache.RemoveNode(logger, n)
}

func (c *replacedCache) AddPod(logger klog.Logger, p *corev1.Pod) error {
	c.calls.add("Cache.AddPod")
	return c.Cache.AddPod(logger, p)
}

func (c *replacedCache) UpdatePod(logger klog.Logger, old, p *corev1.Pod) error {
	c.calls.add("Cache.UpdatePod")
	return c.Cache.UpdatePod(logger, old, p)
}

func (c *replacedCache) RemovePod(logger klog.Logger, p *corev1.Pod) error {
	c.calls.add("Cache.RemovePod")
	return c.Cache.RemovePod(logger, p)
}

func (c *replacedCache) AssumePod(logger klog.Logger, p *corev1.Pod) error {
	c.calls.add("Cache.AssumePod")
	return c.Cache.AssumePod(logger, p)
}

func (c *replacedCache) UpdateSnapshot(logger klog.Logger, s *schedulercache.Snapshot) error {
	c.calls.add("Cache.UpdateSnapshot")
	return c.Cache.UpdateSnapshot(logger, s)
}

// replacedQueue notes by which events it is to move pods, and that they are counted before.
type replacedQueue struct {
	podqueue.Queue
	calls  *calls
	events *Events
}

func (q *replacedQueue) MoveAllToActiveOrBackoffQueue(logger klog.Logger, event fwk.ClusterEvent, old, obj any,
	check queue.PreEnqueueCheck,
) {
	q.calls.add(fmt.Sprintf("Queue.%s, counted %t", event.Label(), q.events.Count() > 0))
	q.events.count.Store(0)
	q.Queue.MoveAllToActiveOrBackoffQueue(logger, event, old, obj, check)
}

type replacedProfile struct {
	framework.Framework
	calls *calls
}

func (p *replacedProfile) GetNodeHint(ctx context.Context, pod *corev1.Pod, s fwk.PodSignature, state fwk.CycleState,
	cycle int64,
) string {
	p.calls.add("Framework.GetNodeHint")
	return p.Framework.GetNodeHint(ctx, pod, s, state, cycle)
}

func (p *replacedProfile) StoreScheduleResults(ctx context.Context, s fwk.PodSignature, hinted, chosen string,
	others framework.SortedScoredNodes, cycle int64,
) {
	p.calls.add("Framework.StoreScheduleResults")
	p.Framework.StoreScheduleResults(ctx, s, hinted, chosen, others, cycle)
}

func (p *replacedProfile) RunFilterPluginsWithNominatedPods(ctx context.Context, state fwk.CycleState,
	pod *corev1.Pod, n fwk.NodeInfo,
) *fwk.Status {
	p.calls.add("Framework.RunFilterPluginsWithNominatedPods")
	return p.Framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, n)
}

func (p *replacedProfile) RunScorePlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
	nodes []fwk.NodeInfo,
) ([]fwk.NodePluginScores, *fwk.Status) {
	p.calls.add("Framework.RunScorePlugins")
	return p.Framework.RunScorePlugins(ctx, state, pod, nodes)
}

func (p *replacedProfile) RunPostFilterPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
	nodes fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	p.calls.add("Framework.RunPostFilterPlugins")
	return p.Framework.RunPostFilterPlugins(ctx, state, pod, nodes)
}

func (p *replacedProfile) RunPermitPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) (
	map[string]time.Duration, *fwk.Status,
) {
	p.calls.add("Framework.RunPermitPlugins")
	return p.Framework.RunPermitPlugins(ctx, state, pod, node)
}

func (p *replacedProfile) WaitOnPermit(ctx context.Context, pod *corev1.Pod) *fwk.Status {
	p.calls.add("Framework.WaitOnPermit")
	return p.Framework.WaitOnPermit(ctx, pod)
}

func (p *replacedProfile) RunBindPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
	node string,
) *fwk.Status {
	p.calls.add("Framework.RunBindPlugins")
	return p.Framework.RunBindPlugins(ctx, state, pod, node)
}

func (p *replacedProfile) EventRecorder() events.EventRecorderLogger {
	p.calls.add("Framework.EventRecorder")
	return p.Framework.EventRecorder()
}

func (p *replacedProfile) APICacher() fwk.APICacher {
	p.calls.add("Framework.APICacher")
	return p.Framework.APICacher()
}

// Fields of the scheduler and methods of its frameworks are replaced after it is made, for it reads them on each use.
func TestKubeSchedulerCallsWhatIsReplaced(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.OpportunisticBatching, true)
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	plugins := config.PluginSet{}
	for _, name := range []string{
		names.PrioritySort, names.NodeResourcesFit, names.DefaultPreemption, names.DefaultBinder,
	} {
		plugins.Enabled = append(plugins.Enabled, config.Plugin{Name: name, Weight: 1})
	}
	s, err := scheduler.New(t.Context(), client, factory, nil,
		func(string) events.EventRecorderLogger { return events.NewFakeRecorder(100) },
		scheduler.WithProfiles(config.KubeSchedulerProfile{
			SchedulerName: "s", Plugins: &config.Plugins{MultiPoint: plugins},
			PluginConfig: []config.PluginConfig{
				{Name: names.NodeResourcesFit, Args: &config.NodeResourcesFitArgs{
					ScoringStrategy: &config.ScoringStrategy{
						Type:      config.LeastAllocated,
						Resources: []config.ResourceSpec{{Name: "cpu", Weight: 1}},
					},
				}},
				{Name: names.DefaultPreemption, Args: &config.DefaultPreemptionArgs{
					MinCandidateNodesPercentage: 10, MinCandidateNodesAbsolute: 100,
				}},
			},
		}))
	testkit.Check(t, err)
	made, counted := &calls{}, &Events{}
	s.SchedulingQueue = counted.Watch(&replacedQueue{takeable(t, s.SchedulingQueue), made, counted}, &Changes{})
	s.Cache = &replacedCache{s.Cache, made}
	s.Profiles["s"] = &replacedProfile{s.Profiles["s"], made}
	next, schedule, fail := s.NextEntity, s.SchedulePod, s.FailureHandler
	s.NextEntity = func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		made.add("NextEntity")
		return next(logger)
	}
	s.SchedulePod = func(ctx context.Context, f framework.Framework, state fwk.CycleState,
		pod *framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
		made.add("SchedulePod")
		if _, ours := f.(*replacedProfile); !ours {
			t.Errorf("SchedulePod is called with a %T, want the replaced profile", f)
		}
		return schedule(ctx, f, state, pod)
	}
	s.FailureHandler = func(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo,
		status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time,
	) {
		made.add("FailureHandler")
		fail(ctx, f, pod, status, nominating, start)
	}
	nodes, pods := client.CoreV1().Nodes(), client.CoreV1().Pods("default")
	must := func(err error) {
		t.Helper()
		testkit.Check(t, err)
	}
	var node *corev1.Node
	for _, name := range []string{"a", "b"} {
		node = object.Node(name, nil, "cpu", "4", "pods", "10")
		_, err = nodes.Create(t.Context(), node, metav1.CreateOptions{})
		must(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	must(s.WaitForHandlersSync(t.Context())) // one node alone would not be scored
	made.want(t, "Cache.AddNode")
	for name, cpus := range map[string]string{"fits": "1", "too-large": "64"} {
		pod := object.Pod(name, object.Scheduler("s"), object.Requests("cpu", cpus))
		_, err = pods.Create(t.Context(), pod, metav1.CreateOptions{})
		must(err)
		s.ScheduleOne(t.Context())
	}
	made.want(t, "NextEntity", "SchedulePod", "FailureHandler", "Cache.UpdateSnapshot", "Cache.AssumePod",
		"Framework.GetNodeHint", "Framework.StoreScheduleResults", "Framework.RunFilterPluginsWithNominatedPods",
		"Framework.RunScorePlugins", "Framework.RunPostFilterPlugins", "Framework.RunPermitPlugins",
		"Framework.WaitOnPermit", "Framework.RunBindPlugins", "Framework.EventRecorder", "Framework.APICacher")

	bound := object.Pod("bound", object.Scheduler("s"), object.On("a"))
	_, err = pods.Create(t.Context(), bound, metav1.CreateOptions{})
	must(err)
	made.want(t, "Cache.AddPod", "Queue.AssignedPodAdd, counted false")
	bound = bound.DeepCopy()
	bound.Labels = map[string]string{"a": "b"}
	_, err = pods.Update(t.Context(), bound, metav1.UpdateOptions{})
	must(err)
	made.want(t, "Cache.UpdatePod", "Queue.AssignedPodUpdatePodLabel, counted true")
	must(pods.Delete(t.Context(), "bound", metav1.DeleteOptions{}))
	made.want(t, "Cache.RemovePod", "Queue.AssignedPodDelete, counted true")
	node = node.DeepCopy()
	node.Labels = map[string]string{"a": "b"}
	_, err = nodes.Update(t.Context(), node, metav1.UpdateOptions{})
	must(err)
	made.want(t, "Cache.UpdateNode", "Queue.NodeUpdateNodeLabel, counted true")
	must(nodes.Delete(t.Context(), "b", metav1.DeleteOptions{}))
	made.want(t, "Cache.RemoveNode", "Queue.NodeDelete, counted true")
}
