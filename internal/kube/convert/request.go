package convert

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Request translates a pod that is not bound yet. A pod that can never work as written is refused: BadAnnotation (its
// Extra is the byte of the annotation), InvalidField, CPURequestNotInteger, RequestLimitMismatch or
// InvalidDeviceRequest, with a detail that names the field. It is called once per pod and scheduling cycle.
func Request(pod *corev1.Pod, args Args) (*place.Request, why.Reason, string) {
	class, ok := ParseClass(pod.Labels[annotation.QoSClass])
	if !ok {
		return nil, why.Reason{Code: why.InvalidField}, "metadata.labels[" + annotation.QoSClass + "]: " +
			annotation.Unsupported(pod.Labels[annotation.QoSClass], ClassNames()...)
	}
	kube := kubeClass(pod)
	r := &place.Request{
		UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Class: class,
		Default:      args.DefaultBind,
		RequestMilli: MilliCPU(pod),
	}
	r.LimitMilli, _ = podLimitMilli(pod)
	r.Role = qos.RoleOf(qos.Pod{Class: class, Band: bandOf(pod), Kube: kube, MilliCPU: r.RequestMilli})
	r.Created = created(pod)
	extended := anyName(pod, hasDomain) // one look for most pods, which name none
	if extended || kube == qos.Guaranteed {
		r.Kubelet = kubeletPod(pod, kube)
	}
	if reason, detail := readSpec(pod, r, args); !reason.OK() {
		return nil, reason, detail
	}
	if reason, detail := readTopology(pod, r, args); !reason.OK() {
		return nil, reason, detail
	}
	if extended && args.Devices {
		if reason, detail := readDevices(pod, r, args.Kinds); !reason.OK() {
			return nil, reason, detail
		}
	}
	if r.Role.Binds() {
		if reason, detail := wholeCPUs(pod, r); !reason.OK() {
			return nil, reason, detail
		}
		r.CPUs = int(r.RequestMilli / 1000)
	}
	if r.CPUs > 0 || r.Role == qos.SharedPool {
		r.Needs = needs(pod)
	}
	if args.BindAllPodsOnPolicyNodes && r.Role == qos.SharedPool && r.RequestMilli > 0 {
		r.OnPolicyNodes = bound(r)
	}
	return r, why.Reason{}, ""
}

// bound is r where it gets CPUs of its own although its class does not bind.
func bound(r *place.Request) *place.Request {
	b := *r
	b.Role, b.ConstrainedBurst = holderRole(r.Role, r.Class), false
	if r.RequestMilli%1000 == 0 {
		b.CPUs = int(r.RequestMilli / 1000)
	}
	return &b
}

// ClassNames are the values of the label qosClass, in the order in which refusals list them.
func ClassNames() []string { return []string{"LSE", "LSR", "LS", "BE", "SYSTEM"} }

func readSpec(pod *corev1.Pod, r *place.Request, args Args) (why.Reason, string) {
	spec, _, err := parse(pod.Annotations, annotation.ResourceSpecKey, annotation.ParseResourceSpec)
	if err != nil {
		return badAnnotation(annotation.ResourceSpecKey, err)
	}
	r.Required, r.Preferred = bindWish(spec.RequiredCPUBindPolicy), bindWish(spec.PreferredCPUBindPolicy)
	r.Exclusive = exclusive(spec.PreferredCPUExclusivePolicy, args.DefaultExclusive)
	isolation, _, err := parse(pod.Annotations, annotation.IsolationKey, annotation.ParseIsolation)
	if err != nil {
		return badAnnotation(annotation.IsolationKey, err)
	}
	wishes := [...]string{
		place.PreferIsolated: annotation.IsolationPrefer, place.RequireIsolated: annotation.IsolationRequire,
	}
	r.Isolated = place.Isolation(index(wishes[:], isolation))
	if spec.PreferredCPUBindPolicy == annotation.BindConstrainedBurst {
		if !MayBurst(pod) {
			return badAnnotation(annotation.ResourceSpecKey, errors.New(BurstRule))
		}
		r.ConstrainedBurst = true
	}
	return why.Reason{}, ""
}

// BurstRule is the refusal of a ConstrainedBurst that MayBurst does not grant.
const BurstRule = "ConstrainedBurst needs QoS LS or Burstable and a cpu limit"

// MayBurst reports whether a pod may ask for ConstrainedBurst: it runs on the CPU shared pool and every container has a
// CPU limit.
func MayBurst(pod *corev1.Pod) bool {
	class, _, kube := PodQoS(pod)
	if class != qos.LS && (class != qos.None || kube == qos.BestEffort) {
		return false
	}
	_, limited := podLimitMilli(pod)
	return limited
}

// bindWish reads a CPU bind policy of the resource-spec; any policy but the two that bind is ignored.
func bindWish(policy string) place.BindWish {
	wishes := [...]string{
		place.WantFullPCPUs: annotation.BindFullPCPUs, place.WantSpreadByPCPUs: annotation.BindSpreadByPCPUs,
	}
	return place.BindWish(index(wishes[:], policy))
}

func readTopology(pod *corev1.Pod, r *place.Request, args Args) (why.Reason, string) {
	spec, _, err := parse(pod.Annotations, annotation.NUMATopologySpecKey, annotation.ParseNUMATopologySpec)
	if err != nil {
		return badAnnotation(annotation.NUMATopologySpecKey, err)
	}
	r.Topology, r.NUMAExclusive = topologyPolicy(spec.NUMATopologyPolicy), numaExclusive(spec)
	return readVolcano(pod, spec.NUMATopologyPolicy, r, args)
}

// topologyPolicy translates a name that its codec has checked; "" is None.
func topologyPolicy(name string) hint.Policy {
	policies := [...]string{
		hint.BestEffort: annotation.TopologyBestEffort, hint.Restricted: annotation.TopologyRestricted,
		hint.SingleNUMANode: annotation.TopologySingleNUMANode,
	}
	return hint.Policy(index(policies[:], name))
}

func numaExclusive(spec annotation.NUMATopologySpec) place.NUMAExclusive {
	switch {
	case spec.SingleNUMANodeExclusive == "Preferred":
		return place.PreferNUMAExclusive
	case spec.SingleNUMANodeExclusive == "Required", spec.NUMATopologyPolicy != "":
		return place.RequireNUMAExclusive
	}
	return place.ShareNUMANodes
}

func badAnnotation(key string, err error) (why.Reason, string) {
	reason := why.Reason{Code: why.BadAnnotation}
	if e := (*annotation.Error)(nil); errors.As(err, &e) {
		reason.Extra = e.Offset
	}
	return reason, fmt.Sprintf("metadata.annotations[%s]: %v", key, err)
}

// wholeCPUs applies the first principle of seed 000 to a pod that binds: requests equal limits, and whole CPUs.
func wholeCPUs(pod *corev1.Pod, r *place.Request) (why.Reason, string) {
	if field, ok := Unequal(pod); ok {
		return why.Reason{Code: why.RequestLimitMismatch},
			fmt.Sprintf("%s: requests must equal limits for %s Pod", field, r.Class)
	}
	if r.RequestMilli%1000 != 0 {
		text := "the requested CPUs of " + r.Class.String() + " Pod must be integer"
		if field, parts := CPURequest(pod); field != containersCPU {
			text += ": " + parts
		}
		return why.Reason{
			Code: why.CPURequestNotInteger, Resource: why.CPU, Unit: why.MilliCPU, Asked: r.RequestMilli,
			Free: r.RequestMilli / 1000 * 1000,
		}, text
	}
	return why.Reason{}, ""
}

// Unequal finds the first container, or the pod-level resources, whose request of cpu or memory is not its limit. A
// limit without a request is a request of the same amount, as the API server completes it.
func Unequal(pod *corev1.Pod) (field string, found bool) {
	for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if r := pod.Spec.Resources; r != nil {
			if unequal(r, name) {
				return fmt.Sprintf("spec.resources.limits[%s]", name), true
			}
			if _, ok := r.Limits[name]; ok {
				continue // the pod's own amount counts, not those of its containers
			}
		}
		for field, c := range containers(pod) {
			if unequal(&c.Resources, name) {
				return fmt.Sprintf("%s.resources.limits[%s]", field, name), true
			}
		}
	}
	return "", false
}

func unequal(r *corev1.ResourceRequirements, name corev1.ResourceName) bool {
	request, requested := r.Requests[name]
	return requested && request.Cmp(r.Limits[name]) != 0 // a limit alone is completed
}
