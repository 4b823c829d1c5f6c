package admission

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
)

// Mutation is what is changed on a pod that is created.
type Mutation struct {
	// Remove are annotations that only a scheduler writes, sorted: a copied manifest or a restored backup must not
	// bring an allocation in.
	Remove []string
	// Annotations are set after that, sorted by key.
	Annotations []Annotation
	// Limits are added, in the order of the containers.
	Limits []Limit
	// Warnings tell of each change.
	Warnings []string
}

// Annotation is set on a pod, whatever the key has.
type Annotation struct{ Key, Value string }

// Limit is a limit that a container did not state.
type Limit struct {
	// List is "initContainers" or "containers", Index the container's place in it.
	List  string
	Index int
	Name  corev1.ResourceName
	Value resource.Quantity
	// First is true when the container has no limits yet.
	First bool
}

// Mutate returns what is changed on a pod that is created. A pod with a policy of volcano.sh/numa-topology-policy must
// be Guaranteed: a limit that is missing is its request. (A missing request is the limit: the API server sees to that.)
func Mutate(pod *corev1.Pod) Mutation {
	var m Mutation
	for key := range pod.Annotations {
		if annotation.SetByScheduler(key) {
			m.Remove = append(m.Remove, key)
		}
	}
	slices.Sort(m.Remove)
	for _, key := range m.Remove {
		m.Warnings = append(m.Warnings, annotationField(key)+": removed: it is set by the scheduler")
	}
	if wantsGuaranteed(pod) {
		m.limits("initContainers", pod.Spec.InitContainers)
		m.limits("containers", pod.Spec.Containers)
	}
	return m
}

// IsEmpty reports whether the pod stays as it is.
func (m *Mutation) IsEmpty() bool {
	return len(m.Remove) == 0 && len(m.Annotations) == 0 && len(m.Limits) == 0
}

// Apply changes the pod.
func (m *Mutation) Apply(pod *corev1.Pod) {
	for _, key := range m.Remove {
		delete(pod.Annotations, key)
	}
	for _, a := range m.Annotations {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[a.Key] = a.Value
	}
	for _, l := range m.Limits {
		of := pod.Spec.Containers
		if l.List == "initContainers" {
			of = pod.Spec.InitContainers
		}
		c := &of[l.Index].Resources
		if c.Limits == nil {
			c.Limits = corev1.ResourceList{}
		}
		c.Limits[l.Name] = l.Value
	}
}

func (m *Mutation) limits(list string, containers []corev1.Container) {
	for i := range containers {
		r := &containers[i].Resources
		first := len(r.Limits) == 0
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, requested := r.Requests[name]
			if _, limited := r.Limits[name]; limited || !requested {
				continue
			}
			m.Limits = append(m.Limits, Limit{List: list, Index: i, Name: name, Value: request, First: first})
			m.Warnings = append(m.Warnings, fmt.Sprintf(
				"%s.resources.limits[%s]: set to the request %s: %s asks for a Guaranteed pod",
				indexed("spec."+list, i), name, request.String(), annotation.VolcanoTopologyPolicy))
			first = false
		}
	}
}

// wantsGuaranteed reports whether Volcano's annotation asks for alignment.
func wantsGuaranteed(pod *corev1.Pod) bool {
	text, ok := pod.Annotations[annotation.VolcanoTopologyPolicy]
	if !ok {
		return false
	}
	policy, _, err := annotation.ParseVolcanoTopologyPolicy(text)
	return err == nil && policy != annotation.TopologyNone
}
