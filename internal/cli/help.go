package cli

import (
	"embed"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// texts are those of the verbs.
//
//go:embed help
var texts embed.FS

// addVerb gives a verb kubectl's global flags, and a help text that keeps them apart from its own. display is how the
// user starts us.
func addVerb(root, verb *cobra.Command, global *genericclioptions.ConfigFlags, display string) {
	own := pflag.NewFlagSet(verb.Name(), pflag.ContinueOnError)
	own.AddFlagSet(verb.Flags())
	shared := pflag.NewFlagSet("kubectl", pflag.ContinueOnError)
	global.AddFlags(shared)
	verb.Flags().AddFlagSet(shared)
	utilruntime.Must(verb.RegisterFlagCompletionFunc("namespace", completeNames(global, "namespace")))
	verb.Example = strings.ReplaceAll(verb.Example, "\n  tenon ", "\n  "+display+" ")
	check := verb.PreRunE
	verb.PreRunE = func(c *cobra.Command, args []string) error {
		if c.Flags().Changed("namespace") {
			if err := checkNamespace(c.Context(), global, c, args); err != nil {
				return err
			}
		}
		if check == nil {
			return nil
		}
		return check(c, args)
	}
	verb.SetUsageFunc(func(c *cobra.Command) error {
		aliases := ""
		if len(c.Aliases) > 0 {
			aliases = "\nAliases:\n  " + c.NameAndAliases() + "\n"
		}
		_, err := fmt.Fprintf(c.OutOrStderr(),
			"Usage:\n  %s\n%s\nExamples:\n%s\n\nFlags:\n%s\nFlags of every kubectl command:\n%s",
			c.UseLine(), aliases, c.Example, own.FlagUsages(), shared.FlagUsages())
		return err
	})
	root.AddCommand(verb)
}
