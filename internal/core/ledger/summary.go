package ledger

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Summary is what Filter reads: per NUMA node, those without CPUs too, and in total.
type Summary struct {
	Nodes []NodeSummary
	// Usable is what exclusive pods may take of each NUMA node: what is free there, within what is left of its shared
	// pool beside the LS pods that are confined to NUMA nodes. Committed reports that the latter is less on some node
	// or on several together (Limits). UsableTotal is their sum.
	Usable             []cpualloc.NodeCount
	UsableTotal        cpualloc.NodeCount
	Committed          bool
	cpualloc.NodeCount // of all ALLOCATABLE CPUs
	// PoolCPUs is |LS pool|, PoolMilli 1000·PoolCPUs − Σ constrained requests.
	PoolCPUs  int
	PoolMilli int64
	// Capacity and CoreCapacity hold, at k-1, the most online CPUs and cores that k NUMA nodes of the machine have.
	Capacity, CoreCapacity []int
	// Rows are the resources that are known of the machine's NUMA nodes, ordinary memory first.
	Rows []align.Row
	// Limits bound what may still be taken of the pools of several NUMA nodes, by Group and Nodes; see Room.
	Limits []Limit
	// Confined are the NUMA nodes that pods use which use no other, Spanned those of pods that use several.
	Confined, Spanned topo.NodeSet
}

// Mixed returns the NUMA nodes on which a pod that uses span of them would meet a pod of the other kind: one that uses
// several, or for a pod that itself uses several one that is confined to one.
func (s *Summary) Mixed(span int) topo.NodeSet {
	if span > 1 {
		return s.Confined
	}
	return s.Spanned
}

// NodeSummary is one NUMA node of a Summary.
type NodeSummary struct {
	cpualloc.NodeCount // of ALLOCATABLE CPUs
	PoolCPUs           int
	// PoolMilli is the Room of this node: what may still be promised to a pod that is confined to it alone, or leave
	// the pool for exclusive pods. Never negative.
	PoolMilli int64
	// Promised is what LS pods were promised of this node: of a pod on several nodes a share in proportion to their
	// pools. It is for people; Room decides.
	Promised int64
}

// equal reports whether two summaries give the same answers.
func (s *Summary) equal(o *Summary) bool {
	return slices.Equal(s.Nodes, o.Nodes) && slices.Equal(s.Usable, o.Usable) && s.UsableTotal == o.UsableTotal &&
		s.Committed == o.Committed && s.NodeCount == o.NodeCount && s.PoolCPUs == o.PoolCPUs &&
		s.PoolMilli == o.PoolMilli &&
		slices.Equal(s.Capacity, o.Capacity) && slices.Equal(s.CoreCapacity, o.CoreCapacity) &&
		slices.Equal(s.Limits, o.Limits) && s.Confined == o.Confined && s.Spanned == o.Spanned &&
		slices.EqualFunc(s.Rows, o.Rows, func(a, b align.Row) bool { return a.Equal(&b) })
}
