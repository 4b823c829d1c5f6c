package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
)

// Mutation is what is changed on a pod that is created.
type Mutation struct {
	Steps []Step
	// Warnings tell of the changes that the user should know.
	Warnings []string
}

// Step is one step of a JSON patch (RFC 6902). A map that is not there yet is made in a step of its own.
type Step struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
	apply func(pod *corev1.Pod)
}

// Mutate returns what is changed on a pod that is created. Annotations that only a scheduler writes are removed: a
// copied manifest or a restored backup must not bring an allocation in. A pod with a policy of
// volcano.sh/numa-topology-policy must be Guaranteed: a limit that is missing is its request. (A missing request is the
// limit: the API server sees to that.) Requests for devices get canonical names and the number of GPUs.
func Mutate(pod *corev1.Pod, kinds device.Kinds) Mutation {
	var m Mutation
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		if annotation.SetByScheduler(key) {
			m.Steps = append(m.Steps, Step{
				"remove", annotationPath(key), nil, func(p *corev1.Pod) { delete(p.Annotations, key) },
			})
			m.Warnings = append(m.Warnings, annotationField(key)+": removed: it is set by the scheduler")
		}
	}
	if wantsGuaranteed(pod) {
		m.limits("initContainers", pod.Spec.InitContainers, func(p *corev1.Pod) []corev1.Container {
			return p.Spec.InitContainers
		})
		m.limits("containers", pod.Spec.Containers, func(p *corev1.Pod) []corev1.Container { return p.Spec.Containers })
	}
	m.devices(pod, kinds)
	return m
}

// Apply changes the pod.
func (m *Mutation) Apply(pod *corev1.Pod) {
	for _, s := range m.Steps {
		s.apply(pod)
	}
}

func (m *Mutation) annotate(pod *corev1.Pod, key, value string) {
	if pod.Annotations == nil && len(m.Steps) == 0 {
		m.Steps = append(m.Steps, Step{"add", "/metadata/annotations", map[string]string{}, func(p *corev1.Pod) {
			p.Annotations = map[string]string{}
		}})
	}
	m.Steps = append(m.Steps, Step{
		"add", annotationPath(key), value, func(p *corev1.Pod) { p.Annotations[key] = value },
	})
}

// limits adds to a list of containers, which of returns of a pod, the limits that they lack.
func (m *Mutation) limits(
	list string, containers []corev1.Container, containersOf func(*corev1.Pod) []corev1.Container,
) {
	for i := range containers {
		r := &containers[i].Resources
		path, first := fmt.Sprintf("/spec/%s/%d/resources/limits", list, i), len(r.Limits) == 0
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, requested := r.Requests[name]
			if _, limited := r.Limits[name]; limited || !requested {
				continue
			}
			if first {
				m.Steps = append(m.Steps, Step{"add", path, map[string]string{}, func(p *corev1.Pod) {
					containersOf(p)[i].Resources.Limits = corev1.ResourceList{}
				}})
				first = false
			}
			m.Steps = append(m.Steps, Step{
				"add", path + "/" + pointer(string(name)), request.String(),
				func(p *corev1.Pod) { containersOf(p)[i].Resources.Limits[name] = request },
			})
			m.Warnings = append(m.Warnings, fmt.Sprintf(
				"%s.resources.limits[%s]: set to the request %s: %s asks for a Guaranteed pod",
				indexed("spec."+list, i), name, request.String(), annotation.VolcanoTopologyPolicy))
		}
	}
}

func annotationPath(key string) string { return "/metadata/annotations/" + pointer(key) }

// pointer writes a key as a part of a JSON pointer (RFC 6901).
func pointer(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

func wantsGuaranteed(pod *corev1.Pod) bool {
	text, ok := pod.Annotations[annotation.VolcanoTopologyPolicy]
	if !ok {
		return false
	}
	policy, _, err := annotation.ParseVolcanoTopologyPolicy(text)
	return err == nil && policy != annotation.TopologyNone
}
