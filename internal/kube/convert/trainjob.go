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
// training has the nodes, the image and the resources that the TrainJob names. With MPI, that step is the launcher, and
// the nodes are those of the replicated job named node.
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
	wanted, wants, err := unstructured.NestedFieldNoCopy(trainJob, "spec", "trainer", "numNodes")
	if err != nil {
		return nil, err
	}
	given, has, err := unstructured.NestedFieldNoCopy(runtime, "spec", "mlPolicy", "numNodes")
	if err != nil {
		return nil, err
	}
	_, isMPI, _ := unstructured.NestedMap(runtime, "spec", "mlPolicy", "mpi")
	launches, _, _ := unstructured.NestedBool(runtime, "spec", "mlPolicy", "mpi", "runLauncherAsNode")
	for _, one := range jobs {
		job, _ := one.(map[string]any)
		step, _, _ := unstructured.NestedString(job, "template", "metadata", "labels", ancestorStep)
		isNode := isMPI && job["name"] == "node"
		nodes, hasNodes := given, has && step == "trainer"
		if wants && (isNode || step == "trainer" && !isMPI) {
			nodes, hasNodes = wanted, true
		}
		if n, isNumber := nodes.(int64); isNumber && wants && isNode && launches {
			nodes = max(n-1, 1) // the launcher is one of them
		}
		if hasNodes {
			for _, field := range []string{"parallelism", "completions"} {
				err = errors.Join(err, unstructured.SetNestedField(job, nodes, "template", "spec", field))
			}
		}
		if step == "trainer" {
			err = errors.Join(err, train(job, trainJob, "image", "resourcesPerNode"))
		} else if isNode && launches {
			err = errors.Join(err, train(job, trainJob, "resourcesPerNode"))
		}
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

// train sets fields that a TrainJob has of the container named node of a job.
func train(job, trainJob map[string]any, fields ...string) error {
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
		for _, from := range fields {
			to := map[string]string{"image": "image", "resourcesPerNode": "resources"}[from]
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
