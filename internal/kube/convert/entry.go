package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// Pod is a bound pod with its annotations parsed, once for all who look at it. It is not changed any more.
type Pod struct {
	*corev1.Pod
	// Entry is what the pod holds and Concerns whether the node's account needs it, as EntryUnder returns them.
	Entry    ledger.Entry
	Concerns bool
	// Allocation is the resource-status, empty where it cannot be parsed.
	Allocation annotation.ResourceStatus
	// Problems is what could not be parsed.
	Problems []Problem
}

// ReadPod parses the annotations of a pod.
func ReadPod(pod *corev1.Pod) *Pod { return read(pod, Args{}) }

func read(pod *corev1.Pod, args Args) *Pod {
	p := &Pod{Pod: pod}
	report := func(key string, err error) {
		if err != nil {
			p.Problems = append(p.Problems, Problem{
				Object: "Pod/" + pod.Namespace + "/" + pod.Name, Key: key,
				Value: cut(pod.Annotations[key]), Text: err.Error(),
			})
		}
	}
	var err error
	p.Allocation, err = readStatus(pod)
	report(annotation.ResourceStatusKey, err)
	predicted, err := prediction(pod)
	report(annotation.PredictedPlacementKey, err)
	spec, _, err := parse(pod.Annotations, annotation.ResourceSpecKey, annotation.ParseResourceSpec)
	report(annotation.ResourceSpecKey, err)
	devices, err := Grants(pod)
	report(annotation.DeviceAllocatedKey, err)
	if pod.Spec.NodeName == "" || Ended(pod) {
		return p
	}

	class, band, kube := PodQoS(pod)
	milli := boundMilli(pod)
	p.Entry = ledger.Entry{
		UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Class: class,
		Role:    qos.RoleOf(qos.Pod{Class: class, Band: band, Kube: kube, MilliCPU: milli}),
		Devices: devices, Unallocated: len(devices) == 0 && len(ServedDevices(pod)) > 0,
	}
	e := &p.Entry
	switch {
	case p.Allocation.CPUSet != "":
		e.Role = holderRole(e.Role, class)
		if e.Role.Binds() {
			e.CPUList = p.Allocation.CPUSet
			e.Exclusive = exclusive(spec.PreferredCPUExclusivePolicy, args.DefaultExclusive)
			e.Amounts = held(pod, p.Allocation, args.Resources)
		}
	case e.Role == qos.SharedPool:
		if e.NUMAIDs = poolNodes(p.Allocation); e.NUMAIDs != nil {
			e.MilliCPU, e.Amounts = milli, held(pod, p.Allocation, args.Resources)
		}
	}
	e.Guest = guest(pod, kube, predicted)
	p.Concerns = e.CPUList != "" || e.NUMAIDs != nil || e.Guest != nil || e.Devices != nil ||
		e.Unallocated
	return p
}

// parse reads an annotation; the zero value where it is absent.
func parse[T any](from map[string]string, key string, with func(string) (T, []annotation.Warning, error)) (
	value T, found bool, err error,
) {
	text, found := from[key]
	if !found {
		return value, false, nil
	}
	value, _, err = with(text)
	return value, true, err
}

// NodeUID returns the UID that the kubelet and the runtime know a pod by. That of a static pod is not its API object's:
// the object is a mirror, which names the pod.
func NodeUID(pod *corev1.Pod) string {
	if static := pod.Annotations[corev1.MirrorPodAnnotationKey]; static != "" {
		return static
	}
	return string(pod.UID)
}

// EntryUnder translates what a bound pod holds, as far as its annotations can be parsed, for a scheduler with
// arguments: they give pods that declare none another exclusive policy, and have the resources that pods hold.
// concerns is false when the node's account does not need the pod: it is not bound or has ended, and e is zero, or it
// holds nothing.
func EntryUnder(args Args, pod *corev1.Pod) (e ledger.Entry, concerns bool) {
	p := read(pod, args)
	return p.Entry, p.Concerns
}

// Keeping returns e with what was, an earlier entry of the same pod on the same node, held by its resource-status or by
// its device-allocated, where e holds nothing by it: the scheduler never takes either back, so it was removed or
// damaged, and the agent keeps the pod where it runs.
func Keeping(e, was ledger.Entry) ledger.Entry {
	if e.CPUList == "" && e.NUMAIDs == nil && (was.CPUList != "" || was.NUMAIDs != nil) {
		e.Role, e.CPUList, e.Exclusive = was.Role, was.CPUList, was.Exclusive
		e.NUMAIDs, e.MilliCPU, e.Amounts = was.NUMAIDs, was.MilliCPU, was.Amounts
	}
	if e.Devices == nil {
		e.Devices = was.Devices
	}
	return e
}

// Ended reports whether a pod's containers have run for the last time.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// holderRole is the role of a pod that was given CPUs: what its class says, and shared with BE where the class does not
// bind, as on nodes whose policy binds every pod. BE and SYSTEM pods never hold CPUs, whatever is written on them.
func holderRole(role qos.Role, class qos.Class) qos.Role {
	switch {
	case role.Binds() || class == qos.BE || class == qos.System:
		return role
	case class == qos.LSE:
		return qos.Exclusive
	}
	return qos.ExclusiveWithBE
}

// readStatus reads what the scheduler wrote. A CPU list that cannot be read is left out.
func readStatus(pod *corev1.Pod) (annotation.ResourceStatus, error) {
	status, _, err := parse(pod.Annotations, annotation.ResourceStatusKey, annotation.ParseResourceStatus)
	if err != nil {
		return status, err
	}
	ids, err := cpuset.ParseIDs(status.CPUSet)
	status.CPUSet = cpuset.FormatIDs(ids)
	return status, err
}

// poolNodes are the NUMA nodes that a pod is constrained to: those of its shared pools, else those where it has CPU.
func poolNodes(status annotation.ResourceStatus) []int {
	var nodes []int
	for _, p := range status.CPUSharedPools {
		nodes = append(nodes, int(p.Node))
	}
	if len(status.CPUSharedPools) == 0 {
		for _, n := range status.NUMANodeResources {
			if !n.Resources.Cpu().IsZero() {
				nodes = append(nodes, int(n.Node))
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
