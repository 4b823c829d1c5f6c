//go:build !nolocal

package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd"

	"github.com/tenon-project/tenon/internal/cli"
)

// newKubectl returns the verb that is kubectl itself, for users who have none.
func newKubectl(streams genericiooptions.IOStreams) *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl COMMAND",
		Short:              "Run kubectl, which this binary contains",
		Example:            "  tenon kubectl get pods -o wide",
		DisableFlagParsing: true, // every flag is kubectl's
		RunE: func(c *cobra.Command, args []string) error {
			flags := genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).
				WithDiscoveryQPS(50)
			flags.WrapConfigFn = cli.NameCluster(flags, streams.ErrOut)
			kubectl := cmd.NewKubectlCommand(cmd.KubectlOptions{
				// The arguments are those of the process: kubectl looks for its plugins by them.
				Arguments: append([]string{"kubectl"}, args...), ConfigFlags: flags, IOStreams: streams,
			})
			kubectl.SetArgs(args)
			kubectl.SetIn(os.Stdin)
			return kubectl.ExecuteContext(c.Context())
		},
	}
}
