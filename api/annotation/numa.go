package annotation

import (
	gojson "encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// NUMAState is what the managers of a node's kubelet hold (NUMAStateKey). NUMA nodes are the kernel's ids.
type NUMAState struct {
	// Memory is what the memory manager counts, by NUMA node; absent when it is not known.
	Memory map[int32]NUMAMemory `json:"memory,omitempty"`
	// Devices are those that device plugins registered, by resource, one entry for each set of NUMA nodes.
	Devices map[string][]NUMADevices `json:"devices,omitempty"`
	// Pods are the containers that have something of their own, by the pod's UID and the container's name.
	Pods map[types.UID]PlacedContainers `json:"pods,omitempty"`
}

// NUMANodes are NUMA nodes by the kernel's ids. No nodes are written as [].
type NUMANodes []int32

// MarshalJSON writes a list.
func (n NUMANodes) MarshalJSON() ([]byte, error) {
	if n == nil {
		return []byte("[]"), nil
	}
	return gojson.Marshal([]int32(n))
}

// NUMAMemory is the memory of one NUMA node.
type NUMAMemory struct {
	// Allocatable is the node's memory without its reservations, by type: memory, hugepages-2Mi….
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	Free        corev1.ResourceList `json:"free,omitempty"`
	// Group are the NUMA nodes that serve requests together with this one, itself included.
	Group NUMANodes `json:"group"`
	// Assignments counts the blocks that touch the node.
	Assignments int32 `json:"assignments"`
}

// NUMADevices are the devices of one resource that are attached to the same NUMA nodes.
type NUMADevices struct {
	// NUMA are the nodes; empty for devices without topology.
	NUMA NUMANodes `json:"numa"`
	// Total counts all of them; Unhealthy those that do not work; Free those that work and are not allocated.
	Total     int32 `json:"total"`
	Free      int32 `json:"free"`
	Unhealthy int32 `json:"unhealthy,omitempty"`
}

// PlacedContainers is what the containers of a pod have, by name.
type PlacedContainers map[string]PlacedContainer

// PlacedContainer is what the managers of a kubelet gave to a container, or will give as far as can be predicted.
type PlacedContainer struct {
	// Mask are the NUMA nodes of the merged hint; empty where there is none, or where it is not known.
	Mask NUMANodes `json:"mask,omitempty"`
	// Preferred is true when fewer NUMA nodes would not have sufficed.
	Preferred bool `json:"preferred,omitempty"`
	// CPUs of its own, in Linux list format.
	CPUs string `json:"cpus,omitempty"`
	// Memory is ordinary memory by the NUMA nodes that it is taken from together, in list format: {"0":"4Gi"},
	// {"0-1":"96Gi"}.
	Memory map[string]resource.Quantity `json:"memory,omitempty"`
	// Hugepages is the same for each kind: {"hugepages-2Mi":{"0":"1Gi"}}.
	Hugepages map[string]map[string]resource.Quantity `json:"hugepages,omitempty"`
	// Devices of device plugins, by resource.
	Devices map[string]PlacedDevices `json:"devices,omitempty"`
	// Uncertain, of a prediction: it follows from something that the kubelet does in random order, or that a device
	// plugin chooses.
	Uncertain bool `json:"uncertain,omitempty"`
}

// PlacedDevices are devices of one resource.
type PlacedDevices struct {
	// Mask are the NUMA nodes to which the devices are attached; empty for devices without topology.
	Mask  NUMANodes `json:"mask"`
	Count int32     `json:"count"`
	// Split lists the devices by the NUMA nodes of each, where these differ: its counts add up to Count.
	Split []PlacedDevices `json:"split,omitempty"`
	// Open, of a prediction: other devices of the resource would do, and the device plugin or chance decides.
	Open bool `json:"open,omitempty"`
}

// ParseNUMAState reads a NUMAState. CPU lists and lists of NUMA nodes in keys are validated by convert, beside the
// machine.
func ParseNUMAState(text string) (NUMAState, []Warning, error) {
	return readAmounts(text, func(r *reader, s *NUMAState) {
		for _, id := range sorted(s.Memory) {
			m := s.Memory[id]
			r.atLeastZero("memory.NUMA node", int64(id))
			r.atLeastZero("memory.assignments", int64(m.Assignments))
			r.ids("memory.group", m.Group)
			r.amounts("memory.allocatable", m.Allocatable)
			r.amounts("memory.free", m.Free)
		}
		for _, resource := range sorted(s.Devices) {
			for _, d := range s.Devices[resource] {
				r.ids("devices.numa", d.NUMA)
				r.atLeastZero("devices.total", int64(d.Total))
				r.atLeastZero("devices.free", int64(d.Free))
				r.atLeastZero("devices.unhealthy", int64(d.Unhealthy))
			}
		}
		for _, uid := range sorted(s.Pods) {
			s.Pods[uid].check(r, "pods")
		}
	})
}

// PredictedPlacement is what the scheduler expects the kubelet to give a pod (PredictedPlacementKey).
type PredictedPlacement struct {
	// Model is the kubelet release whose behaviour was predicted: 1.36.
	Model string `json:"model"`
	// Gen is the report of the node that the prediction was made on (Report); 0 = none.
	Gen        int64            `json:"gen"`
	Containers PlacedContainers `json:"containers"`
}

// String returns the canonical JSON.
func (p PredictedPlacement) String() string {
	if p.Containers == nil {
		p.Containers = PlacedContainers{}
	}
	return encode(p)
}

// ParsePredictedPlacement reads a PredictedPlacement.
func ParsePredictedPlacement(text string) (PredictedPlacement, []Warning, error) {
	return readAmounts(text, func(r *reader, p *PredictedPlacement) {
		r.atLeastZero("gen", p.Gen)
		p.Containers.check(r, "containers")
	})
}

func (p PlacedContainers) check(r *reader, field string) {
	for _, name := range sorted(p) {
		c := p[name]
		r.ids(field+".mask", c.Mask)
		for _, q := range c.Memory {
			r.atLeastZero(field+".memory", int64(q.Sign()))
		}
		for _, amounts := range c.Hugepages {
			for _, q := range amounts {
				r.atLeastZero(field+".hugepages", int64(q.Sign()))
			}
		}
		for _, resource := range sorted(c.Devices) {
			c.Devices[resource].check(r, field+".devices")
		}
	}
}

func (d PlacedDevices) check(r *reader, field string) {
	r.ids(field+".mask", d.Mask)
	r.atLeastZero(field+".count", int64(d.Count))
	sum := int64(0)
	for _, part := range d.Split {
		r.ids(field+".split.mask", part.Mask)
		r.atLeastZero(field+".split.count", int64(part.Count))
		sum += int64(part.Count)
		if len(part.Split) > 0 {
			r.refuse(field+".split", Error{Text: "must not be split again"})
		}
	}
	if len(d.Split) > 0 && sum != int64(d.Count) {
		r.refuse(field+".split", Error{Text: fmt.Sprintf("the counts must add up to %d, got %d", d.Count, sum)})
	}
}
