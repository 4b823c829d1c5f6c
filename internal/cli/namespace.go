package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

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
	case "explain", "gang", "queue", "capacity", "whatif", "make-room", "status":
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
