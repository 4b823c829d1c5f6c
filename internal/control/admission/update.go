package admission

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Author is who changes an object.
type Author uint8

// Authors.
const (
	// Anyone must leave the scheduler's keys alone.
	Anyone Author = iota
	// Scheduler may write them.
	Scheduler
)

// Update judges a change of a pod. Only what changes is judged: a pod that was created while the webhooks were away
// must still be able to lose a finalizer.
func Update(pod, old *corev1.Pod, by Author) Answer {
	var a Answer
	for _, key := range []string{annotation.QoSClass, annotation.PriorityClass, annotation.Priority} {
		if !same(pod.Labels, old.Labels, key) {
			a.refuse(why.InvalidField, labelField(key), "field is immutable")
		}
	}
	if by != Scheduler {
		a.schedulerKeys(pod, old)
	}
	a.changedSpecs(pod, old)
	return a
}

func same(m, old map[string]string, key string) bool {
	value, ok := m[key]
	before, was := old[key]
	return ok == was && value == before
}

func (a *Answer) schedulerKeys(pod, old *corev1.Pod) {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(pod.Annotations)), maps.Keys(old.Annotations))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if annotation.SetByScheduler(key) && !same(pod.Annotations, old.Annotations, key) {
			a.refuse(why.InvalidField, annotationField(key), "%s is set by the scheduler", key)
		}
	}
}

func (a *Answer) changedSpecs(pod, old *corev1.Pod) {
	if !same(pod.Annotations, old.Annotations, annotation.ResourceSpecKey) {
		if old.Spec.NodeName != "" {
			a.refuse(why.InvalidField, annotationField(annotation.ResourceSpecKey),
				"field is immutable once the pod is bound to a node")
		} else {
			class, _, _ := convert.PodQoS(pod)
			a.resourceSpec(pod, class)
		}
	}
	if !same(pod.Annotations, old.Annotations, annotation.NUMATopologySpecKey) {
		a.topologySpec(pod)
	}
	if !same(pod.Annotations, old.Annotations, annotation.VolcanoTopologyPolicy) {
		if old.Spec.NodeName != "" {
			a.refuse(why.InvalidField, annotationField(annotation.VolcanoTopologyPolicy),
				"field is immutable once the pod is bound to a node")
		} else {
			a.volcano(pod)
		}
	}
	if !same(pod.Annotations, old.Annotations, annotation.SimulateKey) {
		a.simulate(pod)
	}
}

// Resize judges a change of a pod's resources in place. CPUs that a pod holds by number cannot become more or fewer.
func Resize(pod, old *corev1.Pod) Answer {
	var a Answer
	if !holdsCPUs(old) {
		return a
	}
	for i := range old.Spec.InitContainers {
		if i < len(pod.Spec.InitContainers) {
			a.sameCPU("spec.initContainers", i, &pod.Spec.InitContainers[i].Resources,
				&old.Spec.InitContainers[i].Resources)
		}
	}
	for i := range old.Spec.Containers {
		if i < len(pod.Spec.Containers) {
			a.sameCPU("spec.containers", i, &pod.Spec.Containers[i].Resources, &old.Spec.Containers[i].Resources)
		}
	}
	a.sameCPUAt("spec.resources", orNone(pod.Spec.Resources), orNone(old.Spec.Resources))
	return a
}

func orNone(r *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if r == nil {
		return &corev1.ResourceRequirements{}
	}
	return r
}

// holdsCPUs reports whether a pod has exclusive CPUs, or will get some.
func holdsCPUs(pod *corev1.Pod) bool {
	class, band, kube := convert.PodQoS(pod)
	role := qos.RoleOf(qos.Pod{Class: class, Band: band, Kube: kube, MilliCPU: convert.MilliCPU(pod)})
	if role.Binds() {
		return true
	}
	entry, _ := convert.Entry(pod)
	return entry.CPUList != ""
}

func (a *Answer) sameCPU(list string, i int, now, before *corev1.ResourceRequirements) {
	a.sameCPUAt(indexed(list, i)+".resources", now, before)
}

func (a *Answer) sameCPUAt(field string, now, before *corev1.ResourceRequirements) {
	if now.Requests.Cpu().Cmp(*before.Requests.Cpu()) != 0 || now.Limits.Cpu().Cmp(*before.Limits.Cpu()) != 0 {
		a.refuse(why.InvalidField, field, "cpu of a bound pod cannot be resized")
	}
}
