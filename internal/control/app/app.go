package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/internal/control/certificate"
	"github.com/tenon-project/tenon/internal/control/grouping"
	"github.com/tenon-project/tenon/internal/control/serving"
	"github.com/tenon-project/tenon/internal/control/webhook"
	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Options are what differs from one manager to the next.
type Options struct {
	serving.Component
	// WebhookAddress is host:port; an empty host is every address.
	WebhookAddress string
	// CertFile and KeyFile are in one folder. They are read again when they change.
	CertFile, KeyFile string
	// CertificateSecret, if set, is the Secret of Namespace in which the replicas make and renew certificates; CertFile
	// and KeyFile are not read then.
	CertificateSecret string
	// SchedulerIdentities are the user names that may write the keys that a scheduler sets.
	SchedulerIdentities []string
	// SchedulerNames are the schedulers whose pods count, first the one that gets pods with devices of namespaces that
	// ask for it. None counts the pods of every scheduler.
	SchedulerNames []string
	// RequireNRIPlugin makes runtimes refuse the containers of pods that hold CPUs while the agent is not connected.
	RequireNRIPlugin bool
	// RelaxResourceKeys accepts an ElasticQuota whose max has only some of the resources of its parent's.
	RelaxResourceKeys bool
	// Quotas is what becomes of quotas while this manager leads; nil leaves them to another one.
	Quotas *QuotaOptions
	// Workloads are the rules by which pods of operators' objects start together, and WorkloadGrouping says whose pods.
	// Off follows no object.
	Workloads        workload.Table
	WorkloadGrouping workload.Grouping
	// ProtectReservations keeps autoscalers from removing nodes with Reservations, while this manager leads.
	ProtectReservations bool
	// ScaleHelper makes pods, while this manager leads, for which autoscalers add nodes.
	ScaleHelper bool
	// PublishDevices shows in Nodes, while this manager leads, what their Device objects say.
	PublishDevices bool
	// SLOConfigNamespace is that of the ConfigMap slo-controller-config. "" leaves the use and the reclaimable amounts
	// of Nodes to another manager.
	SLOConfigNamespace string
	// MetricsAddress serves /metrics: on loopback plainly, elsewhere over TLS and only to those whom the API server
	// lets read it. "" or "0" serves none.
	MetricsAddress string
	// Settings are served beside the metrics as /configz.
	Settings strict.Settings
}

// defaultSchedulerName is the scheduler that the chart serves by default.
const defaultSchedulerName = "tenon-scheduler"

// DefaultSchedulerIdentities are the service accounts of tenon-scheduler and koord-scheduler, so that a cluster can run
// both while it moves.
func DefaultSchedulerIdentities() []string {
	return []string{
		"system:serviceaccount:tenon-system:tenon-scheduler",
		"system:serviceaccount:koordinator-system:koord-scheduler",
	}
}

// stopTimeout is how long answers that are under way may take when the manager stops. The API server waits no longer
// than 5 s for any of them.
const stopTimeout = 6 * time.Second

// Run serves until ctx ends.
func Run(ctx context.Context, o Options) error {
	config, err := o.Config()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	keeper, err := newKeeper(o, config)
	if err != nil {
		return err
	}
	server, err := newServer(o, keeper)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	mgr, err := newManager(ctx, &o, config, scheme, keeper, server)
	if err != nil {
		return err
	}
	forget, err := serving.RegisterInfo(metrics.Registry, "tenon-manager", o.Settings.Hash())
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	defer forget()
	known, err := addCluster(mgr, &o, config, client)
	if err != nil {
		return err
	}
	gangs, err := newGrouper(mgr, &o, known)
	if err != nil {
		return err
	}
	counters := webhook.NewMetrics()
	counted := counters.Collectors()
	if keeper != nil {
		counted = append(counted, keeper.Expiry())
	}
	addWebhooks(mgr, &o, scheme, known, gangs, counters)
	if o.Quotas != nil {
		m := newWriteMetrics()
		counted = append(counted, m.writes, m.evictions, m.groups)
		if err := addControllers(mgr, &o, known, gangs, client, m); err != nil {
			return fmt.Errorf("set up the controllers: %w", err)
		}
	}
	forgetCounted, err := serving.Register(metrics.Registry, counted...)
	if err != nil {
		return err
	}
	defer forgetCounted()
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("webhooks", server.StartedChecker()),
		mgr.AddReadyzCheck("objects", known.check)); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the manager: %w", err)
	}
	return nil
}

