package diag

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
)

// nodeState is the scheduler's view of a node: field names are contract.
type nodeState struct {
	Node             *corev1.Node        `json:"node"`
	Pods             []*corev1.Pod       `json:"pods"`
	PodsHidden       int                 `json:"podsHidden,omitempty"`
	Requested        map[string]string   `json:"requested"`
	NonZeroRequested map[string]string   `json:"nonZeroRequested"`
	Allocatable      map[string]string   `json:"allocatable"`
	Remaining        map[string]string   `json:"remaining"`
	UsedPorts        map[string][]string `json:"usedPorts"`
	PVCRefCounts     map[string]int      `json:"pvcRefCounts"`
	Generation       int64               `json:"generation"`
}

// nodeStateOf returns the state of a node for a caller who may read these namespaces. Pods and claims of other
// namespaces are left out, but their amounts are in the sums. Managed fields are left out.
func nodeStateOf(n fwk.NodeInfo, mayRead func(namespace string) bool) nodeState {
	requested, allocatable := amounts(n.GetRequested()), amounts(n.GetAllocatable())
	requested[corev1.ResourcePods] = int64(len(n.GetPods()))
	allocatable[corev1.ResourcePods] = int64(n.GetAllocatable().GetAllowedPodNumber())
	remaining := map[corev1.ResourceName]int64{}
	for name, have := range allocatable {
		remaining[name] = have - requested[name]
	}
	node := n.Node().DeepCopy()
	node.ManagedFields = nil
	out := nodeState{
		Node: node, Pods: []*corev1.Pod{},
		Requested: quantities(requested), NonZeroRequested: quantities(amounts(n.GetNonZeroRequested())),
		Allocatable: quantities(allocatable), Remaining: quantities(remaining),
		UsedPorts: map[string][]string{}, PVCRefCounts: map[string]int{}, Generation: n.GetGeneration(),
	}
	for _, p := range n.GetPods() {
		if !mayRead(p.GetPod().Namespace) {
			out.PodsHidden++
			continue
		}
		out.Pods = append(out.Pods, withoutSecrets(p.GetPod()))
	}
	slices.SortFunc(out.Pods, func(a, b *corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	for ip, ports := range n.GetUsedPorts() {
		for p := range ports {
			out.UsedPorts[ip] = append(out.UsedPorts[ip], fmt.Sprintf("%s/%d", p.Protocol, p.Port))
		}
		slices.Sort(out.UsedPorts[ip])
	}
	for claim, count := range n.GetPVCRefCounts() {
		if namespace, _ := namespaceOf(claim); mayRead(namespace) {
			out.PVCRefCounts[claim] = count
		}
	}
	return out
}

// amounts are milli-CPU and plain numbers of the others, by resource name.
func amounts(r fwk.Resource) map[corev1.ResourceName]int64 {
	out := map[corev1.ResourceName]int64{
		corev1.ResourceCPU: r.GetMilliCPU(), corev1.ResourceMemory: r.GetMemory(),
		corev1.ResourceEphemeralStorage: r.GetEphemeralStorage(),
	}
	for name, value := range r.GetScalarResources() {
		out[name] = value
	}
	return out
}

// quantities returns amounts as text: memory and storage with binary suffixes, all others as decimal numbers.
func quantities(amounts map[corev1.ResourceName]int64) map[string]string {
	out := make(map[string]string, len(amounts))
	for name, value := range amounts {
		q := resource.NewQuantity(value, resource.DecimalSI)
		switch name {
		case corev1.ResourceCPU:
			q = resource.NewMilliQuantity(value, resource.DecimalSI)
		case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			q.Format = resource.BinarySI
		}
		out[string(name)] = q.String()
	}
	return out
}

// withoutSecrets returns a copy of p with the fields that scheduling reads, without environment, commands and probes.
func withoutSecrets(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: *p.ObjectMeta.DeepCopy(), Spec: *p.Spec.DeepCopy(), Status: *p.Status.DeepCopy()}
	out.ManagedFields = nil
	delete(out.Annotations, corev1.LastAppliedConfigAnnotation)
	for _, list := range [][]corev1.Container{out.Spec.InitContainers, out.Spec.Containers} {
		for i, c := range list {
			list[i] = corev1.Container{
				Name: c.Name, Image: c.Image, Ports: c.Ports, Resources: c.Resources,
				RestartPolicy: c.RestartPolicy,
			}
		}
	}
	out.Spec.EphemeralContainers = nil
	return out
}
