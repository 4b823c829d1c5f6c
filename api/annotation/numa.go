package annotation

import (
	"cmp"
	gojson "encoding/json"
	"fmt"
	"maps"
	"slices"

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

// String returns the canonical JSON.
func (s NUMAState) String() string { return encode(s) }

// ParseNUMAState reads a NUMAState. CPU lists and lists of NUMA nodes in keys are validated by convert, beside the
// machine.
func ParseNUMAState(text string) (NUMAState, []Warning, error) {
	var in struct {
		Memory map[int32]struct {
			Allocatable amounts   `json:"allocatable"`
			Free        amounts   `json:"free"`
			Group       NUMANodes `json:"group"`
			Assignments int32     `json:"assignments"`
		} `json:"memory"`
		Devices map[string][]NUMADevices            `json:"devices"`
		Pods    map[types.UID]placedContainersInput `json:"pods"`
	}
	warnings, err := decode(text, &in)
	if err != nil {
		return NUMAState{}, nil, err
	}
	var s NUMAState
	v := values{text: text, outer: "memory"}
	for _, id := range sorted(in.Memory) {
		m := in.Memory[id]
		v.atLeastZero("NUMA node", int64(id))
		v.atLeastZero("assignments", int64(m.Assignments))
		v.ids("group", m.Group)
		v.amounts("allocatable", m.Allocatable)
		v.amounts("free", m.Free)
		if s.Memory == nil {
			s.Memory = map[int32]NUMAMemory{}
		}
		s.Memory[id] = NUMAMemory{
			Allocatable: m.Allocatable.list(), Free: m.Free.list(), Group: m.Group, Assignments: m.Assignments,
		}
	}
	v.outer = "devices"
	for _, resource := range sorted(in.Devices) {
		for _, d := range in.Devices[resource] {
			v.ids("numa", d.NUMA)
			v.atLeastZero("total", int64(d.Total))
			v.atLeastZero("free", int64(d.Free))
			v.atLeastZero("unhealthy", int64(d.Unhealthy))
		}
	}
	s.Devices = in.Devices
	v.outer = "pods"
	for _, uid := range sorted(in.Pods) {
		if s.Pods == nil {
			s.Pods = map[types.UID]PlacedContainers{}
		}
		s.Pods[uid] = in.Pods[uid].read(&v)
	}
	if v.err != nil {
		return NUMAState{}, nil, v.err
	}
	return s, warnings, nil
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
	var in struct {
		Model      string                `json:"model"`
		Gen        int64                 `json:"gen"`
		Containers placedContainersInput `json:"containers"`
	}
	warnings, err := decode(text, &in)
	if err != nil {
		return PredictedPlacement{}, nil, err
	}
	v := values{text: text, outer: "gen"}
	v.atLeastZero("", in.Gen)
	v.outer = "containers"
	p := PredictedPlacement{Model: in.Model, Gen: in.Gen, Containers: in.Containers.read(&v)}
	if v.err != nil {
		return PredictedPlacement{}, nil, v.err
	}
	return p, warnings, nil
}

type placedContainersInput map[string]struct {
	Mask      NUMANodes                `json:"mask"`
	Preferred bool                     `json:"preferred"`
	CPUs      string                   `json:"cpus"`
	Memory    nodeAmounts              `json:"memory"`
	Hugepages map[string]nodeAmounts   `json:"hugepages"`
	Devices   map[string]PlacedDevices `json:"devices"`
	Uncertain bool                     `json:"uncertain"`
}

func (in placedContainersInput) read(v *values) PlacedContainers {
	out := make(PlacedContainers, len(in))
	for _, name := range sorted(in) {
		c := in[name]
		v.ids("mask", c.Mask)
		p := PlacedContainer{
			Mask: c.Mask, Preferred: c.Preferred, CPUs: c.CPUs, Memory: c.Memory.read(v, "memory"), Devices: c.Devices,
			Uncertain: c.Uncertain,
		}
		for _, kind := range sorted(c.Hugepages) {
			if p.Hugepages == nil {
				p.Hugepages = map[string]map[string]resource.Quantity{}
			}
			p.Hugepages[kind] = c.Hugepages[kind].read(v, "hugepages")
		}
		for _, resource := range sorted(c.Devices) {
			c.Devices[resource].check(v)
		}
		out[name] = p
	}
	return out
}

func (d PlacedDevices) check(v *values) {
	v.ids("devices.mask", d.Mask)
	v.atLeastZero("devices.count", int64(d.Count))
	sum := int64(0)
	for _, part := range d.Split {
		v.ids("devices.split.mask", part.Mask)
		v.atLeastZero("devices.split.count", int64(part.Count))
		sum += int64(part.Count)
		if len(part.Split) > 0 {
			v.refuse("devices.split", "must not be split again")
		}
	}
	if len(d.Split) > 0 && sum != int64(d.Count) {
		v.refuse("devices.split", fmt.Sprintf("the counts must add up to %d, got %d", d.Count, sum))
	}
}

// nodeAmounts are amounts by a list of NUMA nodes.
type nodeAmounts map[string]amount

func (a nodeAmounts) read(v *values, name string) map[string]resource.Quantity {
	if len(a) == 0 {
		return nil
	}
	out := make(map[string]resource.Quantity, len(a))
	for nodes, q := range a {
		out[nodes] = resource.Quantity(q)
		v.amount(name, resource.Quantity(q))
	}
	return out
}

// sorted returns the keys of a map in order, so that of several faults always the same one is reported.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// values checks numbers below one outermost field and keeps the first refusal.
type values struct {
	text, outer string
	err         error
}

func (v *values) refuse(name, rule string) {
	if v.err != nil {
		return
	}
	path := v.outer
	if name != "" {
		path += "." + name
	}
	v.err = &Error{Offset: valueOffset(v.text, v.outer), Field: path, Text: rule}
}

func (v *values) atLeastZero(name string, n int64) {
	if n < 0 {
		v.refuse(name, "must not be negative")
	}
}

func (v *values) ids(name string, ids NUMANodes) {
	for _, id := range ids {
		v.atLeastZero(name, int64(id))
	}
}

func (v *values) amount(name string, q resource.Quantity) {
	if q.Sign() < 0 {
		v.refuse(name, "must not be negative")
	}
}

func (v *values) amounts(name string, list amounts) {
	for _, q := range list {
		v.amount(name, resource.Quantity(q))
	}
}
