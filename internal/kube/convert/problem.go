package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
)

// Problem is something in an object that cannot be used and was left out, or whose effect is not what its writer
// expects.
type Problem struct {
	// Object is the kind and name, e.g. Node/n0.
	Object string
	// Key is the label, annotation or field; Value what it holds, cut to a length that fits a message.
	Key, Value string
	Text       string
	// Kind says what a reader does about it.
	Kind ProblemKind
}

// ProblemKind is a kind of Problem.
type ProblemKind uint8

// Kinds of problem.
const (
	// BadValue: treated as absent.
	BadValue ProblemKind = iota
	// BadNodeLabel: a node's policy label, treated as absent.
	BadNodeLabel
	// BadLabel: a label of another object, treated as absent.
	BadLabel
	// AliasConflict: key and alias differ; the canonical key counts.
	AliasConflict
	// BadTopology: the node's CPU topology contradicts itself.
	BadTopology
	// PartlyInForce: it counts, and not for all pods that it is about.
	PartlyInForce
)

// Field is where in the object the value stands: a label, an annotation or a field.
func (p Problem) Field() string {
	name, _, _ := strings.Cut(p.Key, "[")
	switch {
	case p.Kind == BadNodeLabel || p.Kind == BadLabel || p.Kind == AliasConflict || p.Kind == PartlyInForce:
		return "metadata.labels[" + p.Key + "]"
	case strings.Contains(name, "/"):
		return "metadata.annotations[" + p.Key + "]"
	}
	return p.Key
}

// String returns the object, the key and what is wrong.
func (p Problem) String() string { return fmt.Sprintf("%s: %s: %s", p.Object, p.Key, p.Text) }

const maxValue = 128

func cut(value string) string {
	if len(value) > maxValue {
		return value[:maxValue] + "…"
	}
	return value
}

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
