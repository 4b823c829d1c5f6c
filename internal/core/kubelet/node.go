package kubelet

import (
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Zone is the memory of one NUMA node as the memory manager counts it.
type Zone struct {
	// Allocatable by type ("memory", "hugepages-2Mi", …), in bytes: what the node has without its reservations.
	Allocatable map[string]int64
}

// DeviceSet are the devices of one resource that stand on the same NUMA nodes.
type DeviceSet struct {
	Resource string
	// Nodes are the NUMA nodes; 0 = without topology.
	Nodes hint.Mask
	// Registered counts all of them, Healthy those that work.
	Registered, Healthy int
}

// Inventory is what a machine offers besides CPUs.
type Inventory struct {
	// Zones by dense NUMA index; nil = unknown: the memory manager takes no part.
	Zones   []Zone
	Devices []DeviceSet
}

// Node is one machine under one kubelet, with nothing given to anybody. It is immutable and may be shared by all equal
// nodes of a cluster.
type Node struct{}

// NewNode refuses what the kubelet could not run with or what the model cannot hold: KubeletPanics (sparse NUMA ids with
// prefer-closest-numa-nodes, ids of 64 and more under a policy), TooManyNUMANodes, InvalidTopology.
func NewNode(m *topo.Machine, c Config, inv Inventory) (*Node, why.Reason) { panic("not built") }

// Empty returns the state of a node that holds no pod.
func (n *Node) Empty() *State { panic("not built") }
