package serving

import (
	"cmp"
	"context"
	"flag"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tenon-project/tenon/api/version"
)

// Component is what all components differ in from one replica or cluster to the next.
type Component struct {
	// RESTConfig, else Kubeconfig (a path), else the service account says where the API server is.
	RESTConfig *rest.Config
	Kubeconfig string
	// HealthAddress serves /healthz and /readyz. "" or "0" serves none.
	HealthAddress string
	// LeaderElectNamespace is where the lease is by which one of several replicas leads. "" is for one without others:
	// it leads.
	LeaderElectNamespace string
	// Namespace is that of the component itself.
	Namespace string
}

// Command returns the command of a component with the flags of all components. leads says what only a leader does.
// configure is called before run, and may set flags.
func (c *Component) Command(name, short, leads string, configure func(*pflag.FlagSet) error,
	run func(context.Context) error,
) *cobra.Command {
	var elect bool
	cmd := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		// An error of running is not one of the command line.
		SilenceUsage: true,
		Version:      version.String(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger := klog.Background()
			UseLogger(logger)
			if err := configure(cmd.Flags()); err != nil {
				return err
			}
			c.Namespace = c.LeaderElectNamespace
			if !elect {
				c.LeaderElectNamespace = ""
			}
			return run(klog.NewContext(cmd.Context(), logger))
		},
	}
	f := cmd.Flags()
	f.Bool("version", false, "print the version")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig `file`; default: the service account")
	f.StringVar(&c.HealthAddress, "health-address", ":8081", "`host:port` of /healthz and /readyz; 0 is none")
	f.BoolVar(&elect, "leader-elect", true, "elect a leader; only the leader "+leads)
	f.StringVar(&c.LeaderElectNamespace, "leader-elect-namespace", "tenon-system", "`namespace` of the leader's lease")
	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	f.AddGoFlag(logging.Lookup("v"))
	return cmd
}

// Config returns how the API server is reached, with enough requests a second for the status of quotas, which takes 20
// writes a second.
func (c *Component) Config() (*rest.Config, error) {
	config := c.RESTConfig
	if config == nil {
		var err error
		if config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
			return nil, fmt.Errorf("find the API server: %w", err)
		}
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	return config, nil
}

// Manager returns the framework's manager of a component by its name. o has what other components have not.
func (c *Component) Manager(ctx context.Context, config *rest.Config, name string, o manager.Options) (manager.Manager,
	error,
) {
	o.Logger, o.BaseContext = klog.FromContext(ctx), func() context.Context { return ctx }
	o.HealthProbeBindAddress = cmp.Or(c.HealthAddress, "0")
	o.LeaderElection, o.LeaderElectionID = c.LeaderElectNamespace != "", name
	o.LeaderElectionNamespace, o.LeaderElectionReleaseOnCancel = c.LeaderElectNamespace, true
	return manager.New(config, o)
}
