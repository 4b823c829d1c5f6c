package annotation

import corev1 "k8s.io/api/core/v1"

// ResourceStatus is what a pod got (ResourceStatusKey). It travels in the Binding.
type ResourceStatus struct {
	// CPUSet are the exclusive CPUs of an LSE or LSR pod, in Linux list format.
	CPUSet string `json:"cpuset,omitempty"`
	// CPUSharedPools are the parts of the CPU shared pool that an LS pod is constrained to; without CPUs, which the
	// agent looks up by socket and node.
	CPUSharedPools []CPUSharedPool `json:"cpuSharedPools,omitempty"`
	// NUMANodeResources are the amounts on each NUMA node. They name the same nodes as CPUSharedPools.
	NUMANodeResources []NUMANodeResource `json:"numaNodeResources,omitempty"`
}

// CPUSharedPool is a CPU shared pool on one NUMA node.
type CPUSharedPool struct {
	Socket int32  `json:"socket"`
	Node   int32  `json:"node"`
	CPUSet string `json:"cpuset,omitempty"`
}

// NUMANodeResource is an amount of resources on one NUMA node.
type NUMANodeResource struct {
	Node      int32               `json:"node"`
	Resources corev1.ResourceList `json:"resources,omitempty"`
}

// ParseResourceStatus reads a ResourceStatus.
func ParseResourceStatus(text string) (ResourceStatus, []Warning, error) {
	return readAmounts[ResourceStatus](text, nil)
}
