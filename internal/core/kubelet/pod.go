package kubelet

import (
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
)

// Role is the place of a container in its pod.
type Role uint8

// Roles of containers.
const (
	App Role = iota
	Init
	Sidecar // an init container that is restarted always
)

// Amount is a request of one named resource: bytes of memory types, a count of devices.
type Amount struct {
	Name string
	N    int64
}

// Container is what one container asks. Memory and Devices are sorted by name and have no zero amounts.
type Container struct {
	Name string
	Role Role
	// CPUs is the request in whole CPUs; 0 when it is none or not a whole number.
	CPUs    int
	Memory  []Amount
	Devices []Amount
}

// Pod is a pod as the kubelet's managers see it.
type Pod struct {
	UID string
	// Guaranteed is the pod's QoS class: only such pods get CPUs and memory blocks of their own.
	Guaranteed bool
	// PodLevel tells that the pod has spec.resources.
	PodLevel bool
	// Containers stand in spec order, init containers first.
	Containers []Container
}

// Block is memory of one type that was given from a set of NUMA nodes.
type Block struct {
	Type  string
	Nodes hint.Mask
	Bytes int64
}

// Devices is the number of devices of one resource that were given from devices with the same NUMA nodes.
type Devices struct {
	Resource string
	Nodes    hint.Mask // of the devices; 0 = without topology
	Count    int
}

// Given is what one container has. It is what a checkpoint of the kubelet says, or a prediction.
type Given struct {
	Container string
	// Hint is the merged hint; Mask 0 = none.
	Hint    hint.Hint
	CPUs    cpuset.Set
	Memory  []Block
	Devices []Devices
}

// Placement is what the containers of a pod have, in spec order. Containers that have nothing may be absent.
type Placement []Given
