package admission

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/why"
)

// volcano checks volcano.sh/numa-topology-policy: a pod with a policy other than none must be Guaranteed (seed 004),
// and whole CPUs in every container are what its kubelet can pin.
func (a *Answer) volcano(pod *corev1.Pod) {
	policy, ok := parsed(a, pod.Annotations, annotation.VolcanoTopologyPolicy, annotation.ParseVolcanoTopologyPolicy)
	if !ok {
		return
	}
	a.oneTopologyPolicy(pod, policy)
	if policy == annotation.TopologyNone {
		return
	}
	for field, c := range containers(pod) {
		a.guaranteed(field, pod.Annotations[annotation.VolcanoTopologyPolicy], &c.Resources)
	}
}

func (a *Answer) oneTopologyPolicy(pod *corev1.Pod, policy annotation.NUMATopologyPolicy) {
	text, ok := pod.Annotations[annotation.NUMATopologySpecKey]
	if !ok {
		return
	}
	spec, _, err := annotation.ParseNUMATopologySpec(text)
	// topologySpec reports what cannot be read.
	if err == nil && spec.NUMATopologyPolicy != "" && spec.NUMATopologyPolicy != policy {
		a.refuse(why.BadAnnotation, annotationField(annotation.VolcanoTopologyPolicy),
			"conflicting values for %s and its alias %s: %s and %s",
			annotation.NUMATopologySpecKey, annotation.VolcanoTopologyPolicy, spec.NUMATopologyPolicy, policy)
	}
}

func (a *Answer) guaranteed(container, policy string, r *corev1.ResourceRequirements) {
	cpu := r.Requests.Cpu()
	if cpu.MilliValue() == 0 {
		cpu = r.Limits.Cpu()
	}
	if milli := cpu.MilliValue(); milli == 0 || milli%1000 != 0 {
		a.refuse(why.CPURequestNotInteger, container+".resources.requests[cpu]",
			"%s %s needs a whole number of CPUs in every container, 1 or more: it is %dm",
			annotation.VolcanoTopologyPolicy, policy, milli)
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, requested := r.Requests[name]
		limit, limited := r.Limits[name]
		switch {
		case requested && limited && request.Cmp(limit) != 0:
			a.refuse(why.RequestLimitMismatch, container+".resources.limits["+string(name)+"]",
				"%s %s needs a Guaranteed pod: the request %s must equal the limit %s",
				annotation.VolcanoTopologyPolicy, policy,
				request.String(), limit.String())
		case !requested && !limited && name == corev1.ResourceMemory:
			a.refuse(why.RequestLimitMismatch, container+".resources.limits[memory]",
				"%s %s needs a Guaranteed pod: state a memory limit", annotation.VolcanoTopologyPolicy, policy)
		}
	}
}
