package cpualloc

import (
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Bind is how CPUs are laid over physical cores.
type Bind uint8

// Bind policies.
const (
	// FullPCPUs takes whole physical cores first.
	FullPCPUs Bind = iota
	// SpreadByPCPUs takes one CPU of as many physical cores as possible first.
	SpreadByPCPUs
)

// String returns the policy as the annotation spells it.
func (b Bind) String() string { return [...]string{"FullPCPUs", "SpreadByPCPUs"}[b] }

// Exclusive is a preference to avoid pods with the same preference. It never refuses a request.
type Exclusive uint8

// Exclusive policies.
const (
	NotExclusive Exclusive = iota
	PCPULevel
	NUMANodeLevel
)

// String returns the policy as the annotation spells it.
func (e Exclusive) String() string { return [...]string{"None", "PCPULevel", "NUMANodeLevel"}[e] }

// Strategy chooses among NUMA nodes of equal quality.
type Strategy uint8

// Strategies.
const (
	MostAllocated Strategy = iota
	LeastAllocated
	DistributeEvenly
)

// String returns the strategy as the node label spells it.
func (s Strategy) String() string {
	return [...]string{"MostAllocated", "LeastAllocated", "DistributeEvenly"}[s]
}

// State is what the machine has to give. All sets are subsets of the machine's online CPUs.
type State struct {
	Machine *topo.Machine
	// Free: the CPUs that may be given.
	Free cpuset.Set
	// PCPUHeld, NUMAHeld: CPUs of live pods that declared PCPULevel, NUMANodeLevel.
	PCPUHeld, NUMAHeld cpuset.Set
	// NoTick: CPUs whose tick the kernel stops (boot option nohz_full). They are given before others that are equal.
	NoTick cpuset.Set
	// Caps limits how many CPUs may be taken from each NUMA node , besides what is free there; nil = no
	// limit. It is set where LS pods were promised a part of a node's shared pool. Limited, which
	// Allocate begins with, converts it into fewer free CPUs. The slice must not be changed.
	Caps []int
}

// Request asks for Count CPUs.
type Request struct {
	Count     int
	Bind      Bind
	Required  bool // the bind policy must hold or the request is refused
	Exclusive Exclusive
	Strategy  Strategy
	// Nodes limits the answer to these NUMA nodes. The zero value is treated as all of them.
	Nodes topo.NodeSet
	// SingleNUMANode refuses an answer that needs more than one NUMA node.
	SingleNUMANode bool
	// PreferL3 counts the L3 groups before broken cores (kubelet option prefer-align-cpus-by-uncorecache).
	PreferL3 bool
}

// Result is a grant.
type Result struct {
	CPUs cpuset.Set
	// Stage of the exclusive policy that was reached: 1 = as declared, 2 = NUMANodeLevel fell back to PCPULevel,
	// 3 = no restriction. 1 also when nothing was declared. For PCPULevel stages are 1 and 3.
	Stage int
	// NUMANodes is the number of NUMA nodes that CPUs touch.
	NUMANodes int
}
