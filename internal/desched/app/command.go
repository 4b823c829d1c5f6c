package app

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenon-project/tenon/api/config/descheduler"
)

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
		"`file` with a DeschedulerConfiguration or a DeschedulerPolicy; without it, pods move for jobs alone")
	f.StringSliceVar(&schedulers, "scheduler-names", nil,
		"`names` of the schedulers that place Reservations; default: schedulerNames of the configuration")
	f.StringVar(&o.ServingAddress, "serving-address", ":8443",
		"`host:port` of /metrics, /configz and /apis/v1: plain on loopback, else over TLS with the API server's "+
			"authorization; 0 is none")
	f.StringVar(&o.CertFile, "tls-cert-file", "",
		"certificate `file` of the serving address; without it the certificate signs itself")
	f.StringVar(&o.KeyFile, "tls-private-key-file", "", "key `file` of the serving address, beside the certificate")
	f.StringVar(&o.SchedulerAddress, "scheduler-address", "",
		"`URL` of the scheduler, such as https://tenon-scheduler.tenon-system.svc:10259, which says where pods fit")
	f.StringVar(&o.SchedulerCAFile, "scheduler-ca-file", "",
		"`file` of the authority that signed the scheduler's certificate")
	return cmd
}
