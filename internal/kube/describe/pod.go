package describe

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/occupancy"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// Pod returns what the object of a pod says.
func Pod(pod *corev1.Pod) view.Subject {
	out := view.Subject{
		Head: view.Pod{
			Pod: pod.Namespace + "/" + pod.Name, UID: string(pod.UID), State: stateOf(pod),
			Scheduler: pod.Spec.SchedulerName,
			QoS:       qosOf(pod), Asked: asked(pod), Obstacles: []why.Wire{}, MinimalSets: []view.Set{},
			Candidates: []view.Candidate{},
		},
		Node: pod.Spec.NodeName, Ended: convert.Ended(pod), Class: Class(pod),
		Isolation: pod.Labels[annotation.GPUIsolationLabel],
	}
	if reason, rejected := convert.Rejected(pod); rejected {
		out.Head.Rejection = &view.Rejection{Node: pod.Spec.NodeName, Reason: reason, Message: pod.Status.Message}
	}
	if rule, name := pod.Annotations[annotation.GangRule], pod.Labels[annotation.PodGroup]; rule != "" && name != "" {
		out.Head.Gang = &view.MadeGang{Name: pod.Namespace + "/" + name, Rule: rule}
	}
	if t := pod.CreationTimestamp; !t.IsZero() {
		since := t.UTC()
		out.Head.Since = &since
	}
	for _, g := range pod.Spec.SchedulingGates {
		out.Gates = append(out.Gates, g.Name)
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			out.Said = &c.Message
		}
	}
	if predicted, _, err := annotation.ParsePredictedPlacement(
		pod.Annotations[annotation.PredictedPlacementKey]); err == nil {
		out.Predicted = Containers(predicted.Containers)
	}
	return out
}

// Class returns what the role of a pod follows from.
func Class(pod *corev1.Pod) qos.Pod {
	class, band, kubeClass := convert.PodQoS(pod)
	requests := requests(pod)
	return qos.Pod{Class: class, Band: band, Kube: kubeClass, MilliCPU: requests.Cpu().MilliValue()}
}

// Requests returns what a pod requests beside devices.
func Requests(pod *corev1.Pod) occupancy.Room {
	r := requests(pod)
	return occupancy.Room{MilliCPU: r.Cpu().MilliValue(), MemoryBytes: r.Memory().Value(), Pods: 1}
}

// Placement returns where a bound pod runs, by the account of its node. v may be nil when nothing is known of the node.
func Placement(pod *corev1.Pod, v *ledger.View) *view.Placement {
	out := view.PlacementOf(Pod(pod), v)
	if v == nil {
		return out
	}
	if a := v.Tenancy().Assignment(string(pod.UID)); a != nil && a.Source == tenancy.Reported {
		out.Actual = Containers(convert.Placed(kubelet.HeldOf(v.Machine(), a.Placement)))
	}
	return out
}

// Claims returns the devices of claims that a pod on the node of v has. published are the slices of the cluster. v
// may be nil when nothing is known of the node.
func Claims(held []*resourcev1.ResourceClaim, published []*resourcev1.ResourceSlice, node string, v *ledger.View,
) (list []view.HeldClaim) {
	on := map[string][]int{}
	if v == nil || v.Machine() == nil {
		published = nil
	}
	for _, s := range published {
		sites, _ := convert.SitesOf(s, node, v)
		for i := range sites {
			if nodes := sites[i].Nodes; nodes != 0 {
				on[sites[i].Name] = v.Machine().NodeIDs(nodes)
			}
		}
	}
	for _, c := range held {
		if c.Status.Allocation == nil {
			continue
		}
		one := view.HeldClaim{Name: c.Name, Devices: []view.ClaimedDevice{}}
		for _, d := range c.Status.Allocation.Devices.Results {
			name := convert.DeviceName(d.Driver, d.Pool, d.Device)
			one.Devices = append(one.Devices, view.ClaimedDevice{Name: name, NUMANodes: on[name]})
		}
		list = append(list, one)
	}
	return list
}

// Hints explains how the NUMA nodes of the node of v satisfy a pod.
func Hints(pod *corev1.Pod, node string, v *ledger.View) view.Hints {
	r, reason, detail := convert.Request(pod, convert.DefaultArgs())
	if !reason.OK() {
		r = nil
	}
	return view.HintsOf(node, v, r, detail)
}

// Containers returns what containers have in the form of the view, whose JSON is the annotation's.
func Containers(placed annotation.PlacedContainers) (out view.Containers) {
	text, err := json.Marshal(placed)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		panic(fmt.Sprintf("describe: names, numbers and quantities always encode: %v", err))
	}
	return out
}

func stateOf(pod *corev1.Pod) string {
	switch {
	case convert.Ended(pod):
		return view.Finished
	case pod.Spec.NodeName != "":
		return view.Bound
	case len(pod.Spec.SchedulingGates) > 0:
		return view.Gated
	}
	return view.Pending
}

// qosOf is the class that the pod's label gives it, or the one that Kubernetes' class amounts to.
func qosOf(pod *corev1.Pod) string {
	class, _, kubeClass := convert.PodQoS(pod)
	if class != qos.None {
		return class.String()
	}
	return [...]string{"BestEffort", "Burstable", "Guaranteed"}[kubeClass]
}

func asked(pod *corev1.Pod) string {
	r, reason, _ := convert.Request(pod, convert.DefaultArgs())
	if r == nil || !reason.OK() {
		return ""
	}
	requests := requests(pod)
	memory := ""
	if !requests.Memory().IsZero() {
		memory = requests.Memory().String() + " memory"
	}
	memory = joined(memory, ", ", askedDevices(requests))
	if overhead := pod.Spec.Overhead.Cpu(); !overhead.IsZero() {
		memory = joined(memory, ", ", "with pod overhead "+overhead.String()+" CPU")
	}
	if !r.Role.Binds() {
		cpu := ""
		if milli := requests.Cpu().MilliValue(); milli > 0 {
			cpu = view.CPUText(milli) + " CPU"
		}
		return joined(cpu, ", ", memory)
	}
	text := view.Count(r.CPUs, "exclusive CPU")
	switch {
	case r.Required != place.NoWish:
		text += fmt.Sprintf(", %s required", bindName(r.Required))
	case r.Preferred != place.NoWish:
		text += fmt.Sprintf(", %s preferred", bindName(r.Preferred))
	}
	if r.Exclusive != 0 {
		text += ", away from other pods of " + r.Exclusive.String()
	}
	if r.Topology != hint.None {
		text += ", NUMA policy " + r.Topology.Label()
	}
	return joined(text, "; ", memory)
}

// askedDevices lists what is requested of devices: "nvidia.com/gpu 4, koordinator.sh/rdma 100".
func askedDevices(requests corev1.ResourceList) (text string) {
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(requests))) {
		if amount := requests[name]; device.IsDevice(string(name)) {
			text = joined(text, ", ", string(name)+" "+amount.String())
		}
	}
	return text
}

func joined(a, separator, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + separator + b
}

// bindName returns the name of a bind policy as annotations have it.
func bindName(w place.BindWish) string {
	return [...]string{"", "FullPCPUs", "SpreadByPCPUs"}[w]
}

func requests(pod *corev1.Pod) corev1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{})
}
