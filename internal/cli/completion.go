package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// completionLimit bounds the time that a shell waits for names.
const completionLimit = 3 * time.Second

// complete is what cobra asks for candidates.
type complete = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective)

// fromCluster completes a first argument, or a flag, from the names that list finds. A cluster that does not answer
// offers no names.
func fromCluster(flags genericclioptions.RESTClientGetter,
	list func(context.Context, cluster, string) ([]string, error),
) complete {
	return func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionLimit)
		defer cancel()
		cl, err := connect(flags)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, err := list(ctx, cl, namespace)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func nodeNames(ctx context.Context, cl cluster, _ string) ([]string, error) {
	list, err := cl.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return namesOf(list.Items, func(i int) string { return list.Items[i].Name }), nil
}

func podNames(ctx context.Context, cl cluster, namespace string) ([]string, error) {
	list, err := cl.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return namesOf(list.Items, func(i int) string { return list.Items[i].Name }), nil
}

func namespaceNames(ctx context.Context, cl cluster, _ string) ([]string, error) {
	list, err := cl.core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return namesOf(list.Items, func(i int) string { return list.Items[i].Name }), nil
}

func namesOf[T any](items []T, name func(i int) string) []string {
	names := make([]string, len(items))
	for i := range items {
		names[i] = name(i)
	}
	return names
}

// completeFlag registers the candidates of a flag that the command has.
func completeFlag(c *cobra.Command, flag string, f complete) {
	if err := c.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the flag is not defined, or has candidates already
	}
}
