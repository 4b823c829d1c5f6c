package app

import (
	"flag"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/version"
	"github.com/tenon-project/tenon/internal/control/serving"
)

// NewCommand returns the command line of tenon-manager.
func NewCommand() *cobra.Command {
	o := Options{}
	var elect bool
	var quotaArgs, file string
	cmd := &cobra.Command{
		Use:   "tenon-manager",
		Short: "Answers the webhooks that refuse pods which can never work, and says why",
		Args:  cobra.NoArgs,
		// An error of running is not one of the command line.
		SilenceUsage: true,
		Version:      version.String(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger := klog.Background()
			serving.UseLogger(logger)
			var err error
			if err = o.configure(cmd.Flags(), file, quotaArgs); err != nil {
				return err
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
	f.StringVar(&file, "config", "", "`file` with a ManagerConfiguration; flags win over it")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig `file`; without it the service account is used")
	f.StringVar(&o.WebhookAddress, "webhook-address", ":9443", "`host:port` of the webhooks")
	f.StringVar(&o.CertFile, "tls-cert-file", "/etc/tenon/webhook/tls.crt", "certificate `file` of the webhooks")
	f.StringVar(&o.KeyFile, "tls-private-key-file", "/etc/tenon/webhook/tls.key",
		"key `file` of the webhooks, beside the certificate")
	f.StringVar(&o.CertificateSecret, "certificate-secret", "",
		"Secret `name`, in the namespace of the leader's lease, in which the manager makes and renews certificates; "+
			"without it they are read from files")
	f.StringVar(&o.MetricsAddress, "metrics-address", ":8443",
		"`host:port` of /metrics: plain on loopback, else over TLS with the API server's authorization; 0 is none")
	f.StringVar(&o.HealthAddress, "health-address", ":8081", "`host:port` of /healthz and /readyz; 0 is none")
	f.StringSliceVar(&o.SchedulerIdentities, "scheduler-identities", DefaultSchedulerIdentities(),
		"user `names` that may write the annotations that a scheduler sets")
	f.StringSliceVar(&o.SchedulerNames, "scheduler-names", nil,
		"`names` of the schedulers whose pods count, first the one that gets pods with devices of namespaces that ask "+
			"for it; default: pods of every scheduler count, and they get tenon-scheduler")
	f.BoolVar(&o.RequireNRIPlugin, "require-nri-plugin", true,
		"add the annotation required-plugins.noderesource.dev to pods that will hold CPUs: a runtime with NRI's "+
			"default validator does not start them without the agent")
	f.BoolVar(&o.RelaxResourceKeys, "relax-resource-keys", false,
		"accept an ElasticQuota whose max has only some of the resources of its parent's")
	f.StringVar(&quotaArgs, "elastic-quota-args", "",
		"`file` with the ElasticQuotaArgs of the scheduler; without it the defaults hold")
	f.BoolVar(&o.PublishDevices, "publish-device-resources", true,
		"show the amounts of devices that Tenon gives out in the capacity of their nodes, and the labels of GPUs")
	f.StringVar(&o.SLOConfigNamespace, "slo-config-namespace", "tenon-system",
		"`namespace` of the ConfigMap slo-controller-config, by which NodeMetrics, NodeSLOs and the amounts of batch "+
			"and mid pods in Nodes are written; empty to write none")
	f.BoolVar(&elect, "leader-elect", true, "elect a leader, which alone writes quotas and evicts pods")
	f.StringVar(&o.LeaderElectNamespace, "leader-elect-namespace", "tenon-system", "`namespace` of the leader's lease")
	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	f.AddGoFlag(logging.Lookup("v"))
	return cmd
}
