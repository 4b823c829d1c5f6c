package admission

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Mutate returns a pod that is created as the webhook changes it, and warnings of the changes that its creator should
// know. The pod itself is not changed. Annotations that only a scheduler writes are removed: a copied manifest or a
// restored backup must not bring an allocation in. A pod with a policy of volcano.sh/numa-topology-policy must be
// Guaranteed: a limit that is missing is its request. (A missing request is the limit: the API server sees to that.)
// Requests for devices get canonical names and the number of GPUs.
func Mutate(pod *corev1.Pod) (*corev1.Pod, Answer) {
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
	convert.NameDevices(out)
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

// Fence returns a pod that is created as the webhook changes it, so that a container runtime refuses its containers
// while Tenon's NRI plugin is not connected: it would start them on all CPUs, and without their devices or with all of
// them. Only pods that will hold CPUs of their own, or devices that no kubelet can serve, are changed. Plugins that the
// user already requires remain required. The Answer refuses a list that the runtime cannot read either.
func Fence(pod *corev1.Pod, kinds device.Kinds) (*corev1.Pod, Answer) {
	var a Answer
	if !willHoldCPUs(pod) && !willHoldDevices(pod, kinds) {
		return pod, a
	}
	out := pod.DeepCopy()
	keys, podWide := requirements(pod)
	if !podWide {
		keys = append([]string{annotation.RequiredPlugins}, keys...)
	}
	for _, key := range keys {
		value, err := withPlugin(pod.Annotations[key])
		switch {
		case err != nil:
			a.refuse(why.BadAnnotation, annotationField(key),
				"Invalid value %q: must be a list of NRI plugin names, such as [%q]",
				pod.Annotations[key], annotation.NRIPlugin)
		case value != "":
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, key, value)
		}
	}
	return out, a
}

func willHoldCPUs(pod *corev1.Pod) bool {
	class, band, kube := convert.PodQoS(pod)
	return qos.RoleOf(qos.Pod{Class: class, Band: band, Kube: kube, MilliCPU: convert.MilliCPU(pod)}).Binds()
}

func willHoldDevices(pod *corev1.Pod, kinds device.Kinds) bool {
	r := deviceRequest(pod, kinds)
	return r != nil && len(r.Parts) > 0 && !r.LeftToKubelet()
}

// requirements returns the keys that already require plugins, sorted. The runtime reads the most special key alone:
// that of the container, else of the pod, else the plain one, so each of them must name ours. podWide reports whether
// one of them applies to the whole pod.
func requirements(pod *corev1.Pod) (keys []string, podWide bool) {
	for key := range pod.Annotations {
		scope, ok := strings.CutPrefix(key, annotation.RequiredPlugins)
		switch {
		case !ok:
		case scope == "" || scope == "/pod":
			keys, podWide = append(keys, key), true
		case strings.HasPrefix(scope, "/container."):
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, podWide
}

// withPlugin adds our plugin to a YAML list; "" when it is in it.
func withPlugin(value string) (string, error) {
	var names []string
	if err := yaml.Unmarshal([]byte(value), &names); err != nil {
		return "", err
	}
	if slices.Contains(names, annotation.NRIPlugin) {
		return "", nil
	}
	text, err := json.Marshal(append(names, annotation.NRIPlugin))
	return string(text), err
}
