package app

import (
	"flag"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/api/version"
	"github.com/tenon-project/tenon/internal/control/serving"
)

// NewCommand returns the command line of tenon-descheduler.
func NewCommand() *cobra.Command {
	o := Options{}
	elect := true
	var file string
	var schedulers []string
	cmd := &cobra.Command{
		Use:   Component,
		Short: "Moves pods to nodes where their room is already reserved",
		Args:  cobra.NoArgs,
		// An error of running is not one of the command line.
		SilenceUsage: true,
		Version:      version.String(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger := klog.Background()
			serving.UseLogger(logger)
			var err error
			if file != "" {
				if o.Text, err = os.ReadFile(file); err != nil {
					return fmt.Errorf("read the configuration: %w", err)
				}
			}
			if o.Settings, err = descheduler.Read(file, o.Text); err != nil {
				return err
			}
			if len(schedulers) > 0 {
				o.Settings.Migration.SchedulerNames = schedulers
			}
			o.Namespace = o.LeaderElectNamespace
			if !elect {
				o.LeaderElectNamespace = ""
			}
			return Run(klog.NewContext(cmd.Context(), logger), o)
		},
	}
	f := cmd.Flags()
	f.Bool("version", false, "print the version")
	f.StringVar(&file, "config", "",
		"`file` with a DeschedulerConfiguration or a DeschedulerPolicy; without it, pods move for jobs alone")
	f.StringSliceVar(&schedulers, "scheduler-names", nil,
		"`names` of the schedulers that place Reservations; default: schedulerNames of the configuration")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig `file`; without it the service account is used")
	f.StringVar(&o.ServingAddress, "serving-address", ":8443",
		"`host:port` of /metrics, /configz and /apis/v1: plain on loopback, else over TLS with the API server's "+
			"authorization; 0 is none")
	f.StringVar(&o.CertFile, "tls-cert-file", "",
		"certificate `file` of the serving address; without it the certificate signs itself")
	f.StringVar(&o.KeyFile, "tls-private-key-file", "", "key `file` of the serving address, beside the certificate")
	f.StringVar(&o.HealthAddress, "health-address", ":8081", "`host:port` of /healthz and /readyz; 0 is none")
	f.StringVar(&o.SchedulerAddress, "scheduler-address", "",
		"`URL` of the scheduler, such as https://tenon-scheduler.tenon-system.svc:10259, which says where pods fit")
	f.StringVar(&o.SchedulerCAFile, "scheduler-ca-file", "",
		"`file` of the authority that signed the scheduler's certificate")
	f.BoolVar(&elect, "leader-elect", true, "elect a leader, which alone moves pods")
	f.StringVar(&o.LeaderElectNamespace, "leader-elect-namespace", "tenon-system", "`namespace` of the leader's lease")
	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	f.AddGoFlag(logging.Lookup("v"))
	return cmd
}
