package convert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// importedVersion is assumed for the kubelet of a Node without a version; Nodes of a cluster have one.
const importedVersion = "v1.36.0"

func (r *factReader) onNuma(key, value string, err error) {
	r.report("Numatopology/"+r.numa.Name, key, value, err)
}

// importMachine reads the machine from spec.cpuDetail. Where that contradicts itself, or the free CPUs cannot be read,
// nothing of the object is believed.
func (r *factReader) importMachine() {
	detail, err := cpuDetail(r.numa.Spec.CPUDetail)
	key := "spec.cpuDetail"
	if err == nil {
		r.facts.Machine, err = r.known.machine(detail.String(), archOf(r.node), r.shape)
	}
	if err == nil {
		if _, err = cpuset.ParseIDs(r.numa.Spec.NumaResMap[string(corev1.ResourceCPU)].Allocatable); err != nil {
			key = "spec.numares[cpu].allocatable"
		}
	}
	if err != nil {
		r.facts.Machine, r.facts.Fault = nil, why.Reason{Code: why.InvalidTopology}
		r.onNuma(key, "", err)
		r.problems[len(r.problems)-1].Kind = BadTopology
	}
}

// cpuDetail lists the CPUs by id. The exporter leaves numbers out that are 0. Its core is the kernel's core_id, which
// repeats on every socket; the machine identifies cores by socket and core.
func cpuDetail(cpus map[string]nodeinfo.CPUInfo) (annotation.CPUTopologyDetail, error) {
	var d annotation.CPUTopologyDetail
	if len(cpus) == 0 {
		return d, errors.New("no CPU can be parsed")
	}
	for _, key := range slices.Sorted(maps.Keys(cpus)) {
		c := cpus[key]
		id, err := strconv.ParseUint(key, 10, 31)
		if err != nil {
			return d, fmt.Errorf("%q: want the number of a CPU", key)
		}
		for _, part := range [...]struct {
			name  string
			value int64
		}{{"numa", c.NUMANodeID}, {"socket", c.SocketID}, {"core", c.CoreID}} {
			if part.value < 0 || part.value > math.MaxInt32 {
				return d, fmt.Errorf("%s.%s: %d: want 0 to %d", key, part.name, part.value, math.MaxInt32)
			}
		}
		d.Detail = append(d.Detail, annotation.CPUInfo{
			ID: int32(id), Core: int32(c.CoreID), Socket: int32(c.SocketID), Node: int32(c.NUMANodeID),
		})
	}
	slices.SortFunc(d.Detail, func(a, b annotation.CPUInfo) int { return cmp.Compare(a.ID, b.ID) })
	return d, nil
}

// importedCPUManager is the kubelet's CPU manager. Options and reservedSystemCPUs are not exported: the reserved CPUs
// are those that a kubelet without either takes for the amount, or, without an amount, those that are neither allocated
// nor allocatable.
func (r *factReader) importedCPUManager() annotation.KubeletCPUManager {
	kube := annotation.KubeletCPUManager{Policy: annotation.KubeletPolicyNone}
	switch policy := r.numa.Spec.Policies[nodeinfo.CPUManagerPolicy]; policy {
	case "", annotation.KubeletPolicyNone:
		return kube
	case annotation.KubeletPolicyStatic:
		kube.Policy = policy
	default:
		r.onNuma("spec.policies["+nodeinfo.CPUManagerPolicy+"]", policy,
			errors.New(annotation.Unsupported(policy, annotation.KubeletPolicyNone, annotation.KubeletPolicyStatic)))
		return kube
	}
	if m := r.facts.Machine; m != nil {
		reserved := r.importedReservation(m)
		kube.ReservedCPUs = m.FormatList(reserved)
	}
	return kube
}

func (r *factReader) importedReservation(m *topo.Machine) cpuset.Set {
	const key = "spec.resReserved[cpu]"
	text := r.numa.Spec.ResReserved[string(corev1.ResourceCPU)]
	amount, err := annotation.ParseQuantity(cmp.Or(text, "0"))
	if err != nil || amount.Sign() < 0 {
		r.onNuma(key, text, fmt.Errorf("want an amount of CPU, 0 or more: %w",
			cmp.Or(err, errors.New("it is negative"))))
		return cpuset.Set{}
	}
	if amount.IsZero() {
		if r.numa.Spec.PodAllocations == nil {
			return cpuset.Set{} // busy CPUs may be any pod's
		}
		return r.busy().Minus(r.allocated())
	}
	model, _ := kubelet.ModelOf(cmp.Or(r.node.Status.NodeInfo.KubeletVersion, importedVersion))
	online := m.Online()
	set, ok := kubelet.ReservedCPUs(m, kubelet.Config{Model: model, CPU: kubelet.CPU{Static: true}},
		amount.MilliValue())
	if !ok {
		r.onNuma(key, text, fmt.Errorf("want more than 0 and no more than the %d CPUs of the machine", online.Len()))
	}
	return set
}

// busy returns the CPUs that are not among the free ones. It is empty if free CPUs are not exported, as by exporters
// that cannot read the kubelet's state.
func (r *factReader) busy() cpuset.Set {
	cpu, exported := r.numa.Spec.NumaResMap[string(corev1.ResourceCPU)]
	if r.facts.Machine == nil || !exported || cpu.Allocatable == "" && cpu.Capacity == 0 {
		return cpuset.Set{}
	}
	free, _, _ := r.facts.Machine.ParseList(cpu.Allocatable)
	return r.facts.Machine.Online().Minus(free)
}