// newManager returns a manager that serves webhooks and metrics, with the certificates of keeper unless it is nil.
func newManager(ctx context.Context, o *Options, config *rest.Config, scheme *runtime.Scheme,
	keeper *certificate.Keeper, server ctrlwebhook.Server,
) (manager.Manager, error) {
	metricsOptions, err := serving.Options("metrics", o.MetricsAddress)
	if err != nil {
		return nil, err
	}
	metricsOptions.TLSOpts = certificateOf(keeper)
	metricsOptions.ExtraHandlers = map[string]http.Handler{"/configz": o.Settings}
	graceful := stopTimeout
	if keeper != nil { // the webhooks are those of a Service
		server = &drainingServer{Server: server}
		graceful += drainTime
	}
	mgr, err := o.Manager(ctx, config, "tenon-manager", manager.Options{
		Scheme: scheme, WebhookServer: server, Metrics: metricsOptions, GracefulShutdownTimeout: &graceful,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the manager: %w", err)
	}
	if keeper != nil {
		if err := mgr.Add(keeper); err != nil {
			return nil, fmt.Errorf("set up certificates: %w", err)
		}
	}
	return mgr, nil
}

// addCluster follows the objects that webhooks and controllers read.
func addCluster(mgr manager.Manager, o *Options, config *rest.Config, client kubernetes.Interface) (*cluster, error) {
	store, divided := kube.NewQuotas(time.Now), cmp.Or(o.Quotas, DefaultQuotaOptions())
	if err := store.Configure(divided.Config, divided.Rules); err != nil {
		return nil, err
	}
	schedulers := convert.NewSchedulers(o.SchedulerNames...)
	store.Trust(schedulers)
	known, err := newCluster(config, client, store, schedulers, o.SLOConfigNamespace)
	if err != nil {
		return nil, err
	}
	if len(o.SchedulerNames) > 0 { // else every scheduler is trusted
		known.reserved.Profile = o.SchedulerNames[0]
	}
	return known, mgr.Add(known)
}

// newGrouper returns what makes gangs of operators' objects, and follows these.
func newGrouper(mgr manager.Manager, o *Options, known *cluster) (*grouping.Grouper, error) {
	client, err := dynamic.NewForConfig(mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	owners := grouping.NewOwners(client, mgr.GetRESTMapper(), known.pod, time.Now)
	schedulers := o.SchedulerNames
	if len(schedulers) == 0 {
		schedulers = []string{defaultSchedulerName} // pods of all others are left alone
	}
	return &grouping.Grouper{
		Table: o.Workloads, Grouping: o.WorkloadGrouping, Schedulers: schedulers, Owners: owners,
		Cluster: known,
	}, mgr.Add(owners)
}

// addWebhooks registers the webhooks. Only a server that was asked for is started with the manager.
func addWebhooks(mgr manager.Manager, o *Options, scheme *runtime.Scheme, known *cluster, gangs *grouping.Grouper,
	counters *webhook.Metrics,
) {
	quotas := webhook.NewQuotas(known.store, known.hasSynced)
	quotas.RelaxResourceKeys = o.RelaxResourceKeys
	webhook.Register(mgr.GetWebhookServer(), admission.NewDecoder(scheme), webhook.Rules{
		Schedulers: o.SchedulerIdentities, SchedulerName: append(o.SchedulerNames, defaultSchedulerName)[0],
		RequireNRIPlugin: o.RequireNRIPlugin, Quotas: quotas, Pod: known.pod, Room: known.room, Kinds: known.kinds.List,
		Profiles: known.colocation, Gangs: gangs, Jobs: gangs.Owners,
	}, counters)
}

// newKeeper returns nil where certificates come from files.
func newKeeper(o Options, config *rest.Config) (*certificate.Keeper, error) {
	if o.CertificateSecret == "" {
		return nil, nil
	}
	if bad := validation.IsDNS1123Subdomain(o.CertificateSecret); len(bad) > 0 || o.Namespace == "" {
		return nil, fmt.Errorf("certificate secret: want the name of a Secret and the release's namespace, "+
			"got %q and %q", o.CertificateSecret, o.Namespace)
	}
	var clock certificate.Clock
	config = rest.CopyConfig(config)
	config.Wrap(clock.Wrap)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("set up certificates: %w", err)
	}
	return certificate.NewKeeper(certificate.Options{
		Client: client, Namespace: o.Namespace, Secret: o.CertificateSecret, Now: clock.Now,
	}), nil
}

func newServer(o Options, keeper *certificate.Keeper) (ctrlwebhook.Server, error) {
	host, text, err := net.SplitHostPort(o.WebhookAddress)
	if err != nil {
		return nil, fmt.Errorf("webhook address: %w", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return nil, fmt.Errorf("webhook address: %q: the port must be 1…65535", o.WebhookAddress)
	}
	options := ctrlwebhook.Options{Host: host, Port: int(port), TLSOpts: certificateOf(keeper)}
	if keeper == nil {
		options.CertDir, options.CertName, options.KeyName, err = serving.InFolder("the webhooks need", o.CertFile,
			o.KeyFile)
		if err != nil {
			return nil, err
		}
	}
	return ctrlwebhook.NewServer(options), nil
}

// certificateOf makes a server use the keeper's certificate.
func certificateOf(keeper *certificate.Keeper) []func(*tls.Config) {
	if keeper == nil {
		return nil
	}
	return []func(*tls.Config){func(c *tls.Config) { c.GetCertificate = keeper.GetCertificate }}
}

// drainTime is how long the webhooks answer after the manager was asked to end. The API server learns only then that
// the pod is not an endpoint of their Service any more, and keeps connections to it.
const drainTime = 5 * time.Second

// drainingServer serves for drainTime more when its context ends, and lets each client close its connection meanwhile.
type drainingServer struct {
	ctrlwebhook.Server
	draining atomic.Bool
}

func (s *drainingServer) Start(ctx context.Context) error {
	until, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		s.draining.Store(true)
		time.AfterFunc(drainTime, cancel)
	})()
	return s.Server.Start(until)
}

func (s *drainingServer) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		hook.ServeHTTP(w, r)
	}))
}
