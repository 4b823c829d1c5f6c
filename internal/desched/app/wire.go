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
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/desched/makeroom"
	"github.com/tenon-project/tenon/internal/desched/migration"
	"github.com/tenon-project/tenon/internal/desched/policy"
	"github.com/tenon-project/tenon/internal/desched/scheduler"
	"github.com/tenon-project/tenon/internal/desched/watched"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
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

// wire makes the parts and adds them to a manager.
func wire(mgr manager.Manager, config *rest.Config, o *Options) (*parts, error) {
	pods, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	objects, err := migration.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	reader, err := kube.NewClient(config)
	if err != nil {
		return nil, err
	}
	p := &parts{reservations: kube.NewReservationInformer(reader)}
	if p.known, err = watched.New(config, pods); err != nil {
		return nil, err
	}
	class := func(name string) (int32, error) {
		c, err := pods.SchedulingV1().PriorityClasses().Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return 0, fmt.Errorf("read PriorityClass: %w", err)
		}
		return c.Value, nil
	}
	limits, err := policy.NewPolicy(o.Settings, o.Namespace, class)
	if err != nil {
		return nil, err
	}
	planner := &makeroom.Planner{Read: p.known.Read, Policy: limits, Now: time.Now}
	p.handlers = map[string]http.Handler{makeroom.EvictionsPath: http.HandlerFunc(planner.ServeEvictions)}
	var fitter policy.Fitter = unasked{}
	if o.SchedulerAddress != "" {
		asked, err := scheduler.New(config, o.SchedulerAddress, o.SchedulerCAFile)
		if err != nil {
			return nil, err
		}
		asked.Reserving = o.Settings.Migration.DefaultJobMode != string(v1alpha1.EvictDirectly)
		fitter = asked
		planner.WhatIf = asked.WhatIf
		p.handlers[makeroom.Path] = planner
	}
	planner.Round = func() *view.Round { return p.plugins.Last() }
	var requests cache.Store
	if o.Settings.Migration.EvictionPolicy == "Request" {
		if p.requests, err = migration.RequestInformer(pods.Discovery(), reader); err != nil {
			return nil, err
		}
		if err := mgr.Add(caching{p.requests}); err != nil {
			return nil, err
		}
		requests = p.requests.GetStore()
	}
	counters := migration.NewMetrics()
	p.mover = migration.New(migration.Options{
		Args: o.Settings.Migration, DryRun: o.Settings.DryRun, Client: objects, Pods: pods, Requests: requests,
		Jobs: p.known.Jobs.GetStore(), Reservations: p.reservations.GetStore(), Pod: p.known.Pod,
		PodsOf: p.known.PodsOf, Read: p.known.Read, Record: p.known.PutJob, Policy: limits,
		Events: mgr.GetEventRecorder(Component), Metrics: counters, Now: time.Now,
	})
	rounds := policy.Options{
		Settings: o.Settings, Policy: limits, PriorityClass: class, Read: p.known.Read, Unsynced: p.unsynced,
		Nodes: p.known.Nodes, Pods: p.known.Pods, Jobs: p.known.Jobs.GetStore(), Fitter: fitter,
		Clock: clock.RealClock{},
		CreateJob: func(ctx context.Context, j *v1alpha1.PodMigrationJob) (*v1alpha1.PodMigrationJob, error) {
			return j, objects.Create(ctx, j, client.FieldOwner(Component))
		},
		PatchPod: patching(pods),
	}
	if planner.WhatIf != nil {
		rounds.Room, rounds.Defragment = planner.PlanAmong, planner.Defragment
	}
	if o.Settings.Enables("LowNodeLoad") {
		if rounds.NodeUse, err = p.readMetrics(reader); err != nil {
			return nil, err
		}
		if err := mgr.Add(caching{p.metrics}); err != nil {
			return nil, err
		}
	}
	if p.plugins, err = policy.New(rounds); err != nil {
		return nil, err
	}
	if p.forget, err = serving.Register(metrics.Registry, counters.Collectors()...); err != nil {
		return nil, err
	}
	if o.Settings.Enables("MakeRoom") {
		if err := mgr.Add(&makeroom.Nominator{
			Jobs: p.known.Jobs.GetStore(), Pod: p.known.Pod, Patch: patching(pods, "status"), Now: time.Now,
		}); err != nil {
			return nil, err
		}
	}
	return p, errors.Join(mgr.Add(p.known), mgr.Add(caching{p.reservations}),
		mgr.Add(manager.RunnableFunc(p.move)), mgr.Add(p.plugins))
}

// readMetrics begins to follow NodeMetrics, and returns what knows the use of nodes. Pods that the last report lacks
// count with the estimates that the scheduler has by default.
func (p *parts) readMetrics(client rest.Interface) (func(node string) load.View, error) {
	loads := kube.NewLoads()
	loads.Enable(convert.LoadSettings{Factors: load.Percents{load.CPU: 85, load.Memory: 70}}, 0)
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
	return loads.View, nil
}

// patching returns what applies a merge patch to a pod, or to a part of it.
func patching(client kubernetes.Interface, part ...string) func(context.Context, *corev1.Pod, []byte) error {
	return func(ctx context.Context, pod *corev1.Pod, patch []byte) error {
		_, err := client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: Component}, part...)
		return err
	}
}

// unsynced returns the kinds of which the caches have not been filled yet.
func (p *parts) unsynced() []string {
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
	if missing := p.unsynced(); len(missing) > 0 {
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
	for len(p.unsynced()) > 0 {
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