func (r *factReader) allocated() cpuset.Set {
	var all cpuset.Set
	for i := range r.numa.Spec.PodAllocations {
		for _, c := range r.numa.Spec.PodAllocations[i].ContainerAllocations {
			cpus := r.cpus(c.Allocations[string(corev1.ResourceCPU)], func(error) {}) // reported by importPins
			all.Include(&cpus)
		}
	}
	return all
}

// importPins reads which pods the kubelet has given which CPUs, and which CPUs are gone without a word of the pod.
func (r *factReader) importPins() {
	if r.facts.Machine == nil || !r.facts.Model.Config.CPU.Static {
		return
	}
	if cpu := r.numa.Spec.NumaResMap[string(corev1.ResourceCPU)]; cpu.Allocatable != "" {
		r.cpus(cpu.Allocatable, func(err error) { r.onNuma("spec.numares[cpu].allocatable", cpu.Allocatable, err) })
	}
	known := r.facts.Model.Config.CPU.Reserved
	for i := range r.numa.Spec.PodAllocations {
		p := &r.numa.Spec.PodAllocations[i]
		var cpus cpuset.Set
		for _, c := range p.ContainerAllocations {
			list := c.Allocations[string(corev1.ResourceCPU)]
			set := r.cpus(list, func(err error) {
				r.onNuma(fmt.Sprintf("spec.podAllocations[%d].containerAllocations[%s]", i, c.Name), list, err)
			})
			cpus.Include(&set)
		}
		switch {
		case cpus.IsEmpty():
		case p.UID == "" && p.Name == "":
			r.onNuma(fmt.Sprintf("spec.podAllocations[%d]", i), "",
				errors.New("want the uid of a pod, or its namespace and name"))
		default:
			r.facts.Given = append(r.facts.Given, tenancy.Grant{
				UID: p.UID, Namespace: p.Namespace, Name: p.Name, CPUs: cpus,
			})
			known.Include(&cpus)
		}
	}
	if unclaimed := r.busy().Minus(known); !unclaimed.IsEmpty() {
		r.facts.Given = append(r.facts.Given, tenancy.Grant{CPUs: unclaimed})
	}
}

// importedTopologyPolicy returns the kubelet's topology policy; false if it is not exported.
func (r *factReader) importedTopologyPolicy() (string, bool) {
	if r.numa == nil {
		return "", false
	}
	policy, exported := r.numa.Spec.Policies[nodeinfo.TopologyManagerPolicy]
	if !exported || policy == "" {
		return annotation.KubeletTopologyNone, true
	}
	if _, ok := hint.ParsePolicy(policy); !ok {
		r.onNuma("spec.policies["+nodeinfo.TopologyManagerPolicy+"]", policy, errors.New(annotation.Unsupported(policy,
			topologyPolicyNames()...)))
		return annotation.KubeletTopologyNone, true
	}
	return policy, true
}

// readVolcano reads the annotation of Volcano, an alias of the policy in numa-topology-spec: own, "" without. A pod
// that names two different policies is refused, for neither can be the one that is meant, and so is a pod with a policy
// that no kubelet would pin (seed 004); the webhook says the same with more words.
func readVolcano(pod *corev1.Pod, own annotation.NUMATopologyPolicy, r *place.Request, args Args) (why.Reason, string) {
	policy, found, err := parse(pod.Annotations, annotation.VolcanoTopologyPolicy,
		annotation.ParseVolcanoTopologyPolicy)
	if err != nil {
		return badAnnotation(annotation.VolcanoTopologyPolicy, err)
	}
	if !found {
		return why.Reason{}, ""
	}
	if own != "" && own != policy {
		return badAnnotation(annotation.VolcanoTopologyPolicy,
			fmt.Errorf("conflicting values for %s and its alias %s: %s and %s",
				annotation.NUMATopologySpecKey, annotation.VolcanoTopologyPolicy, own, policy))
	}
	r.Topology = topologyPolicy(policy)
	if r.Topology == hint.None {
		return why.Reason{}, ""
	}
	r.Volcano, r.SamePolicy = r.Topology, args.VolcanoStrictPolicyMatch
	return pinnedWhole(pod, pod.Annotations[annotation.VolcanoTopologyPolicy])
}

// pinnedWhole refuses pods that a kubelet would not pin as a whole: some container asks for no whole CPU, or the pod is
// not Guaranteed.
func pinnedWhole(pod *corev1.Pod, policy string) (why.Reason, string) {
	for field, c := range containers(pod) {
		if milli := requestOf(&c.Resources); milli <= 0 || milli%1000 != 0 {
			return why.Reason{
				Code: why.CPURequestNotInteger, Resource: why.CPU, Unit: why.MilliCPU, Asked: milli,
				Free: milli / 1000 * 1000,
			}, fmt.Sprintf("the cpu request isn't an integer in %s[%d]", strings.TrimSuffix(field.list, "s"), field.i)
		}
	}
	if kubeClass(pod) == qos.Guaranteed {
		return why.Reason{}, ""
	}
	field, found := Unequal(pod)
	if !found {
		field = "spec.containers" // a limit of cpu or memory is missing
	}
	return why.Reason{Code: why.RequestLimitMismatch},
		fmt.Sprintf(
			"%s: %s %s needs a Guaranteed pod: every container with requests and limits of cpu and memory that are "+
				"equal",
			field, annotation.VolcanoTopologyPolicy, policy)
}
