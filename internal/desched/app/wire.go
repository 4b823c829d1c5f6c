package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/serving"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/desched/makeroom"
	"github.com/tenon-project/tenon/internal/desched/migration"
	"github.com/tenon-project/tenon/internal/desched/policy"
	"github.com/tenon-project/tenon/internal/desched/scheduler"
	"github.com/tenon-project/tenon/internal/desched/watched"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// parts are what observes, decides and moves.
type parts struct {
	known        *watched.Cluster
	reservations cache.SharedIndexInformer
	requests     cache.SharedIndexInformer // of EvictionRequests; nil where none are made
	metrics      cache.SharedIndexInformer // of NodeMetrics; nil where no plugin reads them
	metricsRead  []cache.InformerSynced
	mover        *migration.Controller
	plugins      *policy.Runner
	// handlers answer below /apis/v1, by patterns of http.ServeMux, while this replica leads.
	handlers map[string]http.Handler
	forget   func() // takes the metrics back
}

// clients are the connections that the parts share.
type clients struct {
	pods    kubernetes.Interface
	objects client.Client
	reader  rest.Interface
}

func connect(config *rest.Config) (c clients, err error) {
	if c.pods, err = kubernetes.NewForConfig(config); err != nil {
		return c, fmt.Errorf("make a client: %w", err)
	}
	if c.objects, err = migration.NewClient(config); err != nil {
		return c, fmt.Errorf("make a client: %w", err)
	}
	c.reader, err = kube.NewClient(config)
	return c, err
}

// class returns the value of a PriorityClass.
func (c clients) class(name string) (int32, error) {
	class, err := c.pods.SchedulingV1().PriorityClasses().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("read PriorityClass: %w", err)
	}
	return class.Value, nil
}

// wire makes the parts and adds them to a manager: those that observe, then the mover, the plugins, and what nominates.
func wire(mgr manager.Manager, config *rest.Config, o *Options) (*parts, error) {
	c, err := connect(config)
	if err != nil {
		return nil, err
	}
	p := &parts{reservations: kube.NewReservationInformer(c.reader)}
	if p.known, err = watched.New(config, c.pods); err != nil {
		return nil, err
	}
	limits, err := policy.NewPolicy(o.Settings, o.Namespace, c.class)
	if err != nil {
		return nil, err
	}
	planner := &makeroom.Planner{Cluster: p.known, Policy: limits, Clock: clock.RealClock{}}
	p.handlers = map[string]http.Handler{makeroom.EvictionsPath: http.HandlerFunc(planner.ServeEvictions)}
	fitter, err := p.ask(config, o, planner)
	if err != nil {
		return nil, err
	}
	counters := migration.NewMetrics()
	if err := p.addMover(mgr, c, o, limits, counters); err != nil {
		return nil, err
	}
	if err := p.addPlugins(mgr, c, o, limits, fitter, planner); err != nil {
		return nil, err
	}
	if p.forget, err = serving.Register(metrics.Registry, counters.Collectors()...); err != nil {
		return nil, err
	}
	if o.Settings.Enables("MakeRoom") {
		if err := mgr.Add(&makeroom.Nominator{
			Jobs: p.known.Jobs.GetStore(), Pods: p.known, Client: c.pods, FieldManager: Component,
			Clock: clock.RealClock{},
		}); err != nil {
			return nil, err
		}
	}
	return p, errors.Join(mgr.Add(p.known), mgr.Add(caching{p.reservations}),
		mgr.Add(manager.RunnableFunc(p.move)), mgr.Add(p.plugins))
}

// ask returns what says where pods fit: the scheduler, where one is named. Then the planner asks it too, and answers.
func (p *parts) ask(config *rest.Config, o *Options, planner *makeroom.Planner) (policy.Fitter, error) {
	if o.SchedulerAddress == "" {
		return unasked{}, nil
	}
	asked, err := scheduler.New(config, o.SchedulerAddress, o.SchedulerCAFile)
	if err != nil {
		return nil, err
	}
	asked.Reserving = o.Settings.Migration.DefaultJobMode != string(v1alpha1.EvictDirectly)
	planner.Scheduler = asked
	p.handlers[makeroom.Path] = planner
	return asked, nil
}

// addMover makes what carries out PodMigrationJobs.
func (p *parts) addMover(mgr manager.Manager, c clients, o *Options, limits *evict.Policy, counters *migration.Metrics,
) (err error) {
	var requests cache.Store
	if o.Settings.Migration.EvictionPolicy == "Request" {
		if p.requests, err = migration.RequestInformer(c.pods.Discovery(), c.reader); err != nil {
			return err
		}
		if err := mgr.Add(caching{p.requests}); err != nil {
			return err
		}
		requests = p.requests.GetStore()
	}
	p.mover = migration.New(migration.Options{
		Args: o.Settings.Migration, DryRun: o.Settings.DryRun, Client: c.objects, Pods: c.pods, Requests: requests,
		Jobs: p.known.Jobs.GetStore(), Reservations: p.reservations.GetStore(), Cluster: p.known,
		Policy: limits, Events: mgr.GetEventRecorder(Component), Metrics: counters, Clock: clock.RealClock{},
	})
	return nil
}

