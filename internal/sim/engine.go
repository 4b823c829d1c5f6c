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
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/progress"
	"github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sched/core"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/sched/loadaware"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
	"github.com/tenon-project/tenon/internal/sched/upstream/ranking"
)

// maxTries is how often a pod is tried while no pod is bound or deleted.
const maxTries = 10

// engine is the scheduler without a cluster: the scheduling core with its queue, cache, profiles and accounts, over an
// API server in memory. Invariant: each binding cycle has ended, or waits for a permit, before the next pod is taken
// from the queue, so that all steps have one order.
type engine struct {
	core   *core.Core
	api    *apiServer
	client kubernetes.Interface // of api
	store  *kube.Store
	quotas *kube.Quotas
	gangs  *kube.Gangs
	loads  *kube.Loads
	claims *kube.Claims
	table  accounts.Table // of these and of the API server's Reservations

	factory informers.SharedInformerFactory
	rounds  *coscheduling.Rounds
	rank    map[string]int // of nodes by name: the first by name has the highest; decides between equal nodes

	// preemptor is the pod for which pods are being deleted; nil while no pod is.
	preemptor *corev1.Pod
	binds     bool               // the last scheduling cycle began a binding cycle
	began     chan *bindingCycle // receives each binding cycle that has begun
	time      *passage           // moves only where time passes
	replay    *replay            // of the journal that the engine replays; nil in a simulation

	handle    scheduler.FailureHandlerFn // of pods that failed, inside of failures
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

// newEngineFor is newEngine for a replay, if that is not nil, with changed options of the core.
func newEngineFor(ctx context.Context, w *world, r *replay, changes ...func(*core.Options)) (*engine, error) {
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
	e.time = &passage{engine: e, at: e.api.clock.now}
	now, names, trusted := core.Clock(e.time), schedulerNames, []string(nil)
	if r != nil {
		r.engine, e.time = e, &r.passage
		now, names, trusted = r, r.names(), r.trusted
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
	e.api.reserved = kube.NewReservations(statuses, now.Now)
	e.api.reserved.Profile = names[0]
	e.api.claims = factory.InformerFor(&resourcev1.ResourceClaim{}, newResourceClaims).(*informer)
	for o, construct := range volumeInformers {
		factory.InformerFor(o, construct)
	}
	e.quotas, e.gangs = kube.NewQuotas(now.Now), kube.NewGangs()
	e.quotas.Trust(schedulers)
	e.claims = kube.NewClaims(e.store)
	known := accounts.Accounts{
		Nodes: e.store, Quotas: e.quotas, Gangs: e.gangs, Reservations: e.api.reserved, Loads: e.loads,
		Claims: e.claims,
	}
	e.table = known.Table()
	e.api.table = e.table
	// Accounts come first: no other handler is there yet.
	_, err = e.table.Of("ResourceClaim").Follow(e.api.claims)
	utilruntime.Must(err)
	_, err = e.table.Of("ResourceSlice").Follow(factory.Resource().V1().ResourceSlices().Informer())
	utilruntime.Must(err)
	e.api.pods, e.api.nodes = newPods(e.client, 0).(*informer), newNodes(e.client, 0).(*informer)
	for object, i := range map[runtime.Object]cache.SharedIndexInformer{
		&corev1.Pod{}:  hooks.IndexedOnce{SharedIndexInformer: e.table.Of("Pod").First(e.api.pods)},
		&corev1.Node{}: e.table.Of("Node").First(e.api.nodes),
	} {
		factory.InformerFor(object, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return i })
	}
	cfg, err := app.DefaultConfig(names)
	if r != nil {
		cfg = r.config.DeepCopy()
	} else if w.scheduler != nil {
		cfg = w.scheduler.DeepCopy()
	} else if err == nil && len(w.metrics) > 0 {
		for i := range cfg.Profiles {
			multi := &cfg.Profiles[i].Plugins.MultiPoint
			multi.Enabled = append(multi.Enabled, config.Plugin{Name: loadaware.Name, Weight: 1})
		}
	}
	if err == nil {
		err = e.build(ctx, factory, cfg, known, now, changes)
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
	cfg *config.KubeSchedulerConfiguration, known accounts.Accounts, now core.Clock, changes []func(*core.Options),
) (err error) {
	for i := range cfg.Profiles {
		// It would ask the API server to bind volumes and wait for their controllers. What it has reserved holds.
		preBind := &cfg.Profiles[i].Plugins.PreBind
		preBind.Disabled = append(preBind.Disabled, config.Plugin{Name: names.VolumeBinding})
	}
	cfg.PercentageOfNodesToScore, cfg.Parallelism = new(int32(100)), 1
	cfg.PodInitialBackoffSeconds, cfg.PodMaxBackoffSeconds = 0, 0
	api := (&schedulerapp.Config{ComponentConfig: *cfg, Client: e.client, InformerFactory: factory}).Complete()
	o := core.Options{
		Config: &api, Clock: now, Loop: clock.RealClock{},
		Events:   func(string) events.EventRecorderLogger { return &events.FakeRecorder{} }, // the result has them
		Upstream: []scheduler.Option{scheduler.WithClock(e.api.clock)},
		Accounts: known,
		Metrics:  core.NewMetrics(func(...metrics.Registerable) {}, now),
		Reporter: failures{e}, Source: limited{e}, Record: inNameOrder{engine: e},
	}
	if e.replay != nil {
		e.replay.options(&o)
	}
	for _, change := range changes {
		change(&o)
	}
	if e.core, err = core.New(ctx, o); err != nil {
		return err
	}
	e.rounds = e.core.Rounds
	e.core.Tracker.Order.NoWait = true // a pod before it may wait for a permit that depends on later pods
	if e.replay != nil && e.replay.free != nil {
		e.replay.free.follow(e)
	}
	return nil
}

// inNameOrder is the Record of a simulation, outside of all layers of its core.
type inNameOrder struct {
	core.Unrecorded
	engine *engine
}

// Profile lets names decide between equal nodes and victims, and ends binding cycles one after the other.
func (s inNameOrder) Profile(inner *ranking.Profile) framework.Framework {
	s.engine.orderVictims(inner)
	return &profile{inner, s.engine}
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
	progress.Step(ctx)
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
		e.retryExhausted(ctx)
	}
}

// retryExhausted queues pods again that were tried too often.
func (e *engine) retryExhausted(ctx context.Context) {
	for _, p := range e.exhausted {
		e.core.SchedulingQueue.Add(ctx, p)
	}
	e.exhausted = nil
}

// limited skips a pod that was tried maxTries times while no pod was bound or deleted: its attempts end with errors, or
// cause each other.
type limited struct{ *engine }

// Pop returns the pods of next that are not skipped.
func (e limited) Pop(next core.NextPod) core.NextPod {
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

// failures keeps why the last attempt on each pod failed, for the result.
type failures struct{ *engine }

// Wrap returns a handler of failures that keeps them before handle has them.
func (e failures) Wrap(handle scheduler.FailureHandlerFn) scheduler.FailureHandlerFn {
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
