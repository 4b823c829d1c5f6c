package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/sched/elasticquota"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/loadaware"
	"github.com/tenon-project/tenon/internal/sched/nodenumaresource"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/sched/reserving"
	"github.com/tenon-project/tenon/internal/sched/upstream/guard"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
	"github.com/tenon-project/tenon/internal/sched/upstream/ranking"
)

// maxTries is how often a pod is tried while no pod is bound or deleted.
const maxTries = 10

// engine is the scheduler without a cluster: the scheduling core with its queue, cache, profiles and accounts, over an
// API server in memory. Invariant: each binding cycle has ended, or waits for a permit, before the next pod is taken
// from the queue, so that all steps have one order.
type engine struct {
	core   *scheduler.Scheduler
	api    *apiServer
	client kubernetes.Interface // of api
	store  *kube.Store
	quotas *kube.Quotas
	gangs  *kube.Gangs
	loads  *kube.Loads
	table  accounts.Table // of these and of the API server's Reservations

	factory informers.SharedInformerFactory
	rounds  *coscheduling.Rounds
	rank    map[string]int // of nodes by name: the first by name has the highest; decides between equal nodes

	// preemptor is the pod for which pods are being deleted; nil while no pod is.
	preemptor *corev1.Pod
	binds     bool               // the last scheduling cycle began a binding cycle
	began     chan *bindingCycle // receives each binding cycle that has begun
	replay    *replay            // of the journal that the engine replays; nil in a simulation

	handle    scheduler.FailureHandlerFn // upstream's handler of pods that failed
	waiting   []*bindingCycle            // binding cycles that wait for permits, the oldest first
	tries     map[types.UID]attempts
	exhausted []*corev1.Pod // tried maxTries times; queued again when a pod is bound or deleted

	failed    map[types.UID]failure // why the last attempt on a pod failed
	preempted map[types.UID]preempted
	moved     map[types.UID]bool // evicted by a PodMigrationJob: a successor has its name
}

// attempts are n attempts on a pod while the API server's count of changes was changes.
type attempts struct{ changes, n int }

// failure is why an attempt ended without a node. err is nil unless there are no findings.
type failure struct {
	findings []why.Finding
	err      error
}

// preempted is a pod before its preemption, and the pod that preempted it; nil if no pod of the input did.
type preempted struct{ pod, preemptor *corev1.Pod }

// newEngine returns an engine with the objects of the world, before any pod is tried. It ends with ctx.
func newEngine(ctx context.Context, w *world) (*engine, error) { return newEngineFor(ctx, w, nil) }

// newEngineFor is newEngine for a replay, if that is not nil.
func newEngineFor(ctx context.Context, w *world, r *replay) (*engine, error) {
	setGates()
	e := &engine{
		replay: r,
		api: &apiServer{
			clock: &stepClock{now: w.latest()}, reservations: cache.NewStore(cache.MetaNamespaceKeyFunc),
		},
		store: kube.NewStore(), loads: kube.NewLoads(), rank: map[string]int{},
		began: make(chan *bindingCycle),
		tries: map[types.UID]attempts{}, failed: map[types.UID]failure{}, preempted: map[types.UID]preempted{},
		moved: map[types.UID]bool{},
	}
	start := e.api.clock.now
	now, names, trusted := func() time.Time { return start }, schedulerNames, []string(nil)
	if r != nil {
		now, names, trusted = r.now, r.names(), r.trusted
	}
	schedulers := convert.NewSchedulers(slices.Concat(names, trusted)...)
	e.store.Trust(schedulers)
	e.api.deleted = func(p *corev1.Pod) { e.preempted[p.UID] = preempted{p, e.preemptor} }
	e.client = kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://simulate.invalid", Transport: e.api, QPS: -1})
	factory := informers.NewSharedInformerFactory(e.client, 0)
	statuses, err := kube.NewClient(&rest.Config{Host: "http://simulate.invalid", Transport: e.api, QPS: -1})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	e.api.reserved = kube.NewReservations(statuses, now)
	e.api.reserved.Profile = names[0]
	e.api.claims = factory.InformerFor(&resourcev1.ResourceClaim{}, newResourceClaims).(*informer)
	for o, construct := range volumeInformers {
		factory.InformerFor(o, construct)
	}
	e.quotas, e.gangs = kube.NewQuotas(now), kube.NewGangs()
	e.quotas.Trust(schedulers)
	e.table = accounts.Accounts{
		Nodes: e.store, Quotas: e.quotas, Gangs: e.gangs, Reservations: e.api.reserved, Loads: e.loads,
	}.Table()
	e.api.table = e.table
	e.api.pods, e.api.nodes = newPods(e.client, 0).(*informer), newNodes(e.client, 0).(*informer)
	for object, i := range map[runtime.Object]cache.SharedIndexInformer{
		&corev1.Pod{}:  e.table.Of("Pod").First(e.api.pods),
		&corev1.Node{}: e.table.Of("Node").First(e.api.nodes),
	} {
		factory.InformerFor(object, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return i })
	}
	cfg, err := app.DefaultConfig(names)
	if r != nil {
		cfg = r.config.DeepCopy()
	} else if err == nil && len(w.metrics) > 0 {
		for i := range cfg.Profiles {
			multi := &cfg.Profiles[i].Plugins.MultiPoint
			multi.Enabled = append(multi.Enabled, config.Plugin{Name: loadaware.Name, Weight: 1})
		}
	}
	if err == nil {
		err = e.build(ctx, factory, cfg, now)
	}
	if err != nil {
		return nil, err
	}
	e.factory = factory
	e.load(factory, w)
	return e, nil
}

