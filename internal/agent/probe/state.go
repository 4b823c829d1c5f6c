package probe

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// KubeletState is what the managers of the node's kubelet have recorded. The zero value is a kubelet that has recorded
// nothing.
type KubeletState struct {
	CPU     host.CPUState
	Memory  host.MemoryState
	Devices host.DeviceState
	// Inventory are all devices of the node's device plugins; nil where no source has them. The kubelet's checkpoint
	// alone does not: it has the NUMA nodes only of devices that were allocated to pods.
	Inventory []host.Device
}

// deviceGroup is the devices of one resource on the same NUMA nodes.
type deviceGroup struct {
	resource               string
	numa                   []int
	total, unhealthy, free int
}

// devicesOf groups the inventory, by resource, then NUMA nodes. A device that a pod has counts as taken also when the
// pod is unknown: the kubelet counts it so.
func devicesOf(s KubeletState) []deviceGroup {
	type unit struct{ resource, id string }
	taken := map[unit]bool{}
	for _, containers := range s.Devices.Pods {
		for _, resources := range containers {
			for _, devices := range resources {
				for _, d := range devices {
					taken[unit{d.Resource, d.ID}] = true
				}
			}
		}
	}
	var groups []deviceGroup
	for _, d := range slices.SortedFunc(slices.Values(s.Inventory), func(a, b host.Device) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), slices.Compare(a.NUMAIDs, b.NUMAIDs))
	}) {
		last := len(groups) - 1
		if last < 0 || groups[last].resource != d.Resource || !slices.Equal(groups[last].numa, d.NUMAIDs) {
			groups = append(groups, deviceGroup{resource: d.Resource, numa: d.NUMAIDs})
			last++
		}
		g := &groups[last]
		g.total++
		switch {
		case d.Unhealthy:
			g.unhealthy++
		case !taken[unit{d.Resource, d.ID}]:
			g.free++
		}
	}
	return groups
}

// numaState is the annotation numa-state: pods that have ended, or that the API does not know, are left out of it.
func numaState(in Input, devices []deviceGroup) annotation.NUMAState {
	s := annotation.NUMAState{
		Devices: map[string][]annotation.NUMADevices{}, Pods: map[types.UID]annotation.PlacedContainers{},
	}
	if in.State.Memory.Policy == annotation.KubeletMemoryStatic {
		s.Memory = map[int32]annotation.NUMAMemory{}
		for id, z := range in.State.Memory.Zones {
			s.Memory[int32(id)] = annotation.NUMAMemory{
				Allocatable: amounts(z, func(a host.MemoryAmount) int64 { return a.Allocatable }),
				Free:        amounts(z, func(a host.MemoryAmount) int64 { return a.Free }),
				Group:       convert.NUMANodes(z.Group), Assignments: int32(min(z.Assignments, math.MaxInt32)),
			}
		}
	}
	for _, g := range devices {
		s.Devices[g.resource] = append(s.Devices[g.resource], annotation.NUMADevices{
			NUMA: convert.NUMANodes(g.numa), Total: int32(g.total), Free: int32(g.free), Unhealthy: int32(g.unhealthy),
		})
	}
	for _, pod := range in.Pods {
		if convert.Ended(pod.Pod) {
			continue
		}
		if placed := placedContainers(in, pod); len(placed) > 0 {
			s.Pods[pod.UID] = placed
		}
	}
	return s
}

func amounts(z host.MemoryZone, amount func(host.MemoryAmount) int64) corev1.ResourceList {
	list := corev1.ResourceList{}
	for kind, a := range z.Types {
		list[corev1.ResourceName(kind)] = *resource.NewQuantity(amount(a), resource.BinarySI)
	}
	return list
}

// placedContainers is what the kubelet's managers gave to the containers of a pod. In Own mode CPUs that the kubelet
// does not decide about are reported too: its answer to the next pod depends on them.
func placedContainers(in Input, pod *convert.Pod) annotation.PlacedContainers {
	uid := convert.NodeUID(pod.Pod)
	held := map[string]*kubelet.Held{}
	heldBy := func(container string) *kubelet.Held {
		if held[container] == nil {
			held[container] = &kubelet.Held{Container: container}
		}
		return held[container]
	}
	for name, cpus := range in.State.CPU.Containers[uid] {
		heldBy(name).CPUList = cpuset.FormatIDs(cpus)
	}
	for name, blocks := range in.State.Memory.Pods[uid] {
		h := heldBy(name)
		for _, b := range blocks {
			h.Memory = append(h.Memory, kubelet.HeldMemory{Type: b.Type, NUMAIDs: b.NUMAIDs, Bytes: b.Bytes})
		}
	}
	for name, resources := range in.State.Devices.Pods[uid] {
		h := heldBy(name)
		for kind, devices := range resources {
			h.Devices = append(h.Devices, heldDevices(kind, devices)...)
		}
	}
	list := make([]kubelet.Held, 0, len(held))
	for _, h := range held {
		list = append(list, *h)
	}
	return convert.Placed(list)
}

// heldDevices counts devices of one resource by their NUMA nodes.
func heldDevices(kind string, devices []host.Device) []kubelet.HeldDevices {
	var list []kubelet.HeldDevices
	for _, d := range devices {
		i := slices.IndexFunc(list, func(h kubelet.HeldDevices) bool { return slices.Equal(h.NUMAIDs, d.NUMAIDs) })
		if i < 0 {
			i = len(list)
			list = append(list, kubelet.HeldDevices{Resource: kind, NUMAIDs: d.NUMAIDs})
		}
		list[i].Count++
	}
	slices.SortFunc(list, func(a, b kubelet.HeldDevices) int { return slices.Compare(a.NUMAIDs, b.NUMAIDs) })
	return list
}
