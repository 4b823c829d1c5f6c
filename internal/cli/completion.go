package cli

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
)

const completionLimit = 3 * time.Second

// Paths of what is completed; NAMESPACE is the current one.
const (
	nodePath      = "/api/v1/nodes"
	namespacePath = "/api/v1/namespaces"
	podPath       = "/api/v1/namespaces/NAMESPACE/pods"
)

// quotaPaths and gangPaths are those of all groups that a cluster may serve.
func quotaPaths() (paths []string) {
	for _, group := range v1alpha1.Groups() {
		paths = append(paths, "/apis/"+group+"/"+v1alpha1.Resource(group).Version+"/elasticquotas")
	}
	return paths
}

func gangPaths() (paths []string) {
	for _, group := range v1alpha1.PodGroupGroups() {
		resource := v1alpha1.PodGroupResource(group)
		paths = append(paths, "/apis/"+resource.Group+"/"+resource.Version+"/namespaces/NAMESPACE/"+resource.Resource)
	}
	return paths
}

// fromCluster completes a first argument, or a flag, with the names of the objects at paths. A cluster that does not
// answer offers no names.
func fromCluster(flags *genericclioptions.ConfigFlags, paths ...string) cobra.CompletionFunc {
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
			names = cl.names(ctx, namespace, paths...)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// names returns the names of the objects at paths, sorted; none of what cannot be listed.
func (c cluster) names(ctx context.Context, namespace string, paths ...string) (names []string) {
	for _, path := range paths {
		text, err := c.core.CoreV1().RESTClient().Get().AbsPath(strings.ReplaceAll(path, "NAMESPACE", namespace)).
			SetHeader("Accept", "application/json").Do(ctx).Raw()
		var list metav1.PartialObjectMetadataList
		if err != nil || json.Unmarshal(text, &list) != nil {
			continue
		}
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Invocation returns the name and the arguments of a command line. kubectl completes a plugin by kubectl_complete-NAME.
func Invocation(words []string) (name string, args []string) {
	name, args = filepath.Base(words[0]), words[1:]
	if plugin, ok := strings.CutPrefix(name, "kubectl_complete-"); ok {
		name, args = "kubectl-"+plugin, append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return name, args
}
