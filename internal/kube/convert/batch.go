package convert

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
)

// Names of the resources that a pod may use while others leave them idle. A container uses the first that it names.
var (
	idleCPUs   = []corev1.ResourceName{"kubernetes.io/batch-cpu", "koordinator.sh/batch-cpu", "kubernetes.io/mid-cpu"}
	idleMemory = []corev1.ResourceName{
		"kubernetes.io/batch-memory", "koordinator.sh/batch-memory", "kubernetes.io/mid-memory",
	}
)

// Batch is what a container, or a whole pod, requests of batch or mid resources.
type Batch struct {
	// CPU and Memory report whether it uses such CPUs and such memory. Its amounts are 0 otherwise.
	CPU, Memory bool
	// MilliCPU is the request.
	MilliCPU int64
	// LimitMilliCPU and LimitBytes are the limits; 0 is none. A limit may be above the request.
	LimitMilliCPU, LimitBytes int64
}

// BatchAmounts returns what the containers of a pod, by name, and the pod as a whole request of batch or mid resources.
// A container whose resources name none has those of the annotation extended-resource-spec. The pod has a limit only if
// all its containers have one, and uses batch CPUs or memory only if no container requests ordinary ones: the kubelet
// limits the pod by those.
func BatchAmounts(pod *corev1.Pod) (named map[string]Batch, whole Batch) {
	spec := extendedSpec(pod.Annotations)
	cpu, memory := true, true
	for _, c := range containers(pod) {
		b := batchOf(c.Resources.Requests, c.Resources.Limits)
		if x := spec.Containers[c.Name]; b == (Batch{}) {
			b = batchOf(x.Requests, x.Limits)
		}
		if b != (Batch{}) {
			if named == nil {
				named = map[string]Batch{}
			}
			named[c.Name] = b
		}
		cpu = cpu && !names(c, corev1.ResourceCPU)
		memory = memory && !names(c, corev1.ResourceMemory)
	}
	limitsCPU, limitsMemory := true, true
	for _, c := range containers(pod) {
		b := named[c.Name]
		whole.CPU, whole.Memory = whole.CPU || b.CPU, whole.Memory || b.Memory
		limitsCPU, limitsMemory = limitsCPU && b.LimitMilliCPU > 0, limitsMemory && b.LimitBytes > 0
	}
	whole.CPU, whole.Memory = whole.CPU && cpu, whole.Memory && memory
	sum := func(used bool, amount func(Batch) int64) int64 {
		if !used {
			return 0
		}
		return together(pod, func(c *corev1.Container) int64 { return amount(named[c.Name]) })
	}
	whole.MilliCPU = sum(whole.CPU, func(b Batch) int64 { return b.MilliCPU })
	whole.LimitMilliCPU = sum(whole.CPU && limitsCPU, func(b Batch) int64 { return b.LimitMilliCPU })
	whole.LimitBytes = sum(whole.Memory && limitsMemory, func(b Batch) int64 { return b.LimitBytes })
	return named, whole
}

// SandboxBatch returns what the annotations of a pod say of its containers' batch or mid resources, by name.
func SandboxBatch(annotations map[string]string) map[string]Batch {
	var named map[string]Batch
	for name, x := range extendedSpec(annotations).Containers {
		if b := batchOf(x.Requests, x.Limits); b != (Batch{}) {
			if named == nil {
				named = map[string]Batch{}
			}
			named[name] = b
		}
	}
	return named
}

// extendedSpec returns the annotation extended-resource-spec; an empty one if it cannot be read.
func extendedSpec(annotations map[string]string) annotation.ExtendedResourceSpec {
	s, _, _ := parse(annotations, annotation.ExtendedResourceSpecKey, annotation.ParseExtendedResourceSpec)
	return s
}

func names(c *corev1.Container, name corev1.ResourceName) bool {
	request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
	return !request.IsZero() || !limit.IsZero()
}

func batchOf(requests, limits corev1.ResourceList) (b Batch) {
	b.MilliCPU, b.LimitMilliCPU, b.CPU = firstOf(requests, limits, idleCPUs)
	_, b.LimitBytes, b.Memory = firstOf(requests, limits, idleMemory)
	return b
}

// firstOf returns request and limit of the first of some resources that is named. A limit alone is a request too.
func firstOf(requests, limits corev1.ResourceList, names []corev1.ResourceName) (request, limit int64, found bool) {
	for _, name := range names {
		r, requested := requests[name]
		l, limited := limits[name]
		switch {
		case !requested && !limited:
			continue
		case !requested:
			r = l
		}
		return max(r.Value(), 0), max(l.Value(), 0), true
	}
	return 0, 0, false
}
