package admission

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
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

// Update checks a change of a pod. Only what changes is checked: a pod that was created while the webhooks were away
// must still be able to lose a finalizer.
func Update(pod, old *corev1.Pod, author Author) Answer {
	var a Answer
	for _, key := range []string{annotation.QoSClass, annotation.PriorityClass, annotation.Priority} {
		if !same(pod.Labels, old.Labels, key) {
			a.refuse(why.InvalidField, labelField(key), "field is immutable")
		}
	}
	if author != Scheduler {
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
	for _, spec := range []struct {
		key   string
		fixed bool // once the pod is bound
		check func(*corev1.Pod)
	}{
		{annotation.ResourceSpecKey, true, a.resourceSpec},
		{annotation.NUMATopologySpecKey, false, a.topologySpec},
		{annotation.VolcanoTopologyPolicy, true, a.volcano},
		{annotation.SimulateKey, false, a.simulate},
	} {
		switch {
		case same(pod.Annotations, old.Annotations, spec.key):
		case spec.fixed && old.Spec.NodeName != "":
			a.refuse(why.InvalidField, annotationField(spec.key), "field is immutable once the pod is bound to a node")
		default:
			spec.check(pod)
		}
	}
	after, _ := convert.GangPod(pod)
	was, _ := convert.GangPod(old)
	if after.Gang != was.Gang || after.Fault != was.Fault || !reflect.DeepEqual(after.Settings, was.Settings) {
		a.gang(pod)
	}
}

// Resize checks a change of a pod's resources in place. CPUs that a pod holds by number cannot become more or fewer.
func Resize(pod, old *corev1.Pod) Answer {
	var a Answer
	if entry, _ := convert.EntryUnder(convert.Args{}, old); !willHoldCPUs(old) && entry.CPUList == "" {
		return a
	}
	none := &corev1.ResourceRequirements{}
	before := map[string]*corev1.ResourceRequirements{"spec": cmp.Or(old.Spec.Resources, none)}
	for field, c := range containers(old) {
		before[field] = &c.Resources
	}
	for field, c := range containers(pod) {
		a.sameCPU(field, &c.Resources, before[field])
	}
	a.sameCPU("spec", cmp.Or(pod.Spec.Resources, none), before["spec"])
	return a
}

// sameCPU accepts a container that is new.
func (a *Answer) sameCPU(field string, now, before *corev1.ResourceRequirements) {
	if before != nil && (now.Requests.Cpu().Cmp(*before.Requests.Cpu()) != 0 ||
		now.Limits.Cpu().Cmp(*before.Limits.Cpu()) != 0) {
		a.refuse(why.InvalidField, field+".resources", "cpu of a bound pod cannot be resized")
	}
}
