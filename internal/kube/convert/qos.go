package convert

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// PodQoS returns a pod's class of Koordinator, its band (of the label, else of spec.priority, else of the name of its
// PriorityClass, else NoBand) and its class of Kubernetes. Labels that cannot be used count as absent.
func PodQoS(pod *corev1.Pod) (qos.Class, qos.Band, qos.Kube) {
	class, _ := ParseClass(pod.Labels[annotation.QoSClass])
	return class, bandOf(pod), kubeClass(pod)
}

// ParseClass reads a QoS class whatever its case; ok is false when it is none.
func ParseClass(value string) (class qos.Class, ok bool) {
	if class, ok := qos.ParseClass(value); ok {
		return class, true
	}
	return qos.ParseClass(strings.ToUpper(value))
}

// labelledBand returns the band that a pod's label names; ok is false without one.
func labelledBand(labels map[string]string) (band qos.Band, ok bool) {
	return qos.ParseBand(strings.ToLower(labels[annotation.PriorityClass]))
}

func bandOf(pod *corev1.Pod) qos.Band {
	if band, ok := labelledBand(pod.Labels); ok {
		return band
	}
	if pod.Spec.Priority != nil {
		return qos.BandOf(*pod.Spec.Priority)
	}
	band, _ := qos.ParseBand(pod.Spec.PriorityClassName)
	return band
}

// kubeClass is what the API server wrote, or will write.
func kubeClass(pod *corev1.Pod) qos.Kube {
	switch pod.Status.QOSClass {
	case corev1.PodQOSGuaranteed:
		return qos.Guaranteed
	case corev1.PodQOSBurstable:
		return qos.Burstable
	case corev1.PodQOSBestEffort:
		return qos.BestEffort
	}
	if resource.IsPodLevelResourcesSet(pod) {
		return classOf(pod.Spec.Resources)
	}
	first, result := true, qos.BestEffort
	for _, c := range containers(pod) {
		class := classOf(&c.Resources)
		switch {
		case first:
			first, result = false, class
		case class != result: // one container of another class makes the pod Burstable
			return qos.Burstable
		}
	}
	return result
}

// classOf is the class of a pod with these resources alone. A limit without a request is a request of the same amount.
func classOf(r *corev1.ResourceRequirements) qos.Kube {
	used, equal := false, true
	for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		limit, limited := r.Limits[name]
		request, requested := r.Requests[name]
		limited = limited && !limit.IsZero()
		requested = requested && !request.IsZero()
		used = used || limited || requested
		equal = equal && limited && (!requested || request.Cmp(limit) == 0)
	}
	switch {
	case !used:
		return qos.BestEffort
	case equal:
		return qos.Guaranteed
	}
	return qos.Burstable
}
