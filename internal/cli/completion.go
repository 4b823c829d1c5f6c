package cli

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

const completionLimit = 3 * time.Second

// fromCluster completes a first argument, or a flag, with the names of a core resource. A cluster that does not answer
// offers no names.
func fromCluster(flags *genericclioptions.ConfigFlags, resource string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionLimit)
		defer cancel()
		var names []string
		cl, err := connect(flags)
		namespace, _, noNamespace := flags.ToRawKubeConfigLoader().Namespace()
		if err == nil && noNamespace == nil {
			names = cl.names(ctx, resource, namespace)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// names returns the names of the objects of a core resource, pods of one namespace; none where they cannot be listed.
func (c cluster) names(ctx context.Context, resource, namespace string) []string {
	text, err := c.core.CoreV1().RESTClient().Get().NamespaceIfScoped(namespace, resource == "pods").Resource(resource).
		SetHeader("Accept", "application/json").Do(ctx).Raw()
	var list metav1.PartialObjectMetadataList
	if err != nil || json.Unmarshal(text, &list) != nil {
		return nil
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names
}
