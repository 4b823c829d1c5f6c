package admission

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
)

// Mutate returns a pod that is created as the webhook changes it, and warnings of the changes that its creator should
// know. The pod itself is not changed. Annotations that only a scheduler writes are removed: a copied manifest or a
// restored backup must not bring an allocation in. A pod with a policy of volcano.sh/numa-topology-policy must be
// Guaranteed: a limit that is missing is its request. (A missing request is the limit: the API server sees to that.)
// Requests for devices get canonical names and the number of GPUs.
func Mutate(pod *corev1.Pod, kinds device.Kinds) (*corev1.Pod, Answer) {
	var a Answer
	out := pod.DeepCopy()
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		if annotation.SetByScheduler(key) {
			delete(out.Annotations, key)
			a.warn(annotationField(key), "removed: it is set by the scheduler")
		}
	}
	if wantsGuaranteed(pod) {
		for field, c := range containers(out) {
			a.limits(field, &c.Resources)
		}
	}
	nameDevices(out, kinds)
	return out, a
}

// limits adds the limits of CPU and memory that a container lacks.
func (a *Answer) limits(field string, r *corev1.ResourceRequirements) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, requested := r.Requests[name]
		if _, limited := r.Limits[name]; limited || !requested {
			continue
		}
		if r.Limits == nil {
			r.Limits = corev1.ResourceList{}
		}
		r.Limits[name] = request
		a.warn(field+".resources.limits["+string(name)+"]", "set to the request %s: %s asks for a Guaranteed pod",
			request.String(), annotation.VolcanoTopologyPolicy)
	}
}

func wantsGuaranteed(pod *corev1.Pod) bool {
	text, ok := pod.Annotations[annotation.VolcanoTopologyPolicy]
	if !ok {
		return false
	}
	policy, _, err := annotation.ParseVolcanoTopologyPolicy(text)
	return err == nil && policy != annotation.TopologyNone
}
