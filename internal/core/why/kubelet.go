package why

// AffinityCause is Extra of KubeletTopologyAffinity.
type AffinityCause int64

// Why no set of NUMA nodes is accepted.
const (
	NoAffinityCause AffinityCause = iota
	// NoRoom: a resource is not free in the asked amount on any set of nodes.
	NoRoom
	// NotNarrow: a resource is free only on more nodes than its capacity needs.
	NotNarrow
	// DifferentWidths: the resources need different numbers of nodes.
	DifferentWidths
	// NoCommonNodes: each resource has its nodes, and none suit all.
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
	MemoryShortBeside
	MemoryTooWide
	MemoryGrouped
	DevicesShort
	DevicesUnhealthy
	OtherAmountHeld
)

// phrase is what a cause adds to the text of its code.
type phrase struct{ English, Chinese string }

var affinityPhrases = [...]phrase{
	{},
	{" (no NUMA nodes have enough free)", "(没有 NUMA 节点有足够的空闲资源)"},
	{" (free only on more NUMA nodes than capacity needs)", "(只能占用比容量所需更多的 NUMA 节点)"},
	{" (resources need different numbers of NUMA nodes)", "(各资源需要的 NUMA 节点数不同)"},
	{" (no NUMA nodes in common)", "(各资源没有共同的 NUMA 节点)"},
	{" (more than one NUMA node needed)", "(需要多于一个 NUMA 节点)"},
}

var allocationPhrases = [...]phrase{
	{},
	{" (CPUs short)", "(CPU 不足)"},
	{" (memory short)", "(内存不足)"},
	{" (memory short beside the chosen NUMA nodes)", "(包含所选 NUMA 节点的组内存不足)"},
	{" (memory only on more NUMA nodes than necessary)", "(内存只能占用更多的 NUMA 节点)"},
	{" (memory of the NUMA nodes belongs to another group)", "(NUMA 节点的内存已属于其他组)"},
	{" (devices short)", "(设备不足)"},
	{" (no healthy device)", "(没有健康的设备)"},
	{" (another amount already held)", "(容器已持有不同的数量)"},
}

// cause returns the phrase of r.Extra for the codes whose Extra is a cause.
func (r Reason) cause() phrase {
	var phrases []phrase
	switch r.Code {
	case KubeletTopologyAffinity:
		phrases = affinityPhrases[:]
	case KubeletAdmission:
		phrases = allocationPhrases[:]
	}
	if r.Extra < 0 || r.Extra >= int64(len(phrases)) {
		return phrase{}
	}
	return phrases[r.Extra]
}
