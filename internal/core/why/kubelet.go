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

// What crashes a kubelet: panicPhrases by whether the reason names a resource.
var panicPhrases = map[bool]phrase{
	false: {" on the machine's NUMA node ids", "(NUMA 节点编号)"},
	true:  {" on a hugepage size that the machine does not have", "(机器没有该大小的大页)"},
}

// tooLong is what a KubeletWouldHang with a time adds.
var tooLong = phrase{" (merging its NUMA hints takes too long)", "(合并 NUMA 提示耗时过长)"}

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
	{" (not enough CPUs)", "(CPU 不足)"},
	{" (not enough memory)", "(内存不足)"},
	{" (not enough memory in the group of the chosen NUMA nodes)", "(包含所选 NUMA 节点的组内存不足)"},
	{" (memory only on more NUMA nodes than necessary)", "(内存只能占用更多的 NUMA 节点)"},
	{" (memory of the NUMA nodes belongs to another group)", "(NUMA 节点的内存已属于其他组)"},
	{" (not enough devices)", "(设备不足)"},
	{" (no healthy device)", "(没有健康的设备)"},
	{" (the container already holds another amount)", "(容器已持有不同的数量)"},
}

// cause returns the phrase of r.Extra for the codes whose Extra is a cause.
func (r Reason) cause() phrase {
	var phrases []phrase
	switch r.Code {
	case KubeletWouldHang:
		if r.Extra > 0 {
			return tooLong
		}
		return phrase{}
	case KubeletPanics:
		return panicPhrases[r.Resource != NoResource]
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
