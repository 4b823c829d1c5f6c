package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// Checks are what the verb check asks of the components, which the command line does not know.
type Checks struct {
	// Config checks a document of a configuration file, by its kind, and returns the settings that it gives, if the
	// kind has any.
	Config map[string]func(*strict.Document) (strict.Settings, error)
	// Manifests returns what the webhooks refuse, a line each. An error is of what cannot be read.
	Manifests func(ctx context.Context, files []string, in io.Reader, warn io.Writer) ([]string, error)
}

// NewCheck returns the verb check.
func NewCheck(streams genericiooptions.IOStreams, checks Checks) *cobra.Command {
	var effective bool
	var schema string
	c := help.Command(texts, "check", &cobra.Command{
		ValidArgs: []string{"config", "manifest", "values"}, // and cluster, which is a verb below
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 2 || !slices.Contains(c.ValidArgs, args[0]) {
				return usagef("specify config, manifest or values, and files")
			}
			var errs []error
			if args[0] == "manifest" {
				refused, err := checks.Manifests(c.Context(), args[1:], streams.In, streams.ErrOut)
				if errs = append(errs, err); len(refused) > 0 {
					errs = append(errs, errors.New(strings.Join(refused, "\n")))
				}
			} else {
				for _, file := range args[1:] {
					settings, err := checks.file(args[0], file, schema)
					errs = append(errs, err)
					for _, text := range settings.Warnings {
						say(streams.ErrOut, "warning: %s\n", text)
					}
					for _, s := range settings.All {
						if effective {
							say(streams.Out, "%-26s %-40s %s\n", s.Field, s.Value, s.Origin)
						}
					}
				}
			}
			if err := errors.Join(errs...); err != nil {
				return usagef("%w", err)
			}
			_, err := fmt.Fprintf(streams.Out, "%s: ok\n", strings.Join(args[1:], ", "))
			return err
		},
	})
	c.Flags().BoolVar(&effective, "effective", false, "print every setting of a file with its value and origin")
	c.Flags().StringVar(&schema, "schema", "deploy/chart/values.schema.json", "schema `file` of the chart's values")
	return c
}

// file checks all documents of a file.
func (c *Checks) file(what, name, schema string) (settings strict.Settings, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return settings, err
	}
	all, err := strict.Parse(name, text)
	errs := []error{err}
	for i, d := range all {
		check := c.Config[d.Kind()]
		switch {
		case what == "values":
			err = checkValues(d, schema)
		case check == nil:
			err = d.Problem("kind", "%q is not a configuration file: use %s", d.Kind(),
				strings.Join(slices.Sorted(maps.Keys(c.Config)), ", "))
		default:
			settings, err = check(d)
		}
		if err != nil && len(all) > 1 {
			err = fmt.Errorf("document %d: %w", i+1, err)
		}
		errs = append(errs, err)
	}
	return settings, errors.Join(errs...)
}

func checkValues(d *strict.Document, schema string) error {
	text, err := os.ReadFile(schema)
	if err != nil {
		return fmt.Errorf("--schema: %w: it is in the chart", err)
	}
	var definition spec.Schema
	if err := json.Unmarshal(text, &definition); err != nil {
		return fmt.Errorf("--schema %s: %w", schema, err)
	}
	permitParts(&definition)
	var values any
	problems := d.Decode("", &values)
	if len(problems) > 0 {
		return problems
	}
	for _, wrong := range validate.NewSchemaValidator(&definition, nil, "", strfmt.Default).Validate(values).Errors {
		field, says, _ := strings.Cut(wrong.Error(), " in body ")
		problems = append(problems, d.Problem(strings.TrimPrefix(field, "."), "%s", says))
	}
	_, err = convert.ReadWorkloadRules(d, "manager."+convert.WorkloadRules)
	return errors.Join(problems.Err(), err)
}

// permitParts makes a schema accept files that have a part of the values: Helm adds the defaults of the others before
// it checks them.
func permitParts(schema *spec.Schema) {
	schema.Required = nil
	for name, property := range schema.Properties {
		permitParts(&property)
		schema.Properties[name] = property
	}
}

func newCheckCluster(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, doctor Doctor,
) *cobra.Command {
	return newDiagnosis("check-cluster", flags, streams, func(ctx context.Context, c cluster) (view.Diagnosis, error) {
		objects, err := c.beforeInstallation(ctx, func(ctx context.Context, node string) ([]byte, error) {
			return c.core.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").
				Suffix("metrics").DoRaw(ctx)
		})
		if err != nil {
			return view.Diagnosis{}, err
		}
		return doctor.API.Cluster(objects), nil
	})
}

