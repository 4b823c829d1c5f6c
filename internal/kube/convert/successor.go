package convert

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
)

// Successor returns a copy of a pod without its place: without node, status, and the CPUs and devices that it has.
func Successor(pod *corev1.Pod) *corev1.Pod {
	next := pod.DeepCopy()
	next.ResourceVersion, next.DeletionTimestamp, next.Spec.NodeName, next.Status = "", nil, "", corev1.PodStatus{}
	maps.DeleteFunc(next.Annotations, func(key, _ string) bool {
		return annotation.SetByScheduler(key) || key == annotation.GPUMinorsKey
	})
	return next
}

// SuccessorTemplate returns what a Reservation for the successor of a pod reserves. A Reservation is not a member of a
// gang.
func SuccessorTemplate(pod *corev1.Pod) *corev1.PodTemplateSpec {
	next := Successor(pod)
	for _, key := range []string{annotation.PodGroup, annotation.CommunityPodGroup, annotation.LightweightGang} {
		delete(next.Labels, key)
	}
	delete(next.Annotations, annotation.GangName)
	delete(next.Annotations, annotation.SoftEvictionKey)
	next.Spec.SchedulingGroup, next.Spec.SchedulingGates, next.Spec.EphemeralContainers = nil, nil, nil
	return &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Labels: next.Labels, Annotations: next.Annotations,
	}, Spec: next.Spec}
}
