package criproxy

import "strings"

// Labels and annotations of pods whose containers run enforced or not at all. They are those of the packages annotation
// and admission, which a test compares; the proxy links neither.
const (
	qosClassLabel    = "koordinator.sh/qosClass"
	resourceStatus   = "scheduling.koordinator.sh/resource-status"
	deviceAllocated  = "scheduling.koordinator.sh/device-allocated"
	requiredPlugins  = "required-plugins.noderesource.dev"
	requiredPlugin   = "tenon-agent"
	exclusiveClass   = "LSE"
	reservedCPUClass = "LSR"
)

// mustEnforce reports whether a pod's containers may not pass without their hooks: CPUs or devices were allocated to
// it, it is entitled to exclusive CPUs, or it requires the agent.
func mustEnforce(labels, annotations map[string]string) bool {
	if class := labels[qosClassLabel]; strings.EqualFold(class, exclusiveClass) ||
		strings.EqualFold(class, reservedCPUClass) {
		return true
	}
	for key, value := range annotations {
		if key == resourceStatus || key == deviceAllocated {
			return true
		}
		// For the pod, or for one of its containers: requiredPlugins/pod, requiredPlugins/container.NAME.
		if name, _, _ := strings.Cut(key, "/"); name == requiredPlugins && strings.Contains(value, requiredPlugin) {
			return true
		}
	}
	return false
}
