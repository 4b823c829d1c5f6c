package convert

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"

	"github.com/tenon-project/tenon/api/annotation"
)

// CapacityManager is the field manager under which the manager writes amounts and labels of devices into Nodes.
const CapacityManager = "tenon-manager-devices"

// ColocationManager is the field manager under which the manager writes batch and mid amounts into Nodes, and the spec
// of NodeMetrics and NodeSLOs.
const ColocationManager = "tenon-manager-colocation"

// ScalingManager is the field manager under which the manager writes annotations for autoscalers into Nodes.
const ScalingManager = "tenon-manager-scaling"

// WithOwned keeps of an object's managed fields what the manager applied.
func WithOwned(object metav1.Object) {
	var ours []metav1.ManagedFieldsEntry
	for _, e := range object.GetManagedFields() {
		if slices.Contains([]string{CapacityManager, ColocationManager, ScalingManager}, e.Manager) &&
			e.Operation == metav1.ManagedFieldsOperationApply {
			ours = append(ours, e)
		}
	}
	object.SetManagedFields(ours)
}

// ConditionPrefix begins the types of the conditions that the agent writes into its Node.
const ConditionPrefix = "tenon.sh/"

// Clean returns a Node without what Tenon has written into it, but for what is to be kept, by type of condition, key or
// resource, and what was removed. Resources of the agent's device plugins are not among it: the kubelet shows them
// until it is restarted, with 0 from 5 minutes after the plugin has ended on.
func Clean(node *corev1.Node, keep func(name string) bool) (clean *corev1.Node, removed []string) {
	clean = node.DeepCopy()
	drop := func(kind, name string) bool {
		if keep(name) {
			return false
		}
		removed = append(removed, kind+" "+name)
		return true
	}
	clean.Status.Conditions = slices.DeleteFunc(clean.Status.Conditions, func(c corev1.NodeCondition) bool {
		return strings.HasPrefix(string(c.Type), ConditionPrefix) && drop("condition", string(c.Type))
	})
	for _, name := range append(Owned(node, CapacityManager, "status", "f:status", "f:capacity"),
		Owned(node, ColocationManager, "status", "f:status", "f:capacity")...) {
		if drop("capacity of", name) {
			delete(clean.Status.Capacity, corev1.ResourceName(name))
			delete(clean.Status.Allocatable, corev1.ResourceName(name))
		}
	}
	for _, key := range Owned(node, CapacityManager, "", "f:metadata", "f:labels") {
		if drop("label", key) {
			delete(clean.Labels, key)
		}
	}
	if _, has := node.Labels[annotation.ScaleHelper]; has && drop("label", annotation.ScaleHelper) {
		delete(clean.Labels, annotation.ScaleHelper)
	}
	for _, key := range Owned(node, ScalingManager, "", "f:metadata", "f:annotations") {
		if drop("annotation", key) {
			delete(clean.Annotations, key)
		}
	}
	if annotation.IsLeaving(node.Annotations) && drop("annotation", annotation.LeaveKey) {
		delete(clean.Annotations, annotation.LeaveKey)
	}
	return clean, removed
}

// Owned returns the keys of a Node below a path that were written under a field manager, sorted.
func Owned(node *corev1.Node, manager, subresource string, path ...string) (keys []string) {
	for _, e := range node.ManagedFields {
		if e.Manager != manager || e.Subresource != subresource || e.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if err := json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields); err != nil {
			return nil // no API server sends this
		}
		for _, step := range path {
			fields, _ = fields[step].(map[string]any)
		}
		for key := range fields {
			if name, isField := strings.CutPrefix(key, "f:"); isField {
				keys = append(keys, name)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// IsFenced reports whether a runtime with NRI's default validator creates no container of a pod while the agent is not
// connected.
func IsFenced(annotations map[string]string) bool {
	for key := range annotations {
		if fence, _, _ := strings.Cut(key, "/"); fence == annotation.RequiredPlugins &&
			strings.Contains(annotations[key], annotation.NRIPlugin) {
			return true
		}
	}
	return false
}

// LowerCPULimits is CPULimits, where a limit that is being resized counts with the smaller of what the pod's spec says
// and what its containers have.
func LowerCPULimits(pod *corev1.Pod) (containers map[string]int64, whole int64) {
	containers, whole = CPULimits(pod)
	var lowered int64
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.Resources == nil {
			continue
		}
		if limit, has := containers[s.Name], s.Resources.Limits.Cpu().MilliValue(); has > 0 && has < limit {
			containers[s.Name] = has
			lowered += limit - has
		}
	}
	return containers, max(whole-lowered, 0)
}

// CPULimits returns the CPU limits by which a kubelet sets quotas, in milli-CPU: of the containers that have one, by
// name, and of the pod, 0 for none. A pod has a quota if each of its containers or the pod itself has a limit. Kubelets
// up to 1.36 also accept an init container without limit after a sidecar that has one; the pod gets no quota here then.
func CPULimits(pod *corev1.Pod) (containers map[string]int64, whole int64) {
	containers = map[string]int64{}
	limited := true
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if limit := c.Resources.Limits.Cpu().MilliValue(); limit > 0 {
			containers[c.Name] = limit
		} else {
			limited = false
		}
	}
	if amounts := pod.Spec.Resources; limited || amounts != nil && !amounts.Limits.Cpu().IsZero() {
		limits := resource.PodLimits(pod, resource.PodResourcesOptions{})
		whole = limits.Cpu().MilliValue()
	}
	return containers, whole
}
