package app

import (
	"context"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	config "github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/devicecapacity"
	"github.com/tenon-project/tenon/internal/control/gangstatus"
	"github.com/tenon-project/tenon/internal/control/grouping"
	"github.com/tenon-project/tenon/internal/control/nodescaling"
	"github.com/tenon-project/tenon/internal/control/nodestrategy"
	"github.com/tenon-project/tenon/internal/control/quotaprofile"
	"github.com/tenon-project/tenon/internal/control/quotarevoke"
	"github.com/tenon-project/tenon/internal/control/quotastatus"
	"github.com/tenon-project/tenon/internal/control/scalehelper"
	"github.com/tenon-project/tenon/internal/core/quota"
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
	return NewQuotaOptions(&a)
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
	a, err := config.Decode[config.ElasticQuotaArgs](&runtime.Unknown{Raw: text})
	if err != nil {
		return nil, fmt.Errorf("read the arguments of quotas in %s: %w", file, err)
	}
	return NewQuotaOptions(&a), nil
}

// NewQuotaOptions returns those that the arguments of the scheduler's plugin say.
func NewQuotaOptions(a *config.ElasticQuotaArgs) *QuotaOptions {
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

// addControllers adds what works while this manager leads, once the caches are synced.
func addControllers(mgr manager.Manager, all *Options, c *cluster, gangs *grouping.Grouper,
	client kubernetes.Interface, m writeMetrics,
) error {
	o := all.Quotas
	objects, err := dynamic.NewForConfig(mgr.GetConfig())
	if err != nil {
		return err
	}
	recorder := mgr.GetEventRecorder("tenon-manager")
	nodes := corelisters.NewNodeLister(c.nodes.GetIndexer())
	starts := []func(context.Context) error{
		quotastatus.New(quotastatus.Options{
			Quotas: c.store.Reports, Problems: c.store.Problems, Object: c.quota, Client: objects, Events: recorder,
			Writes: m.writes,
		}).Start,
		quotaprofile.New(nodes, objects).Start,
		nodescaling.New(nodescaling.Options{
			Nodes: c.nodes, Topologies: c.topologies, Devices: c.devices, Reservations: c.reservations, Client: client,
			Protect: all.ProtectReservations,
		}).Start,
	}
	if all.PublishDevices {
		starts = append(starts, devicecapacity.New(devicecapacity.Options{
			Devices: c.devices, Nodes: c.nodes, Client: client,
		}).Start)
	}
	if c.strategy != nil {
		starts = append(starts, nodestrategy.New(nodestrategy.Options{
			Nodes: c.nodes, Metrics: c.metrics, SLOs: c.slos, Config: c.strategy, Pods: c.pods, PodsOn: c.podsOn,
			Client: objects, Events: recorder,
		}).Start)
	}
	starts = append(starts, scalehelper.New(scalehelper.Options{
		Pods: c.pods.GetStore(), Nodes: c.nodes.GetStore(), Cluster: scaled{c}, Schedulers: c.schedulers,
		Client: client, Events: recorder, Off: !all.ScaleHelper,
	}).Start)
	if o.Revoke != nil {
		r := *o.Revoke
		r.Read, r.Object, r.Client, r.Events, r.Evictions = c.store.Read, c.quota, client, recorder, m.evictions
		r.Pods = corelisters.NewPodLister(c.pods.GetIndexer())
		r.Budgets = policylisters.NewPodDisruptionBudgetLister(c.budgets.GetIndexer())
		starts = append(starts, quotarevoke.New(r).Start)
	}
	starts = append(starts, grouping.New(grouping.Options{
		Grouper: gangs, Pods: c.pods, Made: c.made, Client: objects, Events: recorder,
	}).Start)
	for _, start := range starts {
		if err := mgr.Add(&leading{c.gathered, start}); err != nil {
			return err
		}
	}
	return mgr.Add(&leading{c.gathered, gangstatus.New(gangstatus.Options{
		Groups: c.groups[:len(c.groups)-1], Pods: c.pods, Client: objects, Events: recorder, Writes: m.groups,
	}).Start})
}

// leading is work of the leader that begins when caches are synced.
type leading struct {
	synced []cache.InformerSynced
	start  func(context.Context) error
}

// Start works until ctx ends.
func (l *leading) Start(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), l.synced...) {
		return nil // ctx has ended
	}
	return l.start(ctx)
}

// NeedLeaderElection is true: two replicas must not write at once.
func (*leading) NeedLeaderElection() bool { return true }

// writeMetrics count what the controllers do. Their labels are bounded.
type writeMetrics struct{ writes, evictions, groups *prometheus.CounterVec }

func newWriteMetrics() writeMetrics {
	return writeMetrics{
		groups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenon_pod_group_status_writes_total",
			Help: "Writes of the status of PodGroups, by outcome (written, failed).",
		}, []string{"outcome"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenon_quota_status_writes_total",
			Help: "Writes of the status of quotas, by outcome (written, failed).",
		}, []string{"outcome"}),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenon_quota_evictions_total",
			Help: "Evictions of pods whose quota used more than its share, by outcome (evicted, refused, failed).",
		}, []string{"outcome"}),
	}
}
