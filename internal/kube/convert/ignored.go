package convert

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
)

// Ignored returns each label, annotation and resource of a pod that has no effect in this version, by its field. Keys
// that are neither Tenon's nor listed in annotation.Supports belong to other software.
func Ignored(pod *corev1.Pod) []annotation.Ignored {
	resources := map[string]string{}
	for _, c := range containers(pod) {
		for _, amounts := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			for name := range amounts {
				resources[string(name)] = ""
			}
		}
	}
	return slices.Concat(
		ignored("metadata.labels", annotation.PodLabel, pod.Labels),
		ignored("metadata.annotations", annotation.PodAnnotation, pod.Annotations),
		ignored("spec.containers[*].resources", annotation.PodResource, resources),
	)
}

// IgnoredOfNode is Ignored for a node.
func IgnoredOfNode(node *corev1.Node) []annotation.Ignored {
	return slices.Concat(
		ignored("metadata.labels", annotation.NodeLabel, node.Labels),
		ignored("metadata.annotations", annotation.NodeAnnotation, node.Annotations),
	)
}

func ignored(field string, at annotation.Place, keys map[string]string) []annotation.Ignored {
	out := annotation.IgnoredKeys(at, slices.Collect(maps.Keys(keys)))
	for i := range out {
		out[i].Key = field + "[" + out[i].Key + "]"
	}
	return out
}
