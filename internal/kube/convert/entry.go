package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
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
	pod = args.Schedulers.Trusted(pod)
	d := parseDecisions("Pod/"+pod.Namespace+"/"+pod.Name, pod.Annotations)
	p := &Pod{Pod: pod, Allocation: d.allocation, Problems: d.problems}
	if pod.Spec.NodeName == "" || Ended(pod) {
		return p
	}
	class, band, kube := PodQoS(pod)
	milli := boundMilli(pod)
	p.Entry = ledger.Entry{
		UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Class: class,
		Role:        qos.RoleOf(qos.Pod{Class: class, Band: band, Kube: kube, MilliCPU: milli}),
		Unallocated: len(d.devices) == 0 && len(ServedDevices(pod)) > 0,
	}
	e := &p.Entry
	amounts := func() []align.Amount { return held(pod, p.Allocation) }
	if e.Reserves = IsReservePod(pod); e.Reserves { // it requests what is left, and the kubelet does not know it
		e.Once, e.Unallocated = pod.Annotations[annotation.ReservePodKey] == reservesOnce, false
		e.Namespace, e.Name = ledger.OfReservation, reservationOf(pod)
		milli = milliOnNodes(p.Allocation)
		amounts = func() []align.Amount { return onNodes(p.Allocation) }
	}
	d.hold(e, milli, args.DefaultExclusive, amounts)
	if ReservingPod(pod) != nil {
		e.Reserves, e.Once = true, true
	}
	if e.Within = UsedReservation(pod); !IsReservePod(pod) {
		e.Guest = guest(pod, kube, d.predicted)
	}
	p.Concerns = e.CPUList != "" || e.NUMAIDs != nil || e.Guest != nil || e.Devices != nil ||
		e.Unallocated
	return p
}

// Sandbox is a pod as far as a container runtime knows it: by its identity, its labels and annotations at the moment at
// which its sandbox was run, and its class of Kubernetes.
type Sandbox struct {
	UID, Namespace, Name string
	Labels, Annotations  map[string]string
	Kube                 qos.Kube
}

// ReadSandbox returns what a pod holds by its annotations, while its API object is not known: the entry, the
// resource-status and what could not be parsed. The pod's requests are not known either. ReadSandbox assumes that the
// pod requests some CPU, so that a pod of class LSE or LSR does not run on the shared pool before its API object is
// known.
func ReadSandbox(s Sandbox) (ledger.Entry, annotation.ResourceStatus, []Problem) {
	const milli = 1
	d := parseDecisions("Pod/"+s.Namespace+"/"+s.Name, s.Annotations)
	class, _ := ParseClass(s.Labels[annotation.QoSClass])
	band, labelled := labelledBand(s.Labels)
	if !labelled {
		band = qos.NoBand
	}
	e := ledger.Entry{
		UID: s.UID, Namespace: s.Namespace, Name: s.Name, Class: class,
		Role: qos.RoleOf(qos.Pod{Class: class, Band: band, Kube: s.Kube, MilliCPU: milli}),
	}
	d.hold(&e, milli, cpualloc.NotExclusive, func() []align.Amount { return onNodes(d.allocation) })
	return e, d.allocation, d.problems
}

// decisions are the parsed annotations by which the scheduler, or a user, says what a pod gets. What cannot be parsed
// is zero and in problems.
type decisions struct {
	allocation annotation.ResourceStatus
	predicted  *tenancy.Prediction
	spec       annotation.ResourceSpec
	devices    []device.Grant
	problems   []Problem
}

// parseDecisions parses the annotations of an object, such as Pod/ns/name.
func parseDecisions(object string, annotations map[string]string) (d decisions) {
	report := func(key string, err error) {
		if err != nil {
			d.problems = append(d.problems, Problem{
				Object: object, Key: key, Value: cut(annotations[key]), Text: err.Error(),
			})
		}
	}
	var err error
	d.allocation, err = readStatus(annotations)
	report(annotation.ResourceStatusKey, err)
	d.predicted, err = prediction(annotations)
	report(annotation.PredictedPlacementKey, err)
	d.spec, _, err = parse(annotations, annotation.ResourceSpecKey, annotation.ParseResourceSpec)
	report(annotation.ResourceSpecKey, err)
	d.devices, err = Grants(annotations)
	report(annotation.DeviceAllocatedKey, err)
	return d
}

// hold adds to an entry, whose class and role are set, what its pod holds. milli is the pod's CPU request, otherwise
// the exclusive policy of a pod that names none, and amounts returns what the pod holds besides CPUs.
func (d *decisions) hold(e *ledger.Entry, milli int64, otherwise cpualloc.Exclusive, amounts func() []align.Amount) {
	e.Devices = d.devices
	switch {
	case d.allocation.CPUSet != "":
		e.Role = holderRole(e.Role, e.Class)
		if e.Role.Binds() {
			e.CPUList = d.allocation.CPUSet
			e.Exclusive = exclusive(d.spec.PreferredCPUExclusivePolicy, otherwise)
			e.Amounts = amounts()
		}
	case e.Role == qos.SharedPool:
		if e.NUMAIDs = poolNodes(d.allocation); e.NUMAIDs != nil {
			e.MilliCPU, e.Amounts = milli, amounts()
		}
	}
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

// milliOnNodes is the CPU that NUMA nodes were chosen for.
func milliOnNodes(status annotation.ResourceStatus) (milli int64) {
	for _, n := range status.NUMANodeResources {
		milli += n.Resources.Cpu().MilliValue()
	}
	return milli
}

// readStatus reads what the scheduler wrote. A CPU list that cannot be read is left out.
func readStatus(annotations map[string]string) (annotation.ResourceStatus, error) {
	status, _, err := parse(annotations, annotation.ResourceStatusKey, annotation.ParseResourceStatus)
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
