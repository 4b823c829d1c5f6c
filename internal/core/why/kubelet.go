package why

// AffinityCause is Extra of KubeletTopologyAffinity.
type AffinityCause int64

// Why no set of NUMA nodes is accepted.
const (
	NoAffinityCause AffinityCause = iota
	// NoRoom: a resource is not free in the requested amount on any set of nodes.
	NoRoom
	// NotNarrow: a resource is free only on more nodes than its capacity needs.
	NotNarrow
	// DifferentWidths: the resources need different numbers of nodes.
	DifferentWidths
	// NoCommonNodes: each resource has feasible nodes, but no nodes are feasible for all resources.
	NoCommonNodes
	// ManyNodes: more than one node is needed under single-numa-node.
	ManyNodes
)

// AllocationCause is Extra of KubeletAdmission.
type AllocationCause int64

// What a manager of the kubelet cannot allocate.
const (
	NoAllocationCause AllocationCause = iota
	CPUsShort
	MemoryShort
	MemoryGroupShort
	MemoryTooWide
	MemoryGrouped
	DevicesShort
	DevicesUnhealthy
	OtherAmountHeld
)

var affinityPhrases = [...]string{
	NoRoom:          " (no NUMA nodes have enough free)",
	NotNarrow:       " (free only on more NUMA nodes than capacity needs)",
	DifferentWidths: " (resources need different numbers of NUMA nodes)",
	NoCommonNodes:   " (no NUMA nodes in common)",
	ManyNodes:       " (more than one NUMA node needed)",
}

var allocationPhrases = [...]string{
	CPUsShort:        " (not enough CPUs)",
	MemoryShort:      " (not enough memory)",
	MemoryGroupShort: " (not enough memory in the group of the chosen NUMA nodes)",
	MemoryTooWide:    " (memory only on more NUMA nodes than necessary)",
	MemoryGrouped:    " (memory of the NUMA nodes belongs to another group)",
	DevicesShort:     " (not enough devices)",
	DevicesUnhealthy: " (no healthy device)",
	OtherAmountHeld:  " (the container already holds another amount)",
}

func (r Reason) cause() string {
	var phrases []string
	switch r.Code {
	case KubeletWouldHang:
		if r.Extra > 0 {
			return " (merging its NUMA hints takes too long)"
		}
	case KubeletPanics:
		if r.Resource != NoResource {
			return " on a hugepage size that the machine does not have"
		}
		return " on the machine's NUMA node ids"
	case KubeletTopologyAffinity:
		phrases = affinityPhrases[:]
	case KubeletAdmission:
		phrases = allocationPhrases[:]
	}
	if r.Extra < 0 || r.Extra >= int64(len(phrases)) {
		return ""
	}
	return phrases[r.Extra]
}