// setGates disables what would run concurrently with the scheduling cycle. Gates are those of the process, which must
// not run another scheduler.
func setGates() {
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{
		string(features.SchedulerAsyncAPICalls): false, string(features.SchedulerAsyncPreemption): false,
		string(features.NominatedNodeNameForExpectation): false, string(features.OpportunisticBatching): true,
	}))
}

// build makes the scheduling core with the profiles of a configuration.
func (e *engine) build(ctx context.Context, factory informers.SharedInformerFactory,
	cfg *config.KubeSchedulerConfiguration, now func() time.Time,
) (err error) {
	unregistered, all := func(...metrics.Registerable) {}, int32(100)
	tracker := follow.NewTracker(e.store, follow.NewMetrics(unregistered), now)
	tracker.Order.NoWait = true // a pod before it may wait for a permit that depends on later pods
	decisions := placement.NewDecisions(e.store, placement.NewMetrics(unregistered), tracker)
	for i := range cfg.Profiles {
		// It would ask the API server to bind volumes and wait for their controllers. What it has reserved holds.
		preBind := &cfg.Profiles[i].Plugins.PreBind
		preBind.Disabled = append(preBind.Disabled, config.Plugin{Name: names.VolumeBinding})
	}
	registry := app.Registry(decisions, e.quotas, elasticquota.NewMetrics(unregistered), e.gangs,
		e.api.reserved, e.loads, now)
	changes := &hooks.Changes{}
	silent := func(string) events.EventRecorderLogger { return &events.FakeRecorder{} } // the result has it
	e.core, err = scheduler.New(ctx, e.client, factory, nil, silent,
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
	if err := guard.New(unregistered, now).Scheduler(e.core); err != nil {
		return err
	}
	e.core.Cache = changes.Watch(e.core.Cache, e.store)
	e.loads.OnChange(changes.Node, changes.Shown)
	waiting := time.Now
	if e.replay != nil {
		waiting = now
	}
	e.rounds = app.Rounds(e.core, e.gangs, e.quotas, e.store, changes, waiting)
	next := e.limitAttempts(e.core.NextPod)
	if e.replay.leads() {
		next = e.replay.next
	}
	e.core.NextPod = e.rounds.Next(next)
	schedule := e.core.SchedulePod
	if e.replay != nil { // a pod that all nodes are known to refuse preempts less
		schedule = ranking.Remember(e.rankedProfile, schedule)
	}
	e.core.SchedulePod = e.rounds.Schedule(schedule)
	fail := reserving.Fail(e.core, e.api.reserved, e.core.FailureHandler)
	e.core.FailureHandler = e.rounds.Fail(e.recordFailure(fail))
	for i := range cfg.Profiles {
		name := cfg.Profiles[i].SchedulerName
		e.orderVictims(e.core.Profiles[name])
		ranked, err := ranking.NewProfile(ctx, e.core.Profiles[name], &cfg.Profiles[i], changes, nodenumaresource.Name,
			deviceshare.Name, reserving.Name, loadaware.Name)
		if err != nil {
			return err
		}
		ranked.Rooms = &reserving.Rooms{Reservations: e.api.reserved, Store: e.store}
		ranked.ByName, ranked.Together = true, e.rounds
		e.core.Profiles[name] = &profile{Framework: ranked, engine: e}
		if e.replay != nil {
			e.replay.watch(ranked)
		}
	}
	if e.replay != nil {
		app.ServeGangs(e.core, e.gangs)
		e.replay.lead(e)
	}
	return nil
}

// rankedProfile returns the ranking of a profile; nil for one that does not exist.
func (e *engine) rankedProfile(name string) *ranking.Profile {
	if p, ok := e.core.Profiles[name].(*profile); ok {
		ranked, _ := p.Framework.(*ranking.Profile)
		return ranked
	}
	return nil
}

func (e *engine) load(factory informers.SharedInformerFactory, w *world) {
	for _, n := range w.namespaces {
		w.listed = append(w.listed, n)
	}
	for _, o := range w.listed {
		switch i := informerOf(o, factory).(type) {
		case *informer: // a cache of the scheduler follows its events
			e.api.create(i, o.(metav1.Object))
		default:
			utilruntime.Must(i.GetStore().Add(o))
		}
	}
	for _, q := range w.quotas {
		e.table.Put(q.ElasticQuota)
	}
	for _, m := range w.metrics {
		e.table.Put(m.NodeMetric)
	}
	putAll(e.table, w.networks)
	putAll(e.table, w.podGroups)
	putAll(e.table, w.topologies)
	putAll(e.table, w.numatopologies)
	putAll(e.table, w.devices)
	for i, n := range w.nodes {
		e.rank[n.Name] = len(w.nodes) - i
		e.api.create(e.api.nodes, n)
	}
	for _, p := range w.existing {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue // the scheduler does not see them
		}
		start(p.Pod, e.api.clock.Now())
		e.api.create(e.api.pods, p.Pod)
	}
	e.loadReservations(w)
	e.store.MarkSynced()
}

