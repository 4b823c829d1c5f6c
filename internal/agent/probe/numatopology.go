package probe

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Numatopology computes the object that is published for Volcano, without the annotation timestamp; nil while the
// kubelet is not asked. Every number is written, every list is sorted, and the policy none is a word.
//
// CPUs that no pod gets (the kubelet's, the node's and the system's reserved ones) are not among the free ones, and
// resReserved.cpu is 0: Volcano would take that many CPUs off once more, with ids of its own choice.
func Numatopology(in Input) *nodeinfo.Numatopology {
	if in.Mode == annotation.ModeBlind {
		return nil
	}
	facts := in.drafted().Facts
	v := ledger.New(facts, in.Entries...).View()
	m := v.Machine()
	if m == nil {
		return nil // the account says why
	}
	o := &nodeinfo.Numatopology{
		TypeMeta:   metav1.TypeMeta{APIVersion: nodeinfo.GroupVersion().String(), Kind: "Numatopology"},
		ObjectMeta: metav1.ObjectMeta{Name: in.NodeName, OwnerReferences: ownedBy(in.Node)},
		Spec: nodeinfo.NumatopoSpec{
			Policies: map[string]string{
				nodeinfo.CPUManagerPolicy:      policyOf(in.Kubelet),
				nodeinfo.TopologyManagerPolicy: cmp.Or(in.Kubelet.Topology.Policy, annotation.KubeletTopologyNone),
			},
			ResReserved: map[string]string{string(corev1.ResourceCPU): "0"},
			CPUDetail:   map[string]nodeinfo.CPUInfo{},
		},
	}
	free := v.Allocatable().Minus(facts.NodeReserved).Minus(facts.System)
	for _, p := range in.Pins {
		if pinned, _, err := m.ParseList(p.CPUSet); err == nil {
			free = free.Minus(pinned)
		}
	}
	online := m.Online()
	o.Spec.NumaResMap = map[string]nodeinfo.ResourceInfo{
		string(corev1.ResourceCPU): {Allocatable: m.FormatList(free), Capacity: int64(online.Len())},
	}
	for _, c := range detail(in.Machine).Detail {
		o.Spec.CPUDetail[strconv.Itoa(int(c.ID))] = nodeinfo.CPUInfo{
			NUMANodeID: int64(c.Node), SocketID: int64(c.Socket), CoreID: int64(c.Core),
		}
	}
	o.Spec.PodAllocations = podAllocations(in, v)
	return o
}

// podAllocations are the pods with CPUs or memory of their own, by namespace, name and UID.
func podAllocations(in Input, v *ledger.View) []nodeinfo.PodAllocation {
	list := []nodeinfo.PodAllocation{}
	for _, pod := range in.Pods {
		if convert.Ended(pod.Pod) {
			continue
		}
		containers := containerAllocations(in, pod)
		if e, ok := v.Entry(string(pod.UID)); ok && e.Role.Binds() && e.CPUList != "" {
			containers = ownAllocations(pod.Pod, e.CPUList, containers)
		}
		if len(containers) == 0 {
			continue
		}
		a := nodeinfo.PodAllocation{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name}
		for _, name := range slices.Sorted(maps.Keys(containers)) {
			a.ContainerAllocations = append(a.ContainerAllocations,
				nodeinfo.ContainerAllocation{Name: name, Allocations: containers[name]})
		}
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b nodeinfo.PodAllocation) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return list
}

// containerAllocations is what the kubelet's managers gave to a pod's containers: CPU ids where the kubelet decides
// about them, amounts of memory.
func containerAllocations(in Input, pod *convert.Pod) map[string]map[string]string {
	decides := in.Mode == annotation.ModeFollow ||
		slices.ContainsFunc(in.Pins, func(p annotation.PodCPUAlloc) bool { return p.UID == pod.UID })
	out := map[string]map[string]string{}
	for name, c := range placedContainers(in, pod) {
		allocations := map[string]string{}
		if c.CPUs != "" && decides {
			allocations[string(corev1.ResourceCPU)] = c.CPUs
		}
		if len(c.Memory) > 0 {
			allocations[string(corev1.ResourceMemory)] = sum(c.Memory)
		}
		for kind, amounts := range c.Hugepages {
			allocations[kind] = sum(amounts)
		}
		if len(allocations) > 0 {
			out[name] = allocations
		}
	}
	return out
}

func sum(amounts map[string]resource.Quantity) string {
	var total resource.Quantity
	for _, q := range amounts {
		total.Add(q)
	}
	return total.String()
}

// ownAllocations puts the CPUs that Tenon gave to a pod under each of its containers: they share them.
func ownAllocations(pod *corev1.Pod, cpus string, containers map[string]map[string]string,
) map[string]map[string]string {
	ids, err := cpuset.ParseIDs(cpus)
	if err != nil || len(ids) == 0 {
		return containers
	}
	delete(containers, "") // the kubelet's word about the whole pod does not hold
	for _, c := range pod.Spec.Containers {
		if containers[c.Name] == nil {
			containers[c.Name] = map[string]string{}
		}
		containers[c.Name][string(corev1.ResourceCPU)] = cpuset.FormatIDs(ids)
	}
	return containers
}
