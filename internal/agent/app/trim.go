package app

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/internal/kube/convert"
)

// trimmer returns a function that drops, before a pod is cached, the fields that the agent does not read: most of it,
// where pods have sidecars and long environments. Pods of schedulers that are not trusted also lose the labels and
// annotations of Tenon. The function returns a convert.Pod.
func trimmer(schedulers *convert.Schedulers) cache.TransformFunc {
	return func(obj any) (any, error) {
		if pod, ok := obj.(*corev1.Pod); ok {
			return convert.ReadPod(schedulers.Trusted(trim(pod))), nil
		}
		return obj, nil
	}
}

func trim(pod *corev1.Pod) *corev1.Pod {
	pod.ManagedFields = nil
	pod.OwnerReferences = slices.DeleteFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind != "DaemonSet"
	})
	delete(pod.Annotations, corev1.LastAppliedConfigAnnotation) // the object once more
	s := &pod.Spec
	*s = corev1.PodSpec{
		NodeName: s.NodeName, Priority: s.Priority, PriorityClassName: s.PriorityClassName,
		SchedulerName: s.SchedulerName,
		Overhead:      s.Overhead, Resources: s.Resources, RestartPolicy: s.RestartPolicy, HostNetwork: s.HostNetwork,
		ResourceClaims:      s.ResourceClaims,
		InitContainers:      trimContainers(s.InitContainers),
		Containers:          trimContainers(s.Containers),
		EphemeralContainers: s.EphemeralContainers,
	}
	for i := range s.EphemeralContainers {
		c := &s.EphemeralContainers[i].EphemeralContainerCommon
		*c = corev1.EphemeralContainerCommon{Name: c.Name, Resources: c.Resources}
	}
	return pod
}

func trimContainers(all []corev1.Container) []corev1.Container {
	for i := range all {
		c := &all[i]
		*c = corev1.Container{
			Name: c.Name, Resources: c.Resources, ResizePolicy: c.ResizePolicy,
			RestartPolicy: c.RestartPolicy,
		}
	}
	return all
}
