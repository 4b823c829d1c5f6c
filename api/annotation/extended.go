package annotation

import corev1 "k8s.io/api/core/v1"

// SkipUpdateResources is an annotation of a ClusterColocationProfile: "true" leaves the CPU and memory of its pods as
// they are.
const SkipUpdateResources = "config.koordinator.sh/skip-update-resources"

// ExtendedResourceSpecKey holds an ExtendedResourceSpec, written by the webhook that rewrites a pod's CPU and memory.
const ExtendedResourceSpecKey = "node.koordinator.sh/extended-resource-spec"

// ExtendedResourceSpec is what the containers of a pod request of batch and mid resources: container runtimes see a
// pod's annotations, but not such requests.
type ExtendedResourceSpec struct {
	// Containers are by name, init containers too.
	Containers map[string]ExtendedResources `json:"containers,omitempty"`
}

// ExtendedResources are the batch and mid resources of one container.
type ExtendedResources struct {
	Requests corev1.ResourceList `json:"requests,omitempty"`
	Limits   corev1.ResourceList `json:"limits,omitempty"`
}

// String returns the canonical JSON.
func (s ExtendedResourceSpec) String() string { return encode(s) }

// ParseExtendedResourceSpec reads an ExtendedResourceSpec. No amount may be negative.
func ParseExtendedResourceSpec(text string) (ExtendedResourceSpec, []Warning, error) {
	return readAmounts(text, func(r *reader, s *ExtendedResourceSpec) {
		for _, c := range s.Containers {
			for _, amounts := range []corev1.ResourceList{c.Requests, c.Limits} {
				for name, q := range amounts {
					if q.Sign() < 0 {
						r.refuse("containers", Error{Text: string(name) + ": must not be negative"})
					}
				}
			}
		}
	})
}
