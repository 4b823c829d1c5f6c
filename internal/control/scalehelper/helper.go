package scalehelper

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
)

// newHelper returns the helper of a pod, which requires something of a node that the excluded nodes do not have.
func newHelper(p *corev1.Pod, elsewhere corev1.NodeSelectorRequirement) *corev1.Pod {
	requests := resource.PodRequests(p, resource.PodResourcesOptions{})
	h := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: "scale-helper-" + string(p.UID),
			Labels:      map[string]string{annotation.ScaleHelper: string(p.UID)},
			Annotations: map[string]string{annotation.ScaleHelper: p.Namespace + "/" + p.Name},
		},
		Spec: corev1.PodSpec{
			SchedulerName: SchedulerName, NodeSelector: p.Spec.NodeSelector, Tolerations: p.Spec.Tolerations,
			Affinity:                      &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(int64(0)),
			// What the level restricted of Pod Security asks for. The container never starts.
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   ptr.To(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "none", Image: "none",
				Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	var terms []corev1.NodeSelectorTerm // one of them must hold
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		required := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.DeepCopy()
		for _, t := range required.NodeSelectorTerms {
			if len(t.MatchExpressions)+len(t.MatchFields) > 0 { // a term without rules matches no node
				t.MatchExpressions = append(t.MatchExpressions, elsewhere)
				terms = append(terms, t)
			}
		}
	} else {
		terms = []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{elsewhere}}}
	}
	h.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: terms,
	}
	return h
}
