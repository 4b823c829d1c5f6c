package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/internal/control/serving"
)

// Component is the name of the program, of its lease and of its Events' source.
const Component = "tenon-descheduler"

// Options are what differs from one descheduler to the next.
type Options struct {
	// RESTConfig, else Kubeconfig (a path), else the service account says where the API server is.
	RESTConfig *rest.Config
	Kubeconfig string
	// ServingAddress serves /metrics, /configz and what is below /apis/v1: on loopback plainly, elsewhere over TLS and
	// only to those whom the API server lets use the path. "" or "0" serves none.
	ServingAddress string
	// CertFile and KeyFile are in one folder, and read again when they change. Without them the certificate of the
	// serving address signs itself.
	CertFile, KeyFile string
	// HealthAddress serves /healthz and /readyz. "" or "0" serves none.
	HealthAddress string
	// LeaderElectNamespace is where the lease is by which one of several deschedulers leads. "" is for one without
	// others: it leads.
	LeaderElectNamespace string
	// SchedulerAddress is where the scheduler answers questions about other clusters: over https, or plain on loopback.
	// "" asks none: no room is made, and nodeFit refuses every pod.
	SchedulerAddress string
	// SchedulerCAFile has the certificates that the scheduler's must be signed by.
	SchedulerCAFile string
	// Namespace is that of the descheduler itself: no pod of it is moved.
	Namespace string
	// Settings are those of descheduler.Read. Text is the file that they were read from.
	Settings descheduler.Settings
	Text     []byte
}

// Run moves pods until ctx ends.
func Run(ctx context.Context, o Options) error {
	config := o.RESTConfig
	if config == nil {
		var err error
		if config, err = clientcmd.BuildConfigFromFlags("", o.Kubeconfig); err != nil {
			return fmt.Errorf("find the API server: %w", err)
		}
	}
	served, err := serving.Options("serving", o.ServingAddress)
	if err != nil {
		return err
	}
	if o.CertFile != "" || o.KeyFile != "" {
		served.CertDir = filepath.Dir(o.CertFile)
		served.CertName, served.KeyName = filepath.Base(o.CertFile), filepath.Base(o.KeyFile)
		if o.CertFile == "" || o.KeyFile == "" || filepath.Dir(o.KeyFile) != served.CertDir {
			return errors.New("the serving address needs a certificate file and a key file in one folder")
		}
	}
	for _, text := range o.Settings.Warnings {
		klog.FromContext(ctx).Info("Configuration has a doubtful value", "warning", text)
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	mgr, err := manager.New(config, manager.Options{
		Scheme:                 runtime.NewScheme(),
		Logger:                 klog.FromContext(ctx),
		BaseContext:            func() context.Context { return ctx },
		Metrics:                served,
		HealthProbeBindAddress: cmp.Or(o.HealthAddress, "0"),
		LeaderElection:         o.LeaderElectNamespace != "", LeaderElectionID: Component,
		LeaderElectionNamespace: o.LeaderElectNamespace, LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("set up the descheduler: %w", err)
	}
	forget, err := serving.RegisterInfo(metrics.Registry, Component, fmt.Sprintf("%.8x", sha256.Sum256(o.Text)))
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	defer forget()
	parts, err := wire(mgr, config, &o)
	if err != nil {
		return fmt.Errorf("set up the descheduler: %w", err)
	}
	defer parts.forget()
	if o.ServingAddress != "" && o.ServingAddress != "0" {
		err = errors.Join(mgr.AddMetricsServerExtraHandler("/configz", shown(&o)),
			mgr.AddMetricsServerExtraHandler("/apis/v1/", answering(mgr.Elected(), parts.handlers)))
	}
	if err = errors.Join(err, mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("caches", parts.ready)); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the descheduler: %w", err)
	}
	return nil
}

// shown answers /configz: what the file sets and where, and the limits of all moves with their defaults.
func shown(o *Options) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{ // the client has gone
			"settings": o.Settings.Written.All, "dryRun": o.Settings.DryRun, "limits": o.Settings.Migration,
		})
	}
}

// answering serves handlers by their paths while this replica leads: the others know less, and answer 503.
func answering(elected <-chan struct{}, handlers map[string]http.Handler) http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range handlers {
		mux.Handle(pattern, h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-elected:
			mux.ServeHTTP(w, r)
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"message":"the instance is not leader"}` + "\n")) // the client has gone
		}
	})
}
