package app

import (
	"fmt"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	baseversion "k8s.io/component-base/version"
	"k8s.io/component-base/version/verflag"

	// What kube-scheduler registers in its main: the JSON log format, metrics of clients and version.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	"github.com/tenon-project/tenon/api/version"
)

// NewCommand returns the command tenon-scheduler. It runs until the command's context ends and handles no signals.
func NewCommand(with ...Option) *cobra.Command {
	o := NewOptions(with...)
	cmd := &cobra.Command{
		Use:   "tenon-scheduler",
		Short: "kube-scheduler with Tenon's plugins",
		Long: `tenon-scheduler is kube-scheduler with Tenon's plugins. It takes kube-scheduler's flags and configuration
file. Without --config it runs kube-scheduler's default profile with Tenon's plugins.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		// Feature gates are read before any flag that depends on one.
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if err := o.applyGates(); err != nil {
				return err
			}
			return o.ComponentGlobalsRegistry.Set()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Our version and that of Kubernetes: upstream's flag would print the latter alone.
			if cmd.Flags().Lookup("version").Value.String() == string(verflag.VersionTrue) {
				fmt.Fprintf(cmd.OutOrStdout(), "%s version %s\nKubernetes %s\n", cmd.Name(), version.String(),
					baseversion.Get())
				return nil
			}
			verflag.PrintAndExitIfRequested()
			if err := o.validate(cmd.Flags()); err != nil {
				return err
			}
			gates := o.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
			if err := logsapi.ValidateAndApply(o.Logs, gates); err != nil {
				return fmt.Errorf("logging flags: %w", err)
			}
			cliflag.PrintFlags(cmd.Flags())
			s, err := Setup(cmd.Context(), o)
			if err != nil {
				return err
			}
			if mutable, ok := gates.(featuregate.MutableFeatureGate); ok {
				mutable.AddMetrics()
			}
			o.ComponentGlobalsRegistry.AddMetrics()
			return Run(cmd.Context(), s)
		},
	}
	sections := o.Flags
	verflag.AddFlags(sections.FlagSet("global"))
	globalflag.AddGlobalFlags(sections.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, fs := range sections.FlagSets {
		cmd.Flags().AddFlagSet(fs)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, *sections, columns)
	return cmd
}
