package kubelet

import (
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Usage is one NUMA node of a State, for displays.
type Usage struct {
	// CPUs are those that the CPU manager may allocate, Free those of them that no container has. Both are empty
	// under CPU policy none.
	CPUs, Free cpuset.Set
	// Memory by type, ascending; nil where the memory manager takes no part.
	Memory []Quantity
	// Group are the nodes that memory of this node was last given together with, itself included, and Assignments the
	// blocks that it has a part in. 0 and 0 where the memory manager takes no part.
	Group       topo.NodeSet
	Assignments int
	// Devices are the sets on this node, whether or not they are on others too, ascending by resource and nodes.
	Devices []DeviceUsage
}

// Quantity is memory of one type on one node.
type Quantity struct {
	Type              string
	Allocatable, Free int64 // bytes
}

// DeviceUsage is a set of devices with what is free of it.
type DeviceUsage struct {
	DeviceSet
	Free int
}

// Usage returns what NUMA node i has and has left; the zero Usage for a node that the machine does not have.
func (s *State) Usage(i topo.NUMA) Usage {
	var u Usage
	n := s.node
	if int(i) >= n.nodes {
		return u
	}
	if n.config.CPU.Static {
		own := n.machine.NUMACPUs(i)
		u.CPUs = own.Intersect(n.cpus.online).Minus(n.cpus.reserved)
		u.Free = u.CPUs.Intersect(s.cpus.available)
	}
	if len(s.memory.zones) > 0 {
		u.Group, u.Assignments = s.memory.zones[i].group, s.memory.zones[i].assignments
		for t, name := range n.types {
			u.Memory = append(u.Memory, Quantity{name, n.allocatable[t][i], s.memory.free[t][i]})
		}
	}
	for set, d := range n.sets {
		if d.Nodes.Has(i) {
			u.Devices = append(u.Devices, DeviceUsage{d, s.devices.free(n, set)})
		}
	}
	return u
}

// FreeCPUs are the CPUs that can be given; empty under CPU policy none.
func (s *State) FreeCPUs() cpuset.Set {
	if !s.node.config.CPU.Static {
		return cpuset.Set{}
	}
	return s.cpus.available
}

// Devices returns every set of devices with what is free of it, ascending by resource and nodes; sets without topology
// too.
func (s *State) Devices() []DeviceUsage {
	list := make([]DeviceUsage, len(s.node.sets))
	for set, d := range s.node.sets {
		list[set] = DeviceUsage{d, s.devices.free(s.node, set)}
	}
	return list
}