func putAll[T any](table accounts.Table, objects []T) {
	for _, o := range objects {
		table.Put(o)
	}
}

// run schedules until the queues are empty and no gangs prevent each other from starting.
func (e *engine) run(ctx context.Context) error {
	for before := -1; before < e.rounds.Releases(); {
		before = e.rounds.Releases()
		if err := e.drain(ctx); err != nil {
			return err
		}
		e.rounds.LookForDeadlocks(klog.FromContext(ctx))
		if err := e.drain(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) drain(ctx context.Context) error {
	for n := e.queued(); n > 0; n = e.queued() {
		for n > 0 { // pods leave the queues only by Pop
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

// step runs one scheduling cycle and the binding cycles that can end after it.
func (e *engine) step(ctx context.Context) {
	changes := e.api.changes
	e.binds = false
	e.core.ScheduleOne(ctx)
	if e.binds {
		e.begin(<-e.began)
	}
	if e.replay.leads() {
		return // its records say what becomes of the pod
	}
	e.finishDecided(ctx)
	if e.api.changes > changes {
		for _, p := range e.exhausted {
			e.core.SchedulingQueue.Add(ctx, p)
		}
		e.exhausted = nil
	}
}

type nextPod = func(klog.Logger) (*framework.QueuedPodInfo, error)

// limitAttempts skips a pod that was tried maxTries times while no pod was bound or deleted: its attempts end with
// errors, or cause each other.
func (e *engine) limitAttempts(next nextPod) nextPod {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		pod, err := next(logger)
		if err != nil || pod == nil {
			return pod, err
		}
		t := e.tries[pod.Pod.UID]
		if t.changes != e.api.changes {
			t = attempts{changes: e.api.changes}
		}
		t.n++
		e.tries[pod.Pod.UID] = t
		if t.n <= maxTries {
			return pod, nil
		}
		delete(e.tries, pod.Pod.UID)
		e.core.SchedulingQueue.Done(pod.Pod.UID)
		e.exhausted = append(e.exhausted, pod.Pod)
		return nil, nil
	}
}

// recordFailure keeps why the last attempt on each pod failed, for the result.
func (e *engine) recordFailure(handle scheduler.FailureHandlerFn) scheduler.FailureHandlerFn {
	e.handle = handle
	return func(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
		nominating *fwk.NominatingInfo, start time.Time,
	) {
		findings, err := refusals.Refusals(ctx, f, pod.Pod, status)
		if err == nil && len(findings) == 0 {
			err = status.AsError()
		}
		e.failed[pod.Pod.UID] = failure{findings, err}
		e.handle(ctx, f, pod, status, nominating, start)
	}
}

func withoutLog(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }
