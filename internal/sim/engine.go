package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/sched/diag/verdict"
	"github.com/tenon-project/tenon/internal/sched/elasticquota"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/nodenumaresource"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/sched/upstream"
)

// maxTries is how often a pod is tried while no pod is bound or deleted.
const maxTries = 10

// engine is the scheduler without a cluster: the scheduling core with its queue, cache, profiles and accounts, over an
// API server in memory. All that happens, happens in one order: each binding cycle ends, or waits for a permit, before
// the next pod is taken from the queue.
type engine struct {
	core   *scheduler.Scheduler
	api    *apiServer
	store  *kube.Store
	quotas *kube.Quotas
	gangs  *kube.Gangs
	rounds *coscheduling.Rounds
	rank   map[string]int // of the nodes, the first by name highest

	// The scheduling cycle under way.
	preemptor *corev1.Pod // set while it preempts
	binds     bool        // it ended in a binding cycle
	began     chan *bindingCycle

	handle  scheduler.FailureHandlerFn // of upstream: reports why a pod failed
	waiting []*bindingCycle            // for permits, the oldest first
	tries   map[types.UID]tries
	aside   []*corev1.Pod // tried too often; they are queued again when a pod is bound or deleted

	failed    map[types.UID]failure // by pod, of its last attempt
	preempted map[types.UID]loss
}

// tries counts the attempts on a pod since the API server counted so many changes.
type tries struct{ changes, n int }

// failure is why an attempt ended without a node: refusals, or else an error.
type failure struct {
	findings []why.Finding
	err      error
}

// loss is a pod that was preempted, as it was, and by which pod.
type loss struct{ pod, preemptor *corev1.Pod }

// newEngine holds what the world has before any pod of it is tried. It ends with ctx.
func newEngine(ctx context.Context, w *world) (*engine, error) {
	setGates()
	e := &engine{
		api: &apiServer{clock: &stepClock{now: w.latest()}}, store: kube.NewStore(), rank: map[string]int{},
		began: make(chan *bindingCycle),
		tries: map[types.UID]tries{}, failed: map[types.UID]failure{}, preempted: map[types.UID]loss{},
	}
	e.store.Serve(w.resources)
	e.api.deleted = func(p *corev1.Pod) { e.preempted[p.UID] = loss{p, e.preemptor} }
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://simulate.invalid", Transport: e.api, QPS: -1})
	factory := informers.NewSharedInformerFactory(client, 0)
	e.api.pods = factory.InformerFor(&corev1.Pod{}, newPods).(*informer)
	e.api.nodes = factory.InformerFor(&corev1.Node{}, newNodes).(*informer)
	start := e.api.clock.now
	e.quotas = kube.NewQuotas(func() time.Time { return start })
	// Before all handlers of the scheduler, as in a cluster.
	e.gangs = kube.NewGangs()
	e.api.pods.handlers = append(e.api.pods.handlers, e.quotas.PodHandler(), e.gangs.PodHandler())
	if err := e.build(ctx, client, factory); err != nil {
		return nil, err
	}
	e.load(factory, w)
	return e, nil
}

// setGates switches off what would run beside the scheduling cycle. Gates belong to the process, which must run no
// other scheduler.
func setGates() {
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{
		string(features.SchedulerAsyncAPICalls): false, string(features.SchedulerAsyncPreemption): false,
		string(features.NominatedNodeNameForExpectation): false, string(features.OpportunisticBatching): true,
	}))
}

// build makes the scheduling core with the profiles that tenon-scheduler has without a configuration file.
func (e *engine) build(ctx context.Context, client kubernetes.Interface,
	factory informers.SharedInformerFactory,
) error {
	cfg, err := app.DefaultConfig(schedulerNames)
	if err != nil {
		return err
	}
	unregistered, start, all := func(...metrics.Registerable) {}, e.api.clock.now, int32(100)
	tracker := follow.NewTracker(e.store, follow.NewMetrics(unregistered), func() time.Time { return start })
	tracker.Order.NoWait = true // a pod ahead waits for a permit, which only the next pods can bring
	decisions := placement.NewDecisions(e.store, placement.NewMetrics(unregistered), tracker)
	registry := app.Registry(decisions, e.quotas, elasticquota.NewMetrics(unregistered), e.gangs)
	changes := &upstream.Changes{}
	silent := func(string) events.EventRecorderLogger { return &events.FakeRecorder{} } // the result says what happened
	e.core, err = scheduler.New(ctx, client, factory, nil, silent,
		scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithPercentageOfNodesToScore(&all),
		scheduler.WithParallelism(1),
		scheduler.WithPodInitialBackoffSeconds(0),
		scheduler.WithPodMaxBackoffSeconds(0),
		scheduler.WithClock(e.api.clock),
	)
	if err != nil {
		return fmt.Errorf("make the scheduler: %w", err)
	}
	e.core.Cache = changes.Watch(e.core.Cache, e.store)
	e.rounds = app.Rounds(e.core, e.gangs, e.quotas, e.store, changes)
	e.core.NextPod = e.rounds.Next(e.limit(e.core.NextPod))
	e.core.SchedulePod = e.rounds.Schedule(e.core.SchedulePod)
	e.core.FailureHandler = e.rounds.Fail(e.note(e.core.FailureHandler))
	for i := range cfg.Profiles {
		name := cfg.Profiles[i].SchedulerName
		e.orderVictims(e.core.Profiles[name])
		ranked, err := upstream.NewProfile(ctx, e.core.Profiles[name], &cfg.Profiles[i], changes, nodenumaresource.Name,
			deviceshare.Name)
		if err != nil {
			return err
		}
		ranked.ByName, ranked.Together = true, e.rounds
		e.core.Profiles[name] = &profile{Framework: ranked, engine: e}
	}
	return nil
}

