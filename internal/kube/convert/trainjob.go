package convert

import (
	"cmp"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ClusterTrainingRuntime is the kind of the runtime of a TrainJob that names none.
const ClusterTrainingRuntime = "ClusterTrainingRuntime"

// ancestorStep is a label of the templates of a runtime: which step of a TrainJob they are.
const ancestorStep = "trainer.kubeflow.org/trainjob-ancestor-step"

// TrainingRuntime returns the kind and the name of the runtime of a TrainJob.
func TrainingRuntime(trainJob map[string]any) (kind, name string, err error) {
	name, _, err = unstructured.NestedString(trainJob, "spec", "runtimeRef", "name")
	kind, _, err2 := unstructured.NestedString(trainJob, "spec", "runtimeRef", "kind")
	return cmp.Or(kind, ClusterTrainingRuntime), name, errors.Join(err, err2)
}

// TrainJobSet returns the JobSet that the trainer makes of a TrainJob: that of its runtime, where the step of the
// training has the nodes, the image and the resources that the TrainJob names.
func TrainJobSet(trainJob, runtime map[string]any) (map[string]any, error) {
	kind, name, err := TrainingRuntime(trainJob)
	if err != nil {
		return nil, err
	}
	template, has, err := unstructured.NestedMap(runtime, "spec", "template")
	if err != nil || !has {
		return nil, errors.Join(err, fmt.Errorf("%s %s: spec.template is missing", kind, name))
	}
	jobs, _, err := unstructured.NestedSlice(template, "spec", "replicatedJobs")
	if err != nil {
		return nil, fmt.Errorf("%s %s: spec.template.%w", kind, name, err)
	}
	nodes, hasNodes, err := unstructured.NestedFieldNoCopy(trainJob, "spec", "trainer", "numNodes")
	if err == nil && !hasNodes {
		nodes, hasNodes, err = unstructured.NestedFieldNoCopy(runtime, "spec", "mlPolicy", "numNodes")
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
		err = errors.Join(err, train(job, trainJob))
	}
	if err != nil {
		return nil, err
	}
	spec, _ := template["spec"].(map[string]any)
	spec["replicatedJobs"] = jobs
	if suspended, given, _ := unstructured.NestedBool(trainJob, "spec", "suspend"); given {
		spec["suspend"] = suspended
	}
	owner, _, err := unstructured.NestedString(trainJob, "metadata", "name")
	return map[string]any{
		"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
		"metadata": map[string]any{"name": owner}, "spec": spec,
	}, err
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
