package ledger

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Summary is what Filter reads: per NUMA node with CPUs (dense position in Machine.CPUNodes) and in total.
type Summary struct {
	Nodes []NodeSummary
	// Usable is what exclusive pods may take of each NUMA node: what is free there, within what is left of its shared
	// pool beside the LS pods that are constrained to it. Committed tells that the latter is less on some node.
	// UsableTotal is their sum, without an ID.
	Usable      []cpualloc.NodeCount
	UsableTotal cpualloc.NodeCount
	Committed   bool
	// Free and FreeWhole are CPUs; FreeCores counts cores with at least one free CPU.
	Free, FreeWhole, FreeCores int
	// PoolCPUs is |LS pool|, PoolMilli 1000·PoolCPUs − Σ constrained requests.
	PoolCPUs  int
	PoolMilli int64
	// KubeletFree is the number of CPUs that a static kubelet can still pin; -1 when its policy is not static.
	KubeletFree int
	// Capacity and CoreCapacity hold, at k-1, the most online CPUs and cores that k NUMA nodes of the machine have.
	Capacity, CoreCapacity []int
	// Memory is each type of memory that is known of the machine, ordinary memory first.
	Memory []MemorySummary
}

// NodeSummary is one NUMA node of a Summary.
type NodeSummary struct {
	// Free counts ALLOCATABLE CPUs, FreeWhole those of them on wholly free cores.
	Free, FreeWhole, FreeCores int
	PoolCPUs                   int
	// PoolMilli is what LS pods may still be promised of this node's pool. It is negative where exclusive pods of former
	// days, or offline CPUs, took what LS pods were promised.
	PoolMilli int64
	// Spare is the number of CPUs that may leave the pool without breaking what LS pods were promised.
	Spare  int
	Socket topo.Socket
}

func (s *Summary) equal(o *Summary) bool {
	return slices.Equal(s.Nodes, o.Nodes) && slices.Equal(s.Usable, o.Usable) && s.UsableTotal == o.UsableTotal && s.Committed == o.Committed &&
		s.Free == o.Free && s.FreeWhole == o.FreeWhole && s.FreeCores == o.FreeCores && s.PoolCPUs == o.PoolCPUs &&
		s.PoolMilli == o.PoolMilli && s.KubeletFree == o.KubeletFree &&
		slices.Equal(s.Capacity, o.Capacity) && slices.Equal(s.CoreCapacity, o.CoreCapacity) &&
		slices.EqualFunc(s.Memory, o.Memory, func(a, b MemorySummary) bool { return a.equal(&b) })
}
