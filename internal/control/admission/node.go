package admission

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Node returns warnings about a node's labels and annotations. It never refuses: a node must be able to register.
func Node(node *corev1.Node) Answer {
	var a Answer
	_, issues := annotation.ParseNodeLabels(node.Labels)
	for _, i := range issues {
		a.warn(labelField(i.Key), "%s%s", i.Text, map[annotation.IssueKind]string{
			annotation.Unusable: "; the label is ignored", annotation.AliasConflict: "; the alias is ignored",
		}[i.Kind])
	}
	if text, ok := node.Annotations[annotation.NodeReservation]; ok {
		r, warnings, err := annotation.ParseReservation(text)
		a.nodeValue(annotation.NodeReservation, r.ReservedCPUs, warnings, err)
	}
	if text, ok := node.Annotations[annotation.NodeSystemQoSResource]; ok {
		r, warnings, err := annotation.ParseSystemQoSResource(text)
		a.nodeValue(annotation.NodeSystemQoSResource, r.CPUSet, warnings, err)
	}
	if text, ok := node.Annotations[annotation.RawAllocatableKey]; ok {
		_, warnings, err := annotation.ParseRawAllocatable(text)
		a.nodeValue(annotation.RawAllocatableKey, "", warnings, err)
	}
	a.ignored(convert.IgnoredOfNode(node))
	return a
}

func (a *Answer) nodeValue(key, cpus string, warnings []annotation.Warning, err error) {
	field := annotationField(key)
	if err == nil {
		_, err = cpuset.ParseIDs(cpus)
	}
	if err != nil {
		a.warn(field, "%v; the annotation is ignored", err)
		return
	}
	a.values(field, warnings)
}
