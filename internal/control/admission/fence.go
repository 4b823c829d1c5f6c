package admission

import (
	"encoding/json"
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
