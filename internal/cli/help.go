package cli

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// checkNamespace refuses a --namespace that a verb does not read, and one that does not exist. It accepts one that the
// caller may not get.
func checkNamespace(ctx context.Context, flags *genericclioptions.ConfigFlags, c *cobra.Command, args []string) error {
	if !readsNamespace(c, args) {
		return usagef("--namespace is not allowed: %s shows objects of the whole cluster",
			strings.TrimSpace(strings.Join(append([]string{c.CommandPath()}, args...), " ")))
	}
	if all := c.Flags().Lookup("all-namespaces"); all != nil && all.Changed {
		return usagef("--namespace and --all-namespaces exclude each other")
	}
	if c.Name() == "explain" && len(args) > 0 {
		return nil // it names the namespace that has the object
	}
	cl, err := connect(flags)
	if err == nil {
		err = cl.findNamespace(ctx, *flags.Namespace)
	}
	return err
}

// readsNamespace reports whether a verb with these arguments reads --namespace.
func readsNamespace(c *cobra.Command, args []string) bool {
	switch c.Name() {
	case "top":
		what, err := topSubject(args)
		return err == nil && what == "pods"
	case "evictions":
		past, err := c.Flags().GetBool("past")
		return err == nil && past
	case "explain", "gang", "capacity", "whatif", "make-room", "status":
		return true
	}
	return false
}

// findNamespace returns an error if a namespace does not exist, or nil where that is unknown.
func (c cluster) findNamespace(ctx context.Context, name string) error {
	_, err := c.core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return nil
	}
	return usagef("namespace %q not found%s", name, suggest(name, c.words(ctx, "", "namespace", nameOf)))
}

// allNamespacesFlag defines -A for a verb that shows all namespaces unless --namespace selects one.
func allNamespacesFlag(c *cobra.Command) {
	c.Flags().BoolP("all-namespaces", "A", false, "show all namespaces, which is the default without --namespace")
}

// givenNamespace returns what --namespace selects, "" where it is not given.
func givenNamespace(c *cobra.Command, flags *genericclioptions.ConfigFlags) string {
	if !c.Flags().Changed("namespace") {
		return ""
	}
	return *flags.Namespace
}

// refuseArguments makes bad arguments of a command and those below it errors of usage.
func refuseArguments(c *cobra.Command) {
	if accept := c.Args; accept != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			var own interface{ ExitCode() int }
			if err := accept(c, args); err != nil && !errors.As(err, &own) {
				return usagef("%s: %w (%s --help shows the usage)", c.CommandPath(), err, c.CommandPath())
			} else if err != nil {
				return err
			}
			return nil
		}
	}
	for _, below := range c.Commands() {
		refuseArguments(below)
	}
}