// newDiagnosis returns a verb that prints what a cluster lacks.
func newDiagnosis(name string, flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams,
	diagnose func(context.Context, cluster) (view.Diagnosis, error),
) *cobra.Command {
	var format string
	c := help.Command(texts, name, &cobra.Command{
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := connect(flags)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), 30*time.Second)
			defer cancel()
			d, err := diagnose(ctx, cl)
			if err != nil {
				return err
			}
			return printChecks(streams.Out, format, &d)
		},
	})
	outputFlag(c, &format)
	return c
}

// made are the kinds that an installation makes.
func made() []authorizationv1.ResourceAttributes {
	return []authorizationv1.ResourceAttributes{
		{Resource: "namespaces"},
		{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
		{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
		{Group: "scheduling.k8s.io", Resource: "priorityclasses"},
		{Group: "apps", Resource: "daemonsets", Namespace: installedIn()},
		{Group: "apps", Resource: "deployments", Namespace: installedIn()},
	}
}

// mostKubelets is how many kubelets are asked at most.
const mostKubelets = 8

// cgroupVersions asks a node of each kind of system for its version of cgroups. A kubelet that does not say it is left
// out.
func cgroupVersions(ctx context.Context, nodes []corev1.Node, metrics kubeletMetrics) map[string]string {
	type system struct{ image, kernel, kubelet, runtime string }
	asked, versions := map[system]bool{}, map[string]string{}
	for i := range nodes {
		info := &nodes[i].Status.NodeInfo
		kind := system{info.OSImage, info.KernelVersion, info.KubeletVersion, info.ContainerRuntimeVersion}
		if asked[kind] || len(asked) == mostKubelets {
			continue
		}
		asked[kind] = true
		bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
		text, err := metrics(bounded, nodes[i].Name)
		cancel()
		for line := range strings.Lines(string(text)) {
			if version, found := strings.CutPrefix(line, "kubelet_cgroup_version "); found && err == nil {
				versions[nodes[i].Name] = strings.TrimSpace(version)
			}
		}
	}
	return versions
}

// kubeletMetrics returns the metrics of the kubelet of a node.
type kubeletMetrics func(ctx context.Context, node string) ([]byte, error)

// beforeInstallation reads what the checks need. What the caller may not read is among what is denied.
func (c cluster) beforeInstallation(ctx context.Context, metrics kubeletMetrics) (o convert.ClusterObjects, err error) {
	o.Namespace.Name = installedIn()
	version, err := c.core.Discovery().ServerVersion()
	if err != nil {
		return o, fmt.Errorf("ask for the version: %w", err)
	}
	o.Version = version.GitVersion
	resources, err := c.core.Discovery().ServerResourcesForGroupVersion("admissionregistration.k8s.io/v1")
	if err != nil {
		return o, fmt.Errorf("ask what is served: %w", err)
	}
	o.Policies = slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool {
		return r.Name == "validatingadmissionpolicies"
	})
	for _, a := range made() {
		a.Verb = "create"
		answer, err := c.core.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a},
			}, metav1.CreateOptions{})
		if err != nil {
			return o, fmt.Errorf("ask for your rights: %w", err)
		}
		if !answer.Status.Allowed {
			o.Denied = append(o.Denied, "create "+a.Resource)
		}
	}
	nodes, err := c.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("list nodes: %w", err)
	}
	o.Nodes, o.Cgroups = nodes.Items, cgroupVersions(ctx, nodes.Items, metrics)
	namespace, err := c.core.CoreV1().Namespaces().Get(ctx, o.Namespace.Name, metav1.GetOptions{})
	if err == nil {
		o.Namespace = *namespace
	} else if !apierrors.IsNotFound(err) {
		return o, fmt.Errorf("read the namespace: %w", err)
	}
	o.CRDs = map[string]string{}
	for kind, take := range map[schema.GroupVersionResource]func(metav1.Object){
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}: func(m metav1.Object) {
			release := m.GetAnnotations()["meta.helm.sh/release-namespace"] + "/" +
				m.GetAnnotations()["meta.helm.sh/release-name"]
			if release == "/" {
				release = ""
			}
			o.CRDs[m.GetName()] = release
		},
		{Group: "apps", Version: "v1", Resource: "daemonsets"}: func(m metav1.Object) {
			o.Programs = append(o.Programs, m.GetNamespace()+"/"+m.GetName())
		},
		{Group: "apps", Version: "v1", Resource: "deployments"}: func(m metav1.Object) {
			o.Programs = append(o.Programs, m.GetNamespace()+"/"+m.GetName())
		},
	} {
		list, err := c.dynamic.Resource(kind).List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) {
			o.Denied = append(o.Denied, "list "+kind.Resource)
			continue
		}
		if err != nil {
			return o, fmt.Errorf("list %s: %w", kind.Resource, err)
		}
		for i := range list.Items {
			take(&list.Items[i])
		}
	}
	slices.Sort(o.Programs)
	slices.Sort(o.Denied)
	return o, nil
}
