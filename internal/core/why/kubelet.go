package why

// AffinityCause is Extra of KubeletTopologyAffinity.
type AffinityCause int64

// Why no set of NUMA nodes is accepted, in the order of the code's variants in codes.json.
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

// What a manager of the kubelet cannot allocate, in the order of the code's variants in codes.json.
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
