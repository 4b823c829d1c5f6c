package convert

import (
	"fmt"
	"iter"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"
)

type field struct {
	list string // initContainers or containers
	i    int
}

func (f field) isInit() bool { return f.list == "initContainers" }

func (f field) String() string { return "spec." + f.list + "[" + strconv.Itoa(f.i) + "]" }

func containers(pod *corev1.Pod) iter.Seq2[field, *corev1.Container] {
	return func(yield func(field, *corev1.Container) bool) {
		for i := range pod.Spec.InitContainers {
			if !yield(field{"initContainers", i}, &pod.Spec.InitContainers[i]) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(field{"containers", i}, &pod.Spec.Containers[i]) {
				return
			}
		}
	}
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func requestOf(r *corev1.ResourceRequirements) int64 {
	return requested(r, corev1.ResourceCPU, milliOf)
}

func milliOf(q apiresource.Quantity) int64 { return q.MilliValue() }

func valueOf(q apiresource.Quantity) int64 { return q.Value() }

// requested is a request in the unit of value; a limit without a request is one.
func requested(r *corev1.ResourceRequirements, name corev1.ResourceName, value func(apiresource.Quantity) int64) int64 {
	q, ok := r.Requests[name]
	if !ok {
		q = r.Limits[name]
	}
	return value(q)
}

func limitOf(r *corev1.ResourceRequirements) int64 {
	return milliOf(r.Limits[corev1.ResourceCPU])
}

// together adds up an amount over a pod's containers as the scheduler does: sidecars run beside everything that starts
// after them, other init containers run alone.
func together(pod *corev1.Pod, amount func(*corev1.Container) int64) int64 {
	var sum, sidecars, peak int64
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if isSidecar(c) {
			sidecars += amount(c)
			peak = max(peak, sidecars)
			continue
		}
		peak = max(peak, sidecars+amount(c))
	}
	for i := range pod.Spec.Containers {
		sum += amount(&pod.Spec.Containers[i])
	}
	return max(sum+sidecars, peak)
}

// MilliCPU is the CPU request of a pod that is not bound yet.
func MilliCPU(pod *corev1.Pod) int64 {
	return effective(pod, corev1.ResourceCPU, milliOf)
}

// containersCPU is the field of CPU requests that containers have.
const containersCPU = "spec.containers[*].resources.requests[cpu]"

// CPURequest names what MilliCPU adds up: the containers' requests or the pod's own one, and its overhead. field is
// the one that makes it a fraction of a CPU: that of the overhead if the rest is whole CPUs.
func CPURequest(pod *corev1.Pod) (field, text string) {
	overhead := pod.Spec.Overhead.Cpu().MilliValue()
	rest := MilliCPU(pod) - overhead
	field, text = containersCPU, fmt.Sprintf("the containers request %dm", rest)
	if r := pod.Spec.Resources; r != nil && requested(r, corev1.ResourceCPU, milliOf) == rest {
		field, text = "spec.resources.requests[cpu]", fmt.Sprintf("the pod's own request is %dm", rest)
	}
	if overhead == 0 {
		return field, text
	}
	if rest%1000 == 0 {
		field = "spec.overhead[cpu]"
	}
	return field, fmt.Sprintf("%s, pod overhead %dm", text, overhead)
}

// Amount is what a pod that is not bound yet asks of a resource, as the scheduler counts it, rounded up.
func Amount(pod *corev1.Pod, name corev1.ResourceName) int64 { return effective(pod, name, valueOf) }

// effective is the request of a pod that is not bound yet as the scheduler counts it, overhead included, in the unit of
// value, without the maps that the general computation needs.
func effective(pod *corev1.Pod, name corev1.ResourceName, value func(apiresource.Quantity) int64) int64 {
	amount := together(pod, func(c *corev1.Container) int64 { return requested(&c.Resources, name, value) })
	if r := pod.Spec.Resources; r != nil {
		if _, own := r.Requests[name]; own || amount == 0 {
			amount = requested(r, name, value)
		}
	}
	if q, ok := pod.Spec.Overhead[name]; ok {
		amount += value(q)
	}
	return amount
}

// podLimitMilli is the CPU limit of a pod; ok is false when a container may burst without limit.
func podLimitMilli(pod *corev1.Pod) (milli int64, ok bool) {
	if r := pod.Spec.Resources; r != nil {
		if _, limited := r.Limits[corev1.ResourceCPU]; limited {
			return limitOf(r), true
		}
	}
	for _, c := range containers(pod) {
		if limitOf(&c.Resources) == 0 {
			return 0, false
		}
	}
	return together(pod, func(c *corev1.Container) int64 { return limitOf(&c.Resources) }), true
}

// boundMilli is the CPU request that a bound pod is accounted with.
func boundMilli(pod *corev1.Pod) int64 {
	requests := boundRequests(pod)
	return requests.Cpu().MilliValue()
}

// boundRequests is what a bound pod is accounted with; until a resize in place is done the larger amount counts.
func boundRequests(pod *corev1.Pod) corev1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
}
