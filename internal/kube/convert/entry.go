package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// Pod is a bound pod with its annotations parsed, once for all who look at it. It is not changed any more.
type Pod struct {
	*corev1.Pod
	// Entry is what the pod holds and Concerns whether the node's account needs it, as Entry returns them.
	Entry    ledger.Entry
	Concerns bool
	// Allocation is the resource-status, empty where it cannot be parsed.
	Allocation annotation.ResourceStatus
	// Problems is what could not be parsed.
	Problems []Problem
}

// ReadPod parses the annotations of a pod.
func ReadPod(pod *corev1.Pod) *Pod {
	p := &Pod{Pod: pod}
	add := func(key string, err error) {
		if err != nil {
			p.Problems = append(p.Problems, Problem{
				Object: "Pod/" + pod.Namespace + "/" + pod.Name, Key: key,
				Value: cut(pod.Annotations[key]), Text: err.Error(),
			})
		}
	}
	var err error
	p.Allocation, err = readStatus(pod)
	add(annotation.ResourceStatusKey, err)
	p.Entry, p.Concerns = entryOf(Args{DefaultExclusive: DefaultExclusive}, pod, p.Allocation)
	_, err = prediction(pod, &kubelet.Pod{})
	add(annotation.PredictedPlacementKey, err)
	if text, ok := pod.Annotations[annotation.ResourceSpecKey]; ok {
		_, _, err := annotation.ParseResourceSpec(text)
		add(annotation.ResourceSpecKey, err)
	}
	return p
}

// NodeUID returns the UID that the kubelet and the runtime know a pod by. That of a static pod is not its API object's:
// the object is a mirror, which names the pod.
func NodeUID(pod *corev1.Pod) string {
	if static := pod.Annotations[corev1.MirrorPodAnnotationKey]; static != "" {
		return static
	}
	return string(pod.UID)
}

// Entry translates what a bound pod holds, as far as its annotations can be parsed.
// concerns is false when the node's account does not need the pod: it is not bound or has ended, and e is zero, or it
// holds nothing.
func Entry(pod *corev1.Pod) (e ledger.Entry, concerns bool) {
	return EntryUnder(Args{DefaultExclusive: DefaultExclusive}, pod)
}

// DefaultExclusive is the exclusive policy of pods that declare none, unless the plugin's arguments say otherwise.
const DefaultExclusive = cpualloc.NotExclusive

// EntryUnder is Entry for a scheduler with arguments: they give pods that declare none another exclusive policy, and
// have the resources that pods hold.
func EntryUnder(args Args, pod *corev1.Pod) (e ledger.Entry, concerns bool) {
	status, _ := readStatus(pod)
	return entryOf(args, pod, status)
}

func entryOf(args Args, pod *corev1.Pod, status annotation.ResourceStatus) (e ledger.Entry, concerns bool) {
	if pod.Spec.NodeName == "" || Ended(pod) {
		return ledger.Entry{}, false
	}
	class, band, kube := PodQoS(pod)
	milli := boundMilli(pod)
	e = ledger.Entry{
		UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Class: class,
		Role: qos.RoleOf(qos.Pod{Class: class, Band: band, Kube: kube, MilliCPU: milli}),
	}
	switch {
	case status.CPUSet != "":
		e.Role = holderRole(e.Role, class)
		if e.Role.Binds() {
			e.CPUList = status.CPUSet
			e.Exclusive = declaredExclusive(pod, args.DefaultExclusive)
			e.Amounts = held(pod, status, args.Resources)
		}
	case e.Role == qos.SharedPool:
		if e.NUMAIDs = poolNodes(status); e.NUMAIDs != nil {
			e.MilliCPU, e.Amounts = milli, held(pod, status, args.Resources)
		}
	}
	e.Guest = guest(pod, kube)
	return e, e.CPUList != "" || e.NUMAIDs != nil || e.Guest != nil
}

// Keeping returns e with what was, an earlier entry of the same pod on the same node, held by its resource-status,
// where e holds nothing by it: the scheduler never takes a resource-status back, so it was removed or damaged, and the
// agent keeps the pod where it runs.
func Keeping(e, was ledger.Entry) ledger.Entry {
	if e.CPUList == "" && e.NUMAIDs == nil && (was.CPUList != "" || was.NUMAIDs != nil) {
		e.Role, e.CPUList, e.Exclusive = was.Role, was.CPUList, was.Exclusive
		e.NUMAIDs, e.MilliCPU, e.Amounts = was.NUMAIDs, was.MilliCPU, was.Amounts
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

func declaredExclusive(pod *corev1.Pod, otherwise cpualloc.Exclusive) cpualloc.Exclusive {
	text, ok := pod.Annotations[annotation.ResourceSpecKey]
	if !ok {
		return otherwise
	}
	spec, _, err := annotation.ParseResourceSpec(text)
	if err != nil {
		return otherwise
	}
	return exclusive(spec.PreferredCPUExclusivePolicy, otherwise)
}

// readStatus reads what the scheduler wrote. A CPU list that cannot be read is left out.
func readStatus(pod *corev1.Pod) (annotation.ResourceStatus, error) {
	text, ok := pod.Annotations[annotation.ResourceStatusKey]
	if !ok {
		return annotation.ResourceStatus{}, nil
	}
	status, _, err := annotation.ParseResourceStatus(text)
	if err != nil {
		return annotation.ResourceStatus{}, err
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