func (e *engine) load(factory informers.SharedInformerFactory, w *world) {
	for _, n := range w.namespaces {
		w.listed = append(w.listed, n)
	}
	for _, o := range w.listed {
		utilruntime.Must(informerOf(o, factory).GetStore().Add(o))
	}
	for _, q := range w.quotas {
		e.quotas.PutQuota(q.ElasticQuota)
	}
	for _, n := range w.networks {
		e.gangs.PutNetwork(n)
	}
	for _, g := range w.podGroups {
		e.gangs.PutGroup(g)
	}
	for i, n := range w.nodes {
		e.rank[n.Name] = len(w.nodes) - i
		e.quotas.PutNode(n)
		e.api.create(e.api.nodes, convert.Schedulable(n))
	}
	for _, t := range w.topologies {
		e.store.PutTopology(t)
	}
	for _, n := range w.numatopologies {
		e.store.PutNumatopology(n)
	}
	for _, d := range w.devices {
		e.store.PutDevice(d)
	}
	for _, p := range w.existing {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue // the scheduler does not see them
		}
		if p.Status.StartTime == nil {
			at := metav1.NewTime(e.api.clock.Now())
			p.Status.StartTime = &at
		}
		e.api.create(e.api.pods, p.Pod)
	}
	e.store.MarkSynced()
}

// run schedules until no pod is left that an event has woken, and no gangs keep each other from starting.
func (e *engine) run(ctx context.Context) error {
	for before := -1; before < e.rounds.Releases(); {
		before = e.rounds.Releases()
		if err := e.drain(ctx); err != nil {
			return err
		}
		e.rounds.Stir(klog.FromContext(ctx))
		if err := e.drain(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) drain(ctx context.Context) error {
	for n := e.queued(); n > 0; n = e.queued() {
		for n > 0 { // no pod leaves the queues but by being taken
			if err := ctx.Err(); err != nil {
				return err
			}
			before, _ := e.rounds.Pulled()
			e.step(ctx)
			all, left := e.rounds.Pulled()
			n -= 1 + all - before
			for ; left > 0; _, left = e.rounds.Pulled() {
				e.step(ctx)
			}
		}
	}
	return nil
}

func (e *engine) queued() int {
	return len(e.core.SchedulingQueue.PodsInActiveQ()) + len(e.core.SchedulingQueue.PodsInBackoffQ())
}

func (e *engine) step(ctx context.Context) {
	changes := e.api.changes
	e.binds = false
	e.core.ScheduleOne(ctx)
	if e.binds {
		e.follow(<-e.began)
	}
	e.permit(ctx)
	if e.api.changes > changes {
		for _, p := range e.aside {
			e.core.SchedulingQueue.Add(ctx, p)
		}
		e.aside = nil
	}
}

type nextPod = func(klog.Logger) (*framework.QueuedPodInfo, error)

// limit puts a pod aside that was tried too often while nothing changed: its failures are errors, or wake each other.
func (e *engine) limit(next nextPod) nextPod {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		pod, err := next(logger)
		if err != nil || pod == nil {
			return pod, err
		}
		t := e.tries[pod.Pod.UID]
		if t.changes != e.api.changes {
			t = tries{changes: e.api.changes}
		}
		t.n++
		e.tries[pod.Pod.UID] = t
		if t.n <= maxTries {
			return pod, nil
		}
		delete(e.tries, pod.Pod.UID)
		e.core.SchedulingQueue.Done(pod.Pod.UID)
		e.aside = append(e.aside, pod.Pod)
		return nil, nil
	}
}

func (e *engine) note(handle scheduler.FailureHandlerFn) scheduler.FailureHandlerFn {
	e.handle = handle
	return func(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
		nominating *fwk.NominatingInfo, start time.Time,
	) {
		findings, err := verdict.Refusals(ctx, f, pod.Pod, status)
		if err == nil && len(findings) == 0 {
			err = status.AsError()
		}
		e.failed[pod.Pod.UID] = failure{findings, err}
		e.handle(ctx, f, pod, status, nominating, start)
	}
}

func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }
