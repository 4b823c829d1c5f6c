package object

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Node returns a node with labels, and with what pods may have of it from names and quantities in turn.
func Node(name string, labels map[string]string, allocatable ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: cluster(name)}
	maps.Copy(n.Labels, labels)
	n.Status.Allocatable = List(allocatable...)
	return n
}

func cluster(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}
}

// Annotate sets annotations from keys and values in turn; an empty value sets none.
func Annotate(o metav1.Object, pairs ...string) {
	annotations := o.GetAnnotations()
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			annotations[pairs[i]] = pairs[i+1]
		}
	}
}

// Topology returns the NodeResourceTopology of a node with a machine (nil: with none) and annotations.
func Topology(node string, m *topo.Machine, annotations map[string]string) *v1alpha2.NodeResourceTopology {
	t := &v1alpha2.NodeResourceTopology{ObjectMeta: cluster(node)}
	if m != nil {
		t.Annotations[annotation.CPUTopology] = convert.Topology(m).String()
	}
	maps.Copy(t.Annotations, annotations)
	return t
}

// NodeSLO returns the NodeSLO of a node whose best-effort pods are suppressed up to a use of the node in percent.
func NodeSLO(node string, policy slo.CPUSuppressPolicy, percent int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": slo.GroupVersion().String(), "kind": slo.NodeSLOKind,
		"metadata": map[string]any{"name": node},
		"spec": map[string]any{"resourceUsedThresholdWithBE": map[string]any{
			"enable": true, "cpuSuppressThresholdPercent": percent, "cpuSuppressPolicy": string(policy),
		}},
	}}
}

// Quota returns an ElasticQuota named "namespace/name", with labels from keys and values in turn.
func Quota(name string, least, most corev1.ResourceList, labels ...string) *v1alpha1.ElasticQuota {
	q := &v1alpha1.ElasticQuota{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupName + "/v1alpha1", Kind: "ElasticQuota"},
		ObjectMeta: meta(name), Spec: v1alpha1.ElasticQuotaSpec{Min: least, Max: most},
	}
	for i := 0; i < len(labels); i += 2 {
		q.Labels[labels[i]] = labels[i+1]
	}
	return q
}

// PodGroup returns a PodGroup named "namespace/name" of at least so many members.
func PodGroup(name string, least int32) *v1alpha1.PodGroup {
	return &v1alpha1.PodGroup{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupName + "/v1alpha1", Kind: "PodGroup"},
		ObjectMeta: meta(name), Spec: v1alpha1.PodGroupSpec{MinMember: least},
	}
}
