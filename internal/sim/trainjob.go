package sim

import (
	"cmp"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	trainerGroup   = "trainer.kubeflow.org"
	clusterRuntime = "ClusterTrainingRuntime"
	// ancestorStep is a label of the templates of a runtime: which step of a TrainJob they are.
	ancestorStep = "trainer.kubeflow.org/trainjob-ancestor-step"
)

// isRuntime reports whether objects of a kind are what TrainJobs are made of.
func isRuntime(kind schema.GroupVersionKind) bool {
	return kind.Group == trainerGroup && (kind.Kind == clusterRuntime || kind.Kind == "TrainingRuntime")
}

func isTrainJob(kind schema.GroupVersionKind) bool {
	return kind.Group == trainerGroup && kind.Kind == "TrainJob"
}

// jobSetOf returns the JobSet that the trainer makes of a TrainJob: that of its runtime, where the step of the training
// has the nodes, the image and the resources that the TrainJob names.
func (w *world) jobSetOf(u *unstructured.Unstructured) ([]map[string]any, error) {
	name, _, err := unstructured.NestedString(u.Object, "spec", "runtimeRef", "name")
	kind, _, err2 := unstructured.NestedString(u.Object, "spec", "runtimeRef", "kind")
	if err = errors.Join(err, err2); err != nil {
		return nil, err
	}
	kind = cmp.Or(kind, clusterRuntime)
	namespace := u.GetNamespace()
	if kind == clusterRuntime {
		namespace = metav1.NamespaceDefault // the input gives one to all objects
	}
	found, ok := w.operated.owners[ownerKey{trainerGroup, kind, namespace, name}].(*unstructured.Unstructured)
	if !ok {
		w.line(u, ": %s %s is not in the input", kind, name)
		return nil, nil
	}
	template, has, err := unstructured.NestedMap(found.Object, "spec", "template")
	if err != nil || !has {
		return nil, errors.Join(err, fmt.Errorf("%s %s: spec.template is missing", kind, name))
	}
	jobs, _, err := unstructured.NestedSlice(template, "spec", "replicatedJobs")
	if err != nil {
		return nil, fmt.Errorf("%s %s: spec.template.%w", kind, name, err)
	}
	nodes, hasNodes, err := unstructured.NestedFieldNoCopy(u.Object, "spec", "trainer", "numNodes")
	if err == nil && !hasNodes {
		nodes, hasNodes, err = unstructured.NestedFieldNoCopy(found.Object, "spec", "mlPolicy", "numNodes")
	}
	if err != nil {
		return nil, err
	}
	for _, one := range jobs {
		job, isMap := one.(map[string]any)
		step, _, _ := unstructured.NestedString(job, "template", "metadata", "labels", ancestorStep)
		if !isMap || step != "trainer" {
			continue
		}
		if hasNodes {
			for _, field := range []string{"parallelism", "completions"} {
				err = errors.Join(err, unstructured.SetNestedField(job, nodes, "template", "spec", field))
			}
		}
		err = errors.Join(err, train(job, u.Object))
	}
	if err != nil {
		return nil, err
	}
	spec, _ := template["spec"].(map[string]any)
	spec["replicatedJobs"] = jobs
	if suspended, given, _ := unstructured.NestedBool(u.Object, "spec", "suspend"); given {
		spec["suspend"] = suspended
	}
	return []map[string]any{{
		"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
		"metadata": map[string]any{"name": u.GetName()}, "spec": spec,
	}}, nil
}

// train sets what a TrainJob says of the container named node of a job.
func train(job, trainJob map[string]any) error {
	path := []string{"template", "spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(job, path...)
	if err != nil {
		return err
	}
	for _, one := range containers {
		container, _ := one.(map[string]any)
		if container["name"] != "node" {
			continue
		}
		for from, to := range map[string]string{"image": "image", "resourcesPerNode": "resources"} {
			value, has, err := unstructured.NestedFieldCopy(trainJob, "spec", "trainer", from)
			if err != nil {
				return err
			}
			if has {
				container[to] = value
			}
		}
	}
	if len(containers) == 0 {
		return nil
	}
	return unstructured.SetNestedSlice(job, containers, path...)
}
