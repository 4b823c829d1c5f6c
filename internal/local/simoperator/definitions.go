package simoperator

import (
	"context"
	_ "embed"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/local/install"
)

// kind is a kind of objects. Its resource is the kind in lower case with an s.
type kind struct {
	group, version, kind string
	cluster              bool // its objects are in no namespace
}

func (k kind) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.group, Version: k.version, Resource: strings.ToLower(k.kind) + "s"}
}

// kinds are those whose objects users create. Of MPIJobs there can be one version only, for its objects differ.
func kinds() (out []kind) {
	for group, names := range map[string][]string{
		"kubeflow.org/v1":               {"PyTorchJob", "TFJob", "XGBoostJob", "JAXJob", "PaddleJob"},
		"kubeflow.org/v2beta1":          {"MPIJob"},
		"trainer.kubeflow.org/v1alpha1": {"TrainJob", "TrainingRuntime"},
		"ray.io/v1":                     {"RayCluster", "RayJob", "RayService"},
		"sparkoperator.k8s.io/v1beta2":  {"SparkApplication"},
		"jobset.x-k8s.io/v1alpha2":      {"JobSet"},
		"leaderworkerset.x-k8s.io/v1":   {"LeaderWorkerSet"},
	} {
		group, version, _ := strings.Cut(group, "/")
		for _, name := range names {
			out = append(out, kind{group, version, name, false})
		}
	}
	out = append(out, kind{"trainer.kubeflow.org", "v1alpha1", "ClusterTrainingRuntime", true})
	slices.SortFunc(out, func(a, b kind) int { return strings.Compare(a.group+a.kind, b.group+b.kind) })
	return out
}

// created are the other kinds of which objects are created.
func created() []kind {
	return []kind{
		{"", "v1", "Pod", false},
		{"batch", "v1", "Job", false},
		{"apps", "v1", "StatefulSet", false},
		{"scheduling.x-k8s.io", "v1alpha1", "PodGroup", false},
	}
}

//go:embed definitions.yaml
var more []byte

// Install installs the definitions of the kinds that the cluster lacks, and waits until it serves them.
func Install(ctx context.Context, config *rest.Config) error {
	applier, err := install.NewApplier(config)
	if err != nil {
		return err
	}
	var definitions []*unstructured.Unstructured
	for _, k := range kinds() {
		definitions = append(definitions, definition(k))
	}
	if definitions, err = applier.Missing(ctx, definitions); err != nil {
		return err
	}
	if err := applier.Apply(ctx, definitions); err != nil {
		return err
	}
	if err := applier.AwaitEstablished(ctx, definitions); err != nil {
		return err
	}
	objects, err := install.Parse(more)
	if err != nil {
		return err
	}
	return applier.Apply(ctx, objects)
}

// definition returns the definition of a kind without a schema: each field is kept as it is.
func definition(k kind) *unstructured.Unstructured {
	plural, scope := k.resource().Resource, "Namespaced"
	if k.cluster {
		scope = "Cluster"
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{
			"name": plural + "." + k.group,
			// Names of Kubernetes' own groups need it.
			"annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, simulated"},
		},
		"spec": map[string]any{
			"group": k.group, "scope": scope,
			"names": map[string]any{"plural": plural, "singular": strings.ToLower(k.kind), "kind": k.kind},
			"versions": []any{map[string]any{
				"name": k.version, "served": true, "storage": true, "schema": map[string]any{
					"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				},
			}},
		},
	}}
}
