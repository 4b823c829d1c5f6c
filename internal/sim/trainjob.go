package sim

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tenon-project/tenon/internal/kube/convert"
)

const trainerGroup = "trainer.kubeflow.org"

// isRuntime reports whether objects of a kind are what TrainJobs are made of.
func isRuntime(kind schema.GroupVersionKind) bool {
	return kind.Group == trainerGroup && (kind.Kind == convert.ClusterTrainingRuntime || kind.Kind == "TrainingRuntime")
}

func isTrainJob(kind schema.GroupVersionKind) bool {
	return kind.Group == trainerGroup && kind.Kind == "TrainJob"
}

// jobSetOf returns the JobSet that the trainer makes of a TrainJob; none where the input lacks its runtime.
func (w *world) jobSetOf(u *unstructured.Unstructured) ([]map[string]any, error) {
	kind, name, err := convert.TrainingRuntime(u.Object)
	if err != nil {
		return nil, err
	}
	namespace := u.GetNamespace()
	if kind == convert.ClusterTrainingRuntime {
		namespace = metav1.NamespaceDefault // the input gives one to all objects
	}
	found, ok := w.operated.owners[ownerKey{trainerGroup, kind, namespace, name}].(*unstructured.Unstructured)
	if !ok {
		w.line(u, ": %s %s is not in the input", kind, name)
		return nil, nil
	}
	jobSet, err := convert.TrainJobSet(u.Object, found.Object)
	if err != nil {
		return nil, err
	}
	return []map[string]any{jobSet}, nil
}
