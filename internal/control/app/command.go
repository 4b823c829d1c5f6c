package app

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenon-project/tenon/api/config/strict"
	config "github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/scalehelper"
	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// NewCommand returns the command line of tenon-manager.
func NewCommand() *cobra.Command { return newCommand(Run) }

// newCommand returns the command line of a manager that run runs. Where nothing else names Run, a program that only
// reads configurations does not contain the manager.
func newCommand(run func(context.Context, Options) error) *cobra.Command {
	var o Options
	var quotaArgs, file string
	cmd := o.Command("tenon-manager", "Answers the webhooks that refuse pods which can never work, and says why",
		"writes quotas and evicts pods",
		func(flags *pflag.FlagSet) error { return o.configure(flags, file, quotaArgs) },
		func(ctx context.Context) error { return run(ctx, o) })
	f := cmd.Flags()
	f.StringVar(&file, "config", "", "`file` with a ManagerConfiguration; flags win over it")
	f.StringVar(&o.WebhookAddress, "webhook-address", ":9443", "`host:port` of the webhooks")
	f.StringVar(&o.CertFile, "tls-cert-file", "/etc/tenon/webhook/tls.crt", "certificate `file` of the webhooks")
	f.StringVar(&o.KeyFile, "tls-private-key-file", "/etc/tenon/webhook/tls.key",
		"key `file` of the webhooks, beside the certificate")
	f.StringVar(&o.CertificateSecret, "certificate-secret", "",
		"Secret `name`, in the namespace of the leader's lease, in which the manager creates and rotates "+
			"certificates (default: read them from files)")
	f.StringVar(&o.MetricsAddress, "metrics-address", ":8443",
		"`host:port` of /metrics: plain on loopback, else over TLS with the API server's authorization; 0 is none")
	f.StringSliceVar(&o.SchedulerIdentities, "scheduler-identities", DefaultSchedulerIdentities(),
		"user `names` that may write the annotations that a scheduler sets")
	f.StringSliceVar(&o.SchedulerNames, "scheduler-names", nil,
		"`names` of the schedulers whose pods count, first the one that gets pods with devices of namespaces that ask "+
			"for it; default: pods of every scheduler count, and they get tenon-scheduler")
	f.BoolVar(&o.RequireNRIPlugin, "require-nri-plugin", true,
		"add the annotation required-plugins.noderesource.dev to pods with exclusive CPUs, so that a runtime with "+
			"NRI's default validator does not start them without the agent")
	f.BoolVar(&o.RelaxResourceKeys, "relax-resource-keys", false,
		"accept an ElasticQuota whose max has only some of the resources of its parent's")
	f.StringVar(&quotaArgs, "elastic-quota-args", "",
		"`file` with the ElasticQuotaArgs of the scheduler (default: built-in defaults)")
	f.BoolVar(&o.ProtectReservations, "protect-reservations", false,
		"set the annotations by which the cluster autoscaler and Karpenter keep a node, on nodes with Reservations "+
			"that hold capacity")
	f.BoolVar(&o.ScaleHelper, "scale-helper", false,
		"for pods that fit nodes by amounts alone, create pods in the namespace "+scalehelper.Namespace+
			" for which cluster autoscalers add nodes")
	f.BoolVar(&o.PublishDevices, "publish-device-resources", true,
		"publish the amounts of devices that Tenon allocates in the capacity of their nodes, and the labels of GPUs")
	f.String(groupingFlag, string(workload.Declared),
		"whose pods start together by the rules of operators' kinds: `Declared` for those of all namespaces, OptIn "+
			"for those of namespaces with the label tenon.sh/gangs=auto, Off for none")
	f.StringVar(&o.SLOConfigNamespace, "slo-config-namespace", "tenon-system",
		"`namespace` of the ConfigMap slo-controller-config, by which NodeMetrics, NodeSLOs and the amounts of batch "+
			"and mid pods in Nodes are written; empty to write none")
	return cmd
}

// CheckConfig finds everything wrong in a ManagerConfiguration, and returns the settings that it would give.
func CheckConfig(d *strict.Document) (strict.Settings, error) {
	var o Options
	err := o.apply(newCommand(nil).Flags(), d, "")
	return o.Settings, err
}

// configure reads the files that flags name. A flag wins over what they say.
func (o *Options) configure(fs *pflag.FlagSet, file, quotaArgs string) error {
	d, err := strict.ReadFile("--config", file)
	if err != nil {
		return err
	}
	return o.apply(fs, d, quotaArgs)
}

func (o *Options) apply(fs *pflag.FlagSet, d *strict.Document, quotaArgs string) (err error) {
	var schema config.ManagerConfiguration
	if d != nil {
		problems := d.DecodeKind(config.ComponentAPIVersion, config.ManagerConfigurationKind, &schema)
		if err := problems.Err(); err != nil {
			return err
		}
	}
	if o.Workloads, err = convert.ReadWorkloadRules(d, convert.WorkloadRules); err != nil {
		return err
	}
	if err := o.readGrouping(fs, d, schema.Workloads); err != nil {
		return err
	}
	if o.Quotas, err = readQuotaOptions(quotaArgs); err != nil {
		return err
	}
	o.Settings, err = strict.Apply(d, schema, strict.Flags{
		Given: fs.Changed,
		Set:   func(name, text string) error { return fs.Lookup(name).Value.Set(text) },
		Text:  func(name string) string { return fs.Lookup(name).Value.String() },
	})
	return err
}

const groupingFlag = "workload-grouping"

// readGrouping reads whose pods start together, from the file unless the flag is given.
func (o *Options) readGrouping(fs *pflag.FlagSet, d *strict.Document, c *config.WorkloadsConfiguration) error {
	const rule = "%q is not allowed: use %s"
	o.WorkloadGrouping = workload.Grouping(fs.Lookup(groupingFlag).Value.String())
	inFile := c != nil && c.Grouping != "" && !fs.Changed(groupingFlag)
	if inFile {
		o.WorkloadGrouping = workload.Grouping(c.Grouping)
	}
	all := workload.Groupings()
	allowed := fmt.Sprintf("%s, %s, %s", all[0], all[1], all[2])
	switch {
	case slices.Contains(all, o.WorkloadGrouping):
		return nil
	case inFile:
		return d.Problem("workloads.grouping", rule, o.WorkloadGrouping, allowed)
	}
	return fmt.Errorf("--"+groupingFlag+": "+rule, o.WorkloadGrouping, allowed)
}
