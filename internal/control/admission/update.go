package admission

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/ledger"
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
		{annotation.IsolationKey, true, a.isolation},
		{annotation.NUMATopologySpecKey, false, a.topologySpec},
		{annotation.VolcanoTopologyPolicy, true, a.volcano},
		{annotation.SimulateKey, false, a.simulate},
		{annotation.ExpectedRuntime, false, a.runTime},
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

// Room is what a node has beside a pod that is resized on it.
type Room struct {
	// Account is the account of the node with the pod; nil where it is not known.
	Account *ledger.View
	// Has is what the node can allocate, and Others what its other pods request. Zero where the node is not known.
	Has, Others corev1.ResourceList
	// Reserved is what Reservations on the node keep for other pods, and Own what the one keeps that the pod uses: it
	// may grow into that.
	Reserved, Own corev1.ResourceList
}

// Resize checks a change of a pod's resources in place. CPUs that a pod holds by number cannot become more or fewer.
// What grows must be on the node, and on the NUMA nodes that the pod was given; PodQuota has the rules of its quota.
// Devices do not change: the API server refuses a resize of anything but CPU and memory. A pod that has no place by
// Tenon and names no quota is left to the kubelet, which may defer the resize until the node has room, unless
// Reservations keep room on the node: the kubelet does not know them.
func Resize(pod, old *corev1.Pod, room Room) Answer {
	var a Answer
	_, classed := old.Labels[annotation.QoSClass]
	_, named := old.Labels[annotation.QuotaName]
	_, placed := old.Annotations[annotation.ResourceStatusKey]
	isPlain := !classed && !named && !placed
	held, _ := convert.EntryUnder(convert.Args{}, old)
	if willHoldCPUs(old) || held.CPUList != "" {
		a.keepsCPUs(pod, old)
	}
	next, was := convert.PodAmounts(pod), convert.PodAmounts(old)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		has, found := convert.Amounts(room.Has)[string(name)]
		n := next[string(name)]
		grows := n - was[string(name)]
		kept := convert.Amounts(room.Reserved)[string(name)] + max(convert.Amounts(room.Own)[string(name)]-grows, 0)
		free := has - convert.Amounts(room.Others)[string(name)] - kept
		if !found || grows <= 0 || n <= free || isPlain && kept == 0 {
			continue
		}
		beside := "beside other pods"
		if kept > 0 {
			beside += fmt.Sprintf(" and %s that Reservations keep", convert.QuotaText(string(name), kept))
		}
		a.refuse(why.InvalidField, "spec", "%s of the pod would be %s, and its node has %s %s", name,
			convert.QuotaText(string(name), n), convert.QuotaText(string(name), max(free, 0)), beside)
	}
	if room.Account == nil || isPlain {
		return a
	}
	entry, _ := convert.EntryUnder(convert.Args{}, pod)
	if r := room.Account.Resize(entry); !r.OK() {
		a.refuse(r.Code, "spec", "%s of the pod would be %s, and NUMA node %d, which the pod is confined to, has %s "+
			"beside other pods", r.Resource, convert.QuotaText(string(r.Resource), r.Asked), r.Where.Index,
			convert.QuotaText(string(r.Resource), r.Free))
	}
	return a
}

// keepsCPUs refuses other CPU amounts for a pod that holds CPUs by number.
func (a *Answer) keepsCPUs(pod, old *corev1.Pod) {
	none := &corev1.ResourceRequirements{}
	before := map[string]*corev1.ResourceRequirements{"spec": cmp.Or(old.Spec.Resources, none)}
	for field, c := range containers(old) {
		before[field] = &c.Resources
	}
	for field, c := range containers(pod) {
		a.sameCPU(field, &c.Resources, before[field])
	}
	a.sameCPU("spec", cmp.Or(pod.Spec.Resources, none), before["spec"])
}

// sameCPU accepts a container that is new.
func (a *Answer) sameCPU(field string, now, before *corev1.ResourceRequirements) {
	if before != nil && (now.Requests.Cpu().Cmp(*before.Requests.Cpu()) != 0 ||
		now.Limits.Cpu().Cmp(*before.Limits.Cpu()) != 0) {
		a.refuse(why.InvalidField, field+".resources", "cpu of a bound pod cannot be resized")
	}
}
