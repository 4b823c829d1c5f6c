package app

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
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
	// Component is the descheduler's: no pod of its Namespace is moved.
	serving.Component
	// ServingAddress serves /metrics, /configz and what is below /apis/v1: on loopback plainly, elsewhere over TLS and
	// only to those whom the API server lets use the path. "" or "0" serves none.
	ServingAddress string
	// CertFile and KeyFile are in one folder, and read again when they change. Without them the certificate of the
	// serving address signs itself.
	CertFile, KeyFile string
	// SchedulerAddress is where the scheduler answers questions about other clusters: over https, or plain on loopback.
	// "" asks none: no room is made, and nodeFit refuses every pod.
	SchedulerAddress string
	// SchedulerCAFile has the certificates that the scheduler's must be signed by.
	SchedulerCAFile string
	// Settings are those of descheduler.Read. Text is the file that they were read from.
	Settings descheduler.Settings
	Text     []byte
}

// Run moves pods until ctx ends.
func Run(ctx context.Context, o Options) error {
	config, err := o.Config()
	if err != nil {
		return err
	}
	served, err := serving.Options("serving", o.ServingAddress)
	if err != nil {
		return err
	}
	if o.CertFile != "" || o.KeyFile != "" {
		served.CertDir, served.CertName, served.KeyName, err = serving.InFolder("the serving address needs", o.CertFile,
			o.KeyFile)
		if err != nil {
			return err
		}
	}
	for _, text := range o.Settings.Written.Warnings {
		klog.FromContext(ctx).Info("Configuration has a doubtful value", "warning", text)
	}
	mgr, err := o.Manager(ctx, config, Component, manager.Options{Scheme: runtime.NewScheme(), Metrics: served})
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

// NewCommand returns the command line of tenon-descheduler.
func NewCommand() *cobra.Command {
	var o Options
	var file string
	var schedulers []string
	configure := func(*pflag.FlagSet) (err error) {
		if file != "" {
			if o.Text, err = os.ReadFile(file); err != nil {
				return fmt.Errorf("read the configuration: %w", err)
			}
		}
		if o.Settings, err = descheduler.Read(file, o.Text); err == nil && len(schedulers) > 0 {
			o.Settings.Migration.SchedulerNames = schedulers
		}
		return err
	}
	cmd := o.Command(Component, "Moves pods to nodes where their room is already reserved", "moves pods", configure,
		func(ctx context.Context) error { return Run(ctx, o) })
	f := cmd.Flags()
	f.StringVar(&file, "config", "",
		"`file` with a DeschedulerConfiguration or a DeschedulerPolicy; default: only PodMigrationJobs move pods")
	f.StringSliceVar(&schedulers, "scheduler-names", nil,
		"`names` of the schedulers that place Reservations; default: schedulerNames of the configuration")
	f.StringVar(&o.ServingAddress, "serving-address", ":8443",
		"`host:port` of /metrics, /configz and /apis/v1: plain on loopback, else over TLS with the API server's "+
			"authorization; 0 is none")
	f.StringVar(&o.CertFile, "tls-cert-file", "",
		"certificate `file` of the serving address; default: a self-signed certificate")
	f.StringVar(&o.KeyFile, "tls-private-key-file", "", "key `file` of the serving address, beside the certificate")
	f.StringVar(&o.SchedulerAddress, "scheduler-address", "",
		"`URL` of the scheduler, such as https://tenon-scheduler.tenon-system.svc:10259, which finds nodes where "+
			"pods fit")
	f.StringVar(&o.SchedulerCAFile, "scheduler-ca-file", "",
		"`file` of the authority that signed the scheduler's certificate")
	return cmd
}
