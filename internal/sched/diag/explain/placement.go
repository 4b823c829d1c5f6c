package explain

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Pools of pods without exclusive CPUs.
const (
	PoolShared  = "shared"
	PoolBE      = "be"
	PoolSystem  = "system"
	PoolKubelet = "kubelet"
)

// MissingNode is the note for a pod that is bound to a node that does not exist.
func MissingNode(name string) string {
	return "node " + name + " does not exist: no kubelet runs the pod"
}

// PlacementOf returns the placement of a bound pod by the account of its node. v may be nil when nothing is known of
// the node.
func PlacementOf(pod *corev1.Pod, v *ledger.View) *Placement {
	out := &Placement{Node: pod.Spec.NodeName, NUMA: []NUMA{}}
	out.ofKubelet(pod, v)
	if v == nil || convert.Ended(pod) {
		return out
	}
	m := v.Machine()
	e, known := v.Entry(string(pod.UID))
	if !known {
		class, band, kubeClass := convert.PodQoS(pod)
		e = ledger.Entry{Role: qos.RoleOf(qos.Pod{Class: class, Band: band, Kube: kubeClass, MilliCPU: milliCPU(pod)})}
	}
	if e.Role.Binds() && (e.CPUList != "" || v.Facts().Mode != ledger.Follow) {
		out.CPUSet = e.CPUList
		if m != nil {
			cpus := v.CPUsOf(e.UID)
			out.CPUSet, out.NUMA = m.FormatList(cpus), byNUMA(m, cpus, true)
		}
		return out
	}
	cpus := cpuset.Set{}
	for _, pin := range v.Pins() {
		if pin.UID == string(pod.UID) {
			out.Pool, cpus = PoolKubelet, pin.CPUs
		}
	}
	if out.Pool == "" {
		if f := v.Facts(); f.Mode == ledger.Follow && f.Kubelet.Static && (e.Role.Binds() || e.KubeletCPUs > 0) {
			return out // the kubelet chooses its CPUs, and has not reported which
		}
		out.Pool, cpus = pool(v, e)
	}
	if m != nil {
		out.PoolCPUs, out.NUMA = m.FormatList(cpus), byNUMA(m, cpus, false)
	}
	return out
}

// ofKubelet adds the predicted and the actual allocation of the kubelet. Without an account of the pod the prediction
// is read from the pod's annotation.
func (p *Placement) ofKubelet(pod *corev1.Pod, v *ledger.View) {
	if predicted, _, err := annotation.ParsePredictedPlacement(
		pod.Annotations[annotation.PredictedPlacementKey]); err == nil {
		p.Predicted = predicted.Containers
	}
	if v == nil {
		return
	}
	s, known := v.Assignment(string(pod.UID))
	if !known || s.Source != ledger.Reported {
		return
	}
	p.Actual = convert.Placed(ledger.HeldOf(v.Machine(), s.Placement))
	p.Differs = s.Difference(v.Machine()).Kinds()
}

func pool(v *ledger.View, e ledger.Entry) (string, cpuset.Set) {
	if v.Machine() == nil {
		return map[qos.Role]string{qos.BEPool: PoolBE, qos.SystemPool: PoolSystem}[e.Role], cpuset.Set{}
	}
	switch {
	case e.Role == qos.BEPool:
		return PoolBE, v.BEPool()
	case e.Role == qos.SystemPool && v.Facts().System != cpuset.Set{}:
		return PoolSystem, v.Facts().System
	}
	return PoolShared, v.SharedPool().Intersect(nodesOf(v.Machine(), e.NUMAIDs))
}

// nodesOf is the CPUs of the given NUMA nodes (kernel ids), all CPUs when none is named.
func nodesOf(m *topo.Machine, ids []int) cpuset.Set {
	if len(ids) == 0 {
		return m.All()
	}
	var cpus cpuset.Set
	for _, id := range ids {
		if n, ok := m.NUMAByID(id); ok {
			cpus = cpus.Union(m.NUMACPUs(n))
		}
	}
	return cpus
}

func byNUMA(m *topo.Machine, cpus cpuset.Set, withCores bool) []NUMA {
	out := []NUMA{}
	for _, n := range m.CPUNodes() {
		on := m.NUMACPUs(n).Intersect(cpus)
		if on.IsEmpty() {
			continue
		}
		part := NUMA{Node: m.NUMAID(n), Socket: m.SocketID(m.NUMASocket(n)), CPUSet: m.FormatList(on)}
		if withCores {
			part.Cores = byCore(m, n, on)
		}
		out = append(out, part)
	}
	return out
}

func byCore(m *topo.Machine, n topo.NUMA, cpus cpuset.Set) []Core {
	var out []Core
	for _, c := range m.NUMACores(n) {
		var held, online cpuset.Set
		for _, cpu := range m.CoreCPUs(c) {
			if all := m.Online(); all.Has(int(cpu)) {
				online.Add(int(cpu))
			}
			if cpus.Has(int(cpu)) {
				held.Add(int(cpu))
			}
		}
		if !held.IsEmpty() {
			out = append(out, Core{Core: m.CoreID(m.CoreCPUs(c)[0]), CPUSet: m.FormatList(held), Whole: held == online})
		}
	}
	return out
}

// qosOf is the class that the pod's label gives it, or the one that Kubernetes' class amounts to.
func qosOf(pod *corev1.Pod) string {
	class, _, kubeClass := convert.PodQoS(pod)
	if class != qos.None {
		return class.String()
	}
	return [...]string{"BestEffort", "Burstable", "Guaranteed"}[kubeClass]
}

// asked says what the pod wants of a machine.
func asked(pod *corev1.Pod) string {
	r, reason, _ := convert.Request(pod, convert.DefaultArgs())
	if r == nil || !reason.OK() {
		return ""
	}
	if !r.Role.Binds() {
		return amount(pod)
	}
	text := plural(r.CPUs, "exclusive CPU")
	switch {
	case r.Required != place.NoWish:
		text += fmt.Sprintf(", %s required", wish(r.Required))
	case r.Preferred != place.NoWish:
		text += fmt.Sprintf(", %s preferred", wish(r.Preferred))
	}
	if r.Exclusive != 0 {
		text += ", away from other pods of " + r.Exclusive.String()
	}
	if r.Topology != ledger.NoTopology {
		text += ", NUMA policy " + r.Topology.String()
	}
	if memory := memoryOf(pod); memory != "" {
		text += "; " + memory + " memory"
	}
	return text
}

func wish(w place.BindWish) string {
	return [...]string{"", "FullPCPUs", "SpreadByPCPUs"}[w]
}

func amount(pod *corev1.Pod) string {
	text := ""
	if m := milliCPU(pod); m > 0 {
		text = resource.NewMilliQuantity(m, resource.DecimalSI).String() + " CPU"
	}
	if memory := memoryOf(pod); memory != "" {
		if text != "" {
			text += ", "
		}
		text += memory + " memory"
	}
	return text
}

// milliCPU is the pod's CPU request as the scheduler counts it.
func milliCPU(pod *corev1.Pod) int64 {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	return requests.Cpu().MilliValue()
}

func memoryOf(pod *corev1.Pod) string {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	if requests.Memory().IsZero() {
		return ""
	}
	return requests.Memory().String()
}
