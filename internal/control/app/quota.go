package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	config "github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/quotaprofile"
	"github.com/tenon-project/tenon/internal/control/quotarevoke"
	"github.com/tenon-project/tenon/internal/control/quotastatus"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// QuotaOptions are how quotas are divided, as in the scheduler, and what is revoked.
type QuotaOptions struct {
	Config quota.Config
	Rules  quota.Rules
	// Revoke is without clients and caches; nil revokes nothing.
	Revoke *quotarevoke.Options
}

// DefaultQuotaOptions returns those without arguments.
func DefaultQuotaOptions() *QuotaOptions {
	var a config.ElasticQuotaArgs
	a.SetDefaults()
	return newQuotaOptions(&a)
}

// readQuotaOptions reads the arguments of the scheduler's plugin from a file. An empty name is the defaults.
func readQuotaOptions(file string) (*QuotaOptions, error) {
	if file == "" {
		return DefaultQuotaOptions(), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the arguments of quotas: %w", err)
	}
	a, err := config.DecodeElasticQuota(&runtime.Unknown{Raw: text})
	if err != nil {
		return nil, fmt.Errorf("read the arguments of quotas in %s: %w", file, err)
	}
	return newQuotaOptions(&a), nil
}

func newQuotaOptions(a *config.ElasticQuotaArgs) *QuotaOptions {
	o := &QuotaOptions{}
	o.Config, o.Rules = convert.QuotaConfig(a)
	if *a.MonitorAllQuotas && !o.Rules.ByMax { // what is above a runtime that limits no pod is not overuse
		o.Revoke = &quotarevoke.Options{
			DryRun: a.RevokePolicy == config.RevokeDryRun, Delay: a.DelayEvictTime.Duration,
			Interval: a.RevokePodInterval.Duration,
			Limits:   quota.Limits{PerQuota: int(*a.MaxRevokedPerQuota), PerMinute: int(*a.MaxRevokedPerMinute)},
		}
		if a.RevokePolicy == config.RevokeStrict {
			o.Revoke.Policy = quota.Strict
		}
	}
	return o
}

// quotaControllers run while this manager leads.
type quotaControllers struct {
	options QuotaOptions
	config  *rest.Config
}

// Start runs until ctx ends.
func (q *quotaControllers) Start(ctx context.Context) error {
	// The status of quotas alone takes 20 writes a second.
	limited := rest.CopyConfig(q.config)
	limited.QPS, limited.Burst = 50, 100
	client, err := kubernetes.NewForConfig(limited)
	if err != nil {
		return fmt.Errorf("client of quotas: %w", err)
	}
	objects, err := dynamic.NewForConfig(limited)
	if err != nil {
		return fmt.Errorf("client of quotas: %w", err)
	}
	reader, err := kube.NewClient(limited)
	if err != nil {
		return fmt.Errorf("client of quotas: %w", err)
	}
	store := kube.NewQuotas(time.Now)
	if err := store.Configure(q.options.Config, q.options.Rules); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(withoutManagedFields))
	defer factory.Shutdown()
	defer stop()

	pods, nodes := factory.Core().V1().Pods(), factory.Core().V1().Nodes()
	budgets := factory.Policy().V1().PodDisruptionBudgets()
	synced := []cache.InformerSynced{budgets.Informer().HasSynced}
	follow := func(i cache.SharedIndexInformer, h cache.ResourceEventHandler) {
		registration, failed := i.AddEventHandler(h)
		if err = errors.Join(err, failed); failed == nil {
			synced = append(synced, registration.HasSynced)
		}
	}
	follow(kube.ByUID(pods.Informer()), store.PodHandler())
	follow(nodes.Informer(), store.NodeHandler())
	for _, group := range v1alpha1.Groups() {
		i := kube.Distinct(kube.SameQuota, kube.NewQuotaInformer(reader, group))
		follow(i, store.QuotaHandler())
		running.Go(func() { i.RunWithContext(ctx) })
	}
	if err != nil {
		return fmt.Errorf("follow pods, nodes and quotas: %w", err)
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil // ctx has ended
	}
	running.Go(func() { store.Run(ctx) })

	controllers := []func(context.Context) error{
		quotastatus.New(store, objects).Start, quotaprofile.New(nodes.Lister(), objects).Start,
	}
	if q.options.Revoke != nil {
		o := *q.options.Revoke
		o.Read, o.Pods, o.Budgets, o.Client, o.Objects = store.Read, pods.Lister(), budgets.Lister(), client, objects
		broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
		if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
			return fmt.Errorf("send Events: %w", err)
		}
		defer broadcaster.Shutdown()
		o.Events = broadcaster.NewRecorder(scheme.Scheme, "tenon-manager")
		controllers = append(controllers, quotarevoke.New(o).Start)
	}
	ended := make(chan error, len(controllers))
	for _, start := range controllers {
		running.Go(func() { ended <- start(ctx) })
	}
	for range controllers {
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}

// withoutManagedFields keeps caches small.
func withoutManagedFields(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	return object, nil
}
