package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/nearest"
	reservationv1alpha1 "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
)

const completionLimit = 3 * time.Second

// pathsOf returns where the objects of a kind are listed, by all groups that a cluster may serve; NAMESPACE is the
// current one.
func pathsOf(kind string) (paths []string) {
	const namespaced = "/namespaces/NAMESPACE/"
	switch kind {
	case "node", "namespace":
		return []string{"/api/v1/" + kind + "s"}
	case "pod":
		return []string{"/api/v1" + namespaced + "pods"}
	case "job":
		return []string{"/apis/batch/v1" + namespaced + "jobs"}
	case "quota":
		for _, group := range v1alpha1.Groups() {
			paths = append(paths, "/apis/"+group+"/"+v1alpha1.Resource(group).Version+"/elasticquotas")
		}
	case "reservation":
		r := reservationv1alpha1.Resource()
		paths = []string{"/apis/" + r.Group + "/" + r.Version + "/" + r.Resource}
	case "gang":
		for _, group := range v1alpha1.PodGroupGroups() {
			r := v1alpha1.PodGroupResource(group)
			paths = append(paths, "/apis/"+r.Group+"/"+r.Version+namespaced+r.Resource)
		}
	default:
		return []string{"/apis/apps/v1" + namespaced + kind + "s"}
	}
	return paths
}

// completeNames completes the name of an object of a kind. A cluster that does not answer offers no names.
func completeNames(flags *genericclioptions.ConfigFlags, kind string) cobra.CompletionFunc {
	return completeOf(flags, kind, nameOf)
}

func nameOf(o *metav1.PartialObjectMetadata) string { return o.Name }

// completeTrees completes the id of a tree of quotas.
func completeTrees(flags *genericclioptions.ConfigFlags) cobra.CompletionFunc {
	return completeOf(flags, "quota", func(o *metav1.PartialObjectMetadata) string {
		return o.Labels[annotation.QuotaTreeID]
	})
}

func completeOf(flags *genericclioptions.ConfigFlags, kind string, word func(*metav1.PartialObjectMetadata) string,
) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completionLimit)
		defer cancel()
		var words []string
		cl, err := connect(flags)
		namespace, _, noNamespace := flags.ToRawKubeConfigLoader().Namespace()
		if err == nil && noNamespace == nil {
			words = cl.words(ctx, namespace, kind, word)
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFirst completes the first argument alone.
func completeFirst(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(c, args, word)
	}
}

// completeArgument completes what named reads: NAME of the first kind, KIND/NAME, and KIND NAME.
func completeArgument(flags *genericclioptions.ConfigFlags, kinds ...string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		given, _, separated := strings.Cut(word, "/")
		kind := singular(given, kinds)
		switch {
		case len(args) == 1 && singular(args[0], kinds) != "":
			return completeNames(flags, singular(args[0], kinds))(c, nil, word)
		case len(args) > 0, separated && kind == "":
			return nil, cobra.ShellCompDirectiveNoFileComp
		case separated:
			names, directive := completeNames(flags, kind)(c, nil, word)
			for i := range names {
				names[i] = given + "/" + names[i]
			}
			return names, directive
		}
		names, directive := completeNames(flags, kinds[0])(c, nil, word)
		for _, k := range kinds {
			if strings.HasPrefix(k, word) { // a name follows without a space
				names, directive = append(names, k+"/"), directive|cobra.ShellCompDirectiveNoSpace
			}
		}
		return names, directive
	}
}

// words returns a word of each object of a kind, sorted; none of what cannot be listed.
func (c cluster) words(ctx context.Context, namespace, kind string, word func(*metav1.PartialObjectMetadata) string,
) (words []string) {
	for _, path := range pathsOf(kind) {
		text, err := c.core.CoreV1().RESTClient().Get().AbsPath(strings.ReplaceAll(path, "NAMESPACE", namespace)).
			SetHeader("Accept", "application/json").Do(ctx).Raw()
		var list metav1.PartialObjectMetadataList
		if err != nil || json.Unmarshal(text, &list) != nil {
			continue
		}
		for i := range list.Items {
			words = append(words, word(&list.Items[i]))
		}
	}
	slices.Sort(words)
	return slices.DeleteFunc(slices.Compact(words), func(w string) bool { return w == "" })
}

// Invocation returns the name and the arguments of a command line. kubectl completes a plugin by kubectl_complete-NAME.
func Invocation(words []string) (name string, args []string) {
	name, args = filepath.Base(words[0]), words[1:]
	if plugin, ok := strings.CutPrefix(name, "kubectl_complete-"); ok {
		name, args = "kubectl-"+plugin, append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return name, args
}

// suggest returns ", did you mean …?" for the known name closest to the given one, "" when none is similar or two are
// equally close.
func suggest(name string, known []string) string {
	best := nearest.Word(name, known)
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", best)
}

// named reads NAME, KIND/NAME or KIND NAME, where kinds are those that are allowed and NAME alone is of the first; ""
// for no arguments.
func named(args []string, kinds ...string) (kind, name string, err error) {
	given := kinds[0]
	switch len(args) {
	case 0:
		return given, "", nil
	case 1:
		name = args[0]
		if k, n, ok := strings.Cut(args[0], "/"); ok {
			given, name = k, n
		}
	case 2:
		given, name = args[0], args[1]
	}
	kind = singular(given, kinds)
	switch {
	case len(args) > 2 || len(args) == 2 && kind == "":
		return "", "", usagef("too many arguments: specify one %s, or none for all", kinds[0])
	case kind == "":
		return "", "", usagef("unknown kind in %q: use %s", args[0], strings.Join(kinds, ", "))
	case name == "":
		return "", "", usagef("%q names no %s", strings.Join(args, " "), kind)
	}
	return kind, name, nil
}

// singular maps what kubectl accepts (pod, pods, po) to the kind, "" when it is none of kinds.
func singular(kind string, kinds []string) string {
	kind = strings.ToLower(kind)
	if full, ok := map[string]string{
		"po": "pod", "no": "node", "deploy": "deployment", "rs": "replicaset", "sts": "statefulset", "ds": "daemonset",
		"podgroup": "gang", "elasticquota": "quota",
	}[kind]; ok {
		kind = full
	}
	if slices.Contains(kinds, kind) {
		return kind
	}
	if kind = strings.TrimSuffix(kind, "s"); slices.Contains(kinds, kind) {
		return kind
	}
	return ""
}