// addPlugins makes what decides which pods move. The planner counts its moves with those of the plugins.
func (p *parts) addPlugins(mgr manager.Manager, c clients, o *Options, limits *evict.Policy, fitter policy.Fitter,
	planner *makeroom.Planner,
) (err error) {
	rounds := policy.Options{
		Settings: o.Settings, Policy: limits, PriorityClass: c.class, Cluster: p, Nodes: p.known.Nodes,
		Pods: p.known.Pods, Jobs: p.known.Jobs.GetStore(), Fitter: fitter, Writer: writer{c.objects, c.pods},
		Clock: clock.RealClock{},
	}
	if planner.Scheduler != nil {
		rounds.Room = planner
	}
	if o.Settings.Enables("LowNodeLoad") {
		if rounds.Loads, err = p.readMetrics(c.reader); err != nil {
			return err
		}
		if err := mgr.Add(caching{p.metrics}); err != nil {
			return err
		}
	}
	p.plugins, err = policy.New(rounds)
	planner.Rounds = p.plugins
	return err
}

// readMetrics begins to follow NodeMetrics, and returns the use of nodes. Pods that the last report lacks
// count with the estimates that the scheduler has by default.
func (p *parts) readMetrics(client rest.Interface) (*kube.Loads, error) {
	loads := kube.NewLoads()
	loads.Enable(convert.LoadSettings{Factors: load.Percents{amount.CPU: 85, amount.Memory: 70}}, 0)
	table := accounts.Accounts{Loads: loads}.Table()
	reports := table.Of("NodeMetric")
	p.metrics = reports.Sources[0].Informer(client)
	for informer, kind := range map[cache.SharedIndexInformer]accounts.Kind{
		p.known.Pods: table.Of("Pod"), p.metrics: reports,
	} {
		registered, err := kind.Follow(informer)
		if err != nil {
			return nil, fmt.Errorf("follow the use of nodes: %w", err)
		}
		p.metricsRead = append(p.metricsRead, registered.HasSynced)
	}
	return loads, nil
}

// writer is the policy.Writer.
type writer struct {
	jobs client.Client
	pods kubernetes.Interface
}

func (w writer) CreateJob(ctx context.Context, j *v1alpha1.PodMigrationJob) (*v1alpha1.PodMigrationJob, error) {
	return j, w.jobs.Create(ctx, j, client.FieldOwner(Component))
}

func (w writer) PatchPod(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	_, err := w.pods.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: Component})
	return err
}

// Read calls a function with the state of the cluster.
func (p *parts) Read(f func(*evict.State)) { p.known.Read(f) }

// Unsynced returns the kinds of which the caches have not been filled yet.
func (p *parts) Unsynced() []string {
	missing := p.known.Unsynced()
	if !p.reservations.HasSynced() {
		missing = append(missing, "Reservations")
	}
	if p.requests != nil && !p.requests.HasSynced() {
		missing = append(missing, "EvictionRequests")
	}
	if slices.ContainsFunc(p.metricsRead, func(read cache.InformerSynced) bool { return !read() }) {
		missing = append(missing, "NodeMetrics")
	}
	return missing
}

// ready fails until the caches have been filled once.
func (p *parts) ready(*http.Request) error {
	if missing := p.Unsynced(); len(missing) > 0 {
		return fmt.Errorf("the caches of %v are not complete", missing)
	}
	return nil
}

// syncInterval is how often the caches are looked at until they have been filled.
const syncInterval = 100 * time.Millisecond

// move runs the controller of PodMigrationJobs when the caches have been filled, until ctx ends.
func (p *parts) move(ctx context.Context) error {
	tick := time.NewTicker(syncInterval)
	defer tick.Stop()
	for len(p.Unsynced()) > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	return p.mover.Start(ctx)
}

// caching is an informer that runs whether this replica leads or not.
type caching struct{ cache.SharedIndexInformer }

// Start follows the objects until ctx ends.
func (c caching) Start(ctx context.Context) error {
	c.RunWithContext(ctx)
	return nil
}

// NeedLeaderElection is false: a replica that begins to lead knows its objects already.
func (caching) NeedLeaderElection() bool { return false }

// unasked is where no scheduler is named.
type unasked struct{}

// Fit says that it is not known.
func (unasked) Fit(context.Context, *corev1.Pod, []string) (string, error) {
	return "", errors.New("no scheduler is named that could say where the pod fits")
}
