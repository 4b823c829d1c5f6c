package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/internal/control/webhook"
	"github.com/tenon-project/tenon/internal/kube"
)

// Options are what differs from one manager to the next.
type Options struct {
	// RESTConfig, else Kubeconfig (a path), else the service account says where the API server is.
	RESTConfig *rest.Config
	Kubeconfig string
	// WebhookAddress is host:port; an empty host is every address.
	WebhookAddress string
	// CertFile and KeyFile are in one folder. They are read again when they change.
	CertFile, KeyFile string
	// SchedulerIdentities are the user names that may write the keys that a scheduler sets.
	SchedulerIdentities []string
	// RequireNRIPlugin makes runtimes refuse the containers of pods that hold CPUs while the agent is not connected.
	RequireNRIPlugin bool
	// RelaxResourceKeys accepts an ElasticQuota whose max has only some of the resources of its parent's.
	RelaxResourceKeys bool
	// Quotas is what becomes of quotas while this manager leads; nil leaves them to another one.
	Quotas *QuotaOptions
	// PublishDevices shows in Nodes, while this manager leads, what their Device objects say.
	PublishDevices bool
	// LeaderElectNamespace is where the lease is by which one of several managers leads. "" is for a manager without
	// others: it leads.
	LeaderElectNamespace string
	// MetricsAddress serves /metrics: on loopback plainly, elsewhere over TLS and only to those whom the API server
	// lets read it. "" or "0" serves none.
	MetricsAddress string
	// HealthAddress serves /healthz and /readyz. "" or "0" serves none.
	HealthAddress string
	// Settings are served beside the metrics as /configz.
	Settings strict.Settings
}

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
	config := o.RESTConfig
	if config == nil {
		var err error
		if config, err = clientcmd.BuildConfigFromFlags("", o.Kubeconfig); err != nil {
			return fmt.Errorf("find the API server: %w", err)
		}
	}
	server, err := newServer(o)
	if err != nil {
		return err
	}
	metricsOptions, err := metricsOptions(o.MetricsAddress)
	if err != nil {
		return err
	}
	metricsOptions.ExtraHandlers = map[string]http.Handler{"/configz": o.Settings}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100 // the status of quotas alone takes 20 writes a second
	graceful := stopTimeout
	mgr, err := manager.New(config, manager.Options{
		Scheme:                  scheme,
		Logger:                  klog.FromContext(ctx),
		BaseContext:             func() context.Context { return ctx },
		WebhookServer:           server,
		Metrics:                 metricsOptions,
		HealthProbeBindAddress:  cmp.Or(o.HealthAddress, "0"),
		GracefulShutdownTimeout: &graceful,
		LeaderElection:          o.LeaderElectNamespace != "", LeaderElectionID: "tenon-manager",
		LeaderElectionNamespace: o.LeaderElectNamespace, LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	counters, err := webhook.NewMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	defer counters.Unregister(metrics.Registry)
	store, divided := kube.NewQuotas(time.Now), cmp.Or(o.Quotas, DefaultQuotaOptions())
	if err := store.Configure(divided.Config, divided.Rules); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	known, err := newCluster(config, client, store)
	if err != nil {
		return err
	}
	if err := mgr.Add(known); err != nil {
		return err
	}
	quotas := webhook.NewQuotas(store, known.hasSynced)
	quotas.RelaxResourceKeys = o.RelaxResourceKeys
	// Only a server that was asked for is started with the manager.
	webhook.Register(mgr.GetWebhookServer(), admission.NewDecoder(scheme), webhook.Rules{
		Schedulers: o.SchedulerIdentities, RequireNRIPlugin: o.RequireNRIPlugin, Quotas: quotas,
		Pod: known.pod, Kinds: known.kinds.List,
	}, counters)
	if o.Quotas != nil {
		m := newWriteMetrics()
		for _, counter := range []prometheus.Collector{m.writes, m.evictions, m.groups} {
			if err := metrics.Registry.Register(counter); err != nil {
				return fmt.Errorf("register metrics: %w", err)
			}
			defer metrics.Registry.Unregister(counter)
		}
		if err := addControllers(mgr, &o, known, client, m); err != nil {
			return fmt.Errorf("set up the controllers: %w", err)
		}
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("webhooks", server.StartedChecker()); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the manager: %w", err)
	}
	return nil
}

func newServer(o Options) (ctrlwebhook.Server, error) {
	host, text, err := net.SplitHostPort(o.WebhookAddress)
	if err != nil {
		return nil, fmt.Errorf("webhook address: %w", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return nil, fmt.Errorf("webhook address: %q: the port must be 1…65535", o.WebhookAddress)
	}
	dir := filepath.Dir(o.CertFile)
	if o.CertFile == "" || o.KeyFile == "" || filepath.Dir(o.KeyFile) != dir {
		return nil, errors.New("the webhooks need a certificate file and a key file in one folder")
	}
	return ctrlwebhook.NewServer(ctrlwebhook.Options{
		Host: host, Port: int(port), CertDir: dir,
		CertName: filepath.Base(o.CertFile), KeyName: filepath.Base(o.KeyFile),
	}), nil
}

func metricsOptions(address string) (metricsserver.Options, error) {
	options := metricsserver.Options{BindAddress: cmp.Or(address, "0")}
	if options.BindAddress == "0" {
		return options, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return options, fmt.Errorf("metrics address: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		options.SecureServing = true
		options.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return options, nil
}

// UseLogger makes a logger that of the framework, which keeps one per process. A main calls it once.
func UseLogger(logger klog.Logger) { ctrl.SetLogger(logger) }
