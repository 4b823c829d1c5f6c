package why

import (
	"cmp"
	"slices"
)

// Entry is what is known of a code. The registry is the source of the documentation of codes, of the metric's label
// set and of every text.
type Entry struct {
	Code  Code
	Name  string
	Class Class
	// Plugin is who refuses, "any" when several do.
	Plugin string
	// Resolvable: waiting or preemption may help.
	Resolvable bool
	// Amount: the code is about an amount. Its reasons carry Asked and Free, Free < Asked.
	Amount bool
	// Extra is the JSON name of Reason.Extra, "" when the code has none; ExtraMeaning explains it.
	Extra, ExtraMeaning string
	// Upstream: adapters put an upstream plugin's own text into Finding.Detail, which then stands for Text.
	Upstream bool
	// Text says what is wrong, without numbers: equal for all nodes that refuse alike. Chinese is the same in Chinese.
	Text, Chinese string
	// Cause and Remedy are a sentence each.
	Cause, Remedy string
}

// Registry returns the entries of all codes, sorted by class and name.
func Registry() []Entry {
	entries := slices.Clone(registry[1:])
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Name, b.Name))
	})
	return entries
}

// Entry returns the registry's entry of c; the zero Entry for a code that is not registered.
func (c Code) Entry() Entry {
	if c < numCodes {
		return registry[c]
	}
	return Entry{}
}

// Class returns the code's class.
func (c Code) Class() Class { return c.Entry().Class }

// Resolvable reports whether waiting or preemption may help.
func (c Code) Resolvable() bool { return c.Entry().Resolvable }

// Plugins of entries.
const (
	numaPlugin    = "NodeNUMAResource"
	fitPlugin     = "NodeResourcesFit"
	defaultPreemp = "DefaultPreemption"
)

var registry = [numCodes]Entry{
	None: {Name: "None", Text: "granted", Chinese: "已满足"},

	BadAnnotation: {
		Code: BadAnnotation, Name: "BadAnnotation", Class: Request, Plugin: "any",
		Extra: "offset", ExtraMeaning: "byte offset of the error in the value",
		Text: "invalid annotation", Chinese: "注解无效",
		Cause:  "A label or annotation of the pod cannot be read: its JSON is broken, has a wrong type or an unknown value.",
		Remedy: "Correct the value that the message names; the webhook refuses it at creation when it is reachable.",
	},
	CPURequestNotInteger: {
		Code: CPURequestNotInteger, Name: "CPURequestNotInteger", Class: Request, Plugin: numaPlugin,
		Text: "the requested CPUs must be integer", Chinese: "请求的 CPU 数必须是整数",
		Cause:  "An LSE or LSR pod asks for a fraction of a CPU, and exclusive CPUs are whole; so does any pod on a node that binds all.",
		Remedy: "Ask for a multiple of 1000m, or use QoS LS and nodes without the label cpu-bind-policy.",
	},
	InvalidField: {
		Code: InvalidField, Name: "InvalidField", Class: Request, Plugin: "webhook",
		Text: "invalid field", Chinese: "字段无效",
		Cause:  "A field has a value that the rule named in the message does not allow.",
		Remedy: "Use one of the allowed values in the message.",
	},
	RequestLimitMismatch: {
		Code: RequestLimitMismatch, Name: "RequestLimitMismatch", Class: Request, Plugin: "any",
		Text: "requests must equal limits", Chinese: "request 必须等于 limit",
		Cause:  "LSE and LSR pods are guaranteed what they ask for, so requests and limits must be the same.",
		Remedy: "Set limits equal to requests for cpu and memory of every container.",
	},

	NoScheduler: {
		Code: NoScheduler, Name: "NoScheduler", Class: Attention, Plugin: "any", Resolvable: true,
		Text: "no scheduler serves the pod's scheduler name", Chinese: "没有调度器负责该 Pod 的 schedulerName",
		Cause:  "No running scheduler serves spec.schedulerName, or none of its replicas is the leader.",
		Remedy: "Start the scheduler, or correct spec.schedulerName.",
	},
	NotAttempted: {
		Code: NotAttempted, Name: "NotAttempted", Class: Attention, Plugin: "any", Resolvable: true,
		Text: "queued, not tried yet", Chinese: "已入队,尚未尝试调度",
		Cause:  "The pod waits in the scheduling queue and no cycle has taken it yet.",
		Remedy: "Wait; if it lasts, look at the queue and at pods of higher priority.",
	},

	SchedulingGate: {
		Code: SchedulingGate, Name: "SchedulingGate", Class: Gate, Plugin: "SchedulingGates", Resolvable: true,
		Upstream: true,
		Text:     "waiting for scheduling gates", Chinese: "等待调度门(scheduling gates)移除",
		Cause:  "spec.schedulingGates holds the pod back before the queue.",
		Remedy: "Whoever set the gates removes them.",
	},

	InvalidTopology: {
		Code: InvalidTopology, Name: "InvalidTopology", Class: Data, Plugin: numaPlugin,
		Extra: "count", ExtraMeaning: "NUMA nodes with CPUs, or threads of a core, where the machine has more than are supported",
		Text: "node(s) invalid CPU Topology", Chinese: "节点的 CPU 拓扑无效",
		Cause:  "The node's NodeResourceTopology is malformed, or the machine has more NUMA nodes with CPUs than are supported.",
		Remedy: "Look at the annotations of the NodeResourceTopology and at the agent's log on that node.",
	},
	TopologyMissing: {
		Code: TopologyMissing, Name: "TopologyMissing", Class: Data, Plugin: numaPlugin,
		Text: "node(s) invalid CPU Topology", Chinese: "节点没有 CPU 拓扑数据",
		Cause:  "The node has no NodeResourceTopology, so exclusive CPUs cannot be chosen.",
		Remedy: "Run the agent on the node.",
	},
	NUMAInfoEmpty: {
		Code: NUMAInfoEmpty, Name: "NUMAInfoEmpty", Class: Data, Plugin: numaPlugin,
		Text: "numa info is empty", Chinese: "节点没有 NUMA 信息",
		Cause:  "The pod's volcano.sh/numa-topology-policy is restricted or single-numa-node, and nobody tells where the node's CPUs stand.",
		Remedy: "Run the agent, or Volcano's exporter, on the node.",
	},
	TopologyStale: {
		Code: TopologyStale, Name: "TopologyStale", Class: Data, Plugin: numaPlugin, Resolvable: true,
		Extra: "ageSeconds", ExtraMeaning: "age of the data in seconds",
		Text: "node(s) stale CPU Topology", Chinese: "节点的 CPU 拓扑数据过期",
		Cause:  "The node's NodeResourceTopology has not been confirmed for too long.",
		Remedy: "Check that the agent on the node runs and reaches the API server.",
	},
	TooManyNUMANodes: {
		Code: TooManyNUMANodes, Name: "TooManyNUMANodes", Class: Data, Plugin: numaPlugin,
		Extra: "allowed", ExtraMeaning: "NUMA nodes that the kubelet's setting or the model allows",
		Text: "node(s) has more NUMA nodes than its kubelet allows", Chinese: "节点的 NUMA 节点数超过 kubelet 允许的上限",
		Cause:  "A kubelet with a topology policy does not start on a machine with more NUMA nodes than max-allowable-numa-nodes, and no set of more than 64 can be reckoned.",
		Remedy: "Raise max-allowable-numa-nodes, or set the topology policy of the kubelet to none.",
	},
	KubeletPanics: {
		Code: KubeletPanics, Name: "KubeletPanics", Class: Data, Plugin: numaPlugin,
		Extra: "numaID", ExtraMeaning: "the NUMA node id that the kubelet cannot handle",
		Text: "node(s) kubelet would crash on the machine's NUMA node ids", Chinese: "kubelet 会因 NUMA 节点编号而崩溃",
		Cause:  "The kubelet's topology manager has no place for NUMA node ids of 64 and more, nor for gaps between ids with prefer-closest-numa-nodes: its first admission of an aligned pod crashes it.",
		Remedy: "Set the topology policy of the kubelet to none, or turn prefer-closest-numa-nodes off where ids have gaps.",
	},

	SMTAlignment: {
		Code: SMTAlignment, Name: "SMTAlignment", Class: Placement, Plugin: numaPlugin,
		Extra: "threadsPerCore", ExtraMeaning: "CPUs of one physical core",
		Text: "node(s) requested cpus not multiple cpus per core", Chinese: "请求的 CPU 数不是每核线程数的整数倍",
		Cause:  "The node (or the pod) wants whole physical cores, and the CPUs of the pod or of one of its containers do not fill them.",
		Remedy: "Ask for a multiple of threadsPerCore in every container.",
	},
	BindPolicyConflict: {
		Code: BindPolicyConflict, Name: "BindPolicyConflict", Class: Placement, Plugin: numaPlugin,
		Text:    "node(s) cpu bind policy conflicts with pod's required cpu bind policy",
		Chinese: "节点的 CPU 绑定策略与 Pod 要求的策略冲突",
		Cause:   "The node's CPU bind policy, or its architecture, does not allow the policy that the pod requires.",
		Remedy:  "Prefer the policy instead of requiring it, or choose nodes with another policy.",
	},
	TopologyPolicy: {
		Code: TopologyPolicy, Name: "TopologyPolicy", Class: Placement, Plugin: numaPlugin, Resolvable: true, Amount: true,
		Extra: "numaNodes", ExtraMeaning: "the number of NUMA nodes that the policy allows the pod to span",
		Text: "node(s) NUMA Topology policy not match", Chinese: "不满足节点的 NUMA 拓扑策略",
		Cause:  "The CPUs and the memory are there, but not together on as few NUMA nodes as the policy of the node or pod allows.",
		Remedy: "Ask for less than one NUMA node has free, or loosen the policy.",
	},
	TopologyMismatch: {
		Code: TopologyMismatch, Name: "TopologyMismatch", Class: Placement, Plugin: numaPlugin,
		Text: "node(s) NUMA Topology policy not match", Chinese: "不满足节点的 NUMA 拓扑策略",
		Cause:  "Restricted wants every resource on the same NUMA nodes and on as few of them as an empty machine needs; these resources need different numbers.",
		Remedy: "Ask for amounts that need equally many NUMA nodes, or use BestEffort.",
	},
	TopologyUndecided: {
		Code: TopologyUndecided, Name: "TopologyUndecided", Class: Placement, Plugin: numaPlugin, Resolvable: true,
		Extra: "numaNodes", ExtraMeaning: "the number of NUMA nodes that the policy allows the pod to span",
		Text: "node(s) too many sets of NUMA nodes to search", Chinese: "NUMA 节点组合过多,无法全部搜索",
		Cause:  "The machine has more than 8 NUMA nodes, and none of the sets of them that were looked at holds CPUs and memory of the pod together.",
		Remedy: "Ask for amounts that fit one NUMA node, use BestEffort, or free CPUs and memory.",
	},
	PoolNotConfined: {
		Code: PoolNotConfined, Name: "PoolNotConfined", Class: Placement, Plugin: numaPlugin,
		Text: "node(s) confine no pod of the CPU shared pool to NUMA nodes", Chinese: "节点不会把 CPU 共享池中的 Pod 限制在 NUMA 节点内",
		Cause:  "The pod runs on the CPU shared pool and asks for ConstrainedBurst or a NUMA topology policy of its own, and in mode Follow or Blind nobody on the node writes the cpuset that would hold it there.",
		Remedy: "Choose nodes in mode Own, ask for BestEffort, or make the pod Guaranteed with whole CPUs where the kubelet's CPU manager is static.",
	},
	CPUManagerNotStatic: {
		Code: CPUManagerNotStatic, Name: "CPUManagerNotStatic", Class: Placement, Plugin: numaPlugin,
		Text: "cpu manager policy isn't static", Chinese: "kubelet 的 CPU 管理策略不是 static",
		Cause:  "The node's kubelet decides which CPUs pods get, or it alone could, and its CPU manager pins none: a placement on NUMA nodes would not hold.",
		Remedy: "Set the CPU manager policy of that kubelet to static, run the agent there, or choose nodes where it is so.",
	},
	TopologyPolicyDiffers: {
		Code: TopologyPolicyDiffers, Name: "TopologyPolicyDiffers", Class: Placement, Plugin: numaPlugin,
		Extra: "policies", ExtraMeaning: "4 × the pod's policy + the node's; 0 = none, 1 = best-effort, 2 = restricted, 3 = single-numa-node",
		Text: "task topology policy is different with node", Chinese: "Pod 的拓扑策略与节点不同",
		Cause:  "The pod's volcano.sh/numa-topology-policy wants an alignment, and the node's kubelet aligns nothing; or the plugin's volcanoStrictPolicyMatch wants equal policies.",
		Remedy: "Choose nodes whose kubelet has a topology policy, the pod's own under volcanoStrictPolicyMatch.",
	},
	InsufficientExclusiveCPU: {
		Code: InsufficientExclusiveCPU, Name: "InsufficientExclusiveCPU", Class: Placement, Plugin: numaPlugin,
		Resolvable: true, Amount: true,
		Extra: "requiredBindPolicy", ExtraMeaning: "1 = FullPCPUs, 2 = SpreadByPCPUs was required; 0 = none",
		Text: "not enough cpus available to satisfy request", Chinese: "没有足够的可独占 CPU",
		Cause:  "Other pods and reservations hold too many of the node's CPUs, or too many cores are broken up for the required bind policy.",
		Remedy: "Wait or free CPUs; where a bind policy is required, prefer it instead.",
	},
	SharedPoolTooSmall: {
		Code: SharedPoolTooSmall, Name: "SharedPoolTooSmall", Class: Placement, Plugin: numaPlugin, Resolvable: true,
		Amount: true,
		Text:   "node(s) CPU shared pool too small", Chinese: "节点的 CPU 共享池太小",
		Cause:  "No set of NUMA nodes has a shared pool that holds the pod's limit and its request.",
		Remedy: "Lower the CPU limit, or free exclusive CPUs on the node.",
	},
	SharedPoolCommitted: {
		Code: SharedPoolCommitted, Name: "SharedPoolCommitted", Class: Placement, Plugin: numaPlugin, Resolvable: true,
		Amount: true,
		Text:   "node(s) CPU shared pool committed to LS pods", Chinese: "CPU 共享池已承诺给 LS Pod",
		Cause:  "LS pods were promised a part of the shared pool of those NUMA nodes; more exclusive CPUs would break the promise.",
		Remedy: "Wait for those LS pods to end, or ask for fewer CPUs.",
	},
	SharedPoolFloor: {
		Code: SharedPoolFloor, Name: "SharedPoolFloor", Class: Placement, Plugin: numaPlugin, Resolvable: true, Amount: true,
		Extra: "floor", ExtraMeaning: "CPUs that the shared pool must keep",
		Text: "node(s) CPU shared pool would fall below its floor", Chinese: "CPU 共享池将低于下限",
		Cause:  "The CPUs are free, but taking them would leave the node's shared pool with fewer CPUs than it must keep.",
		Remedy: "Ask for fewer CPUs, or lower minSharedCPUs of the plugin.",
	},
	InsufficientKubeletCPU: {
		Code: InsufficientKubeletCPU, Name: "InsufficientKubeletCPU", Class: Placement, Plugin: numaPlugin, Resolvable: true,
		Amount: true,
		Text:   "node(s) kubelet has not enough free CPUs to pin", Chinese: "kubelet 没有足够的可绑定 CPU",
		Cause:  "The kubelet's static CPU manager pins every Guaranteed container with whole CPUs and has not enough left: it would reject the pod.",
		Remedy: "Wait for pinned pods to end, or switch the kubelet's CPU manager policy to none.",
	},
	KubeletTopologyAffinity: {
		Code: KubeletTopologyAffinity, Name: "KubeletTopologyAffinity", Class: Placement, Plugin: numaPlugin, Resolvable: true,
		Extra: "cause", ExtraMeaning: "1 = no free place at all, 2 = free only on more NUMA nodes than capacity needs, 3 = resources need different numbers of nodes, 4 = no nodes in common, 5 = more than one node needed",
		Text: "node(s) kubelet would reject: TopologyAffinityError", Chinese: "kubelet 会拒绝:TopologyAffinityError",
		Cause:  "The kubelet's topology manager finds no set of NUMA nodes that its policy accepts for all resources of the pod or of one of its containers.",
		Remedy: "Ask for less than one NUMA node has free, or look at the hints with tenon explain --hints; reserved CPUs and unhealthy devices count as capacity there.",
	},
	KubeletSMTAlignment: {
		Code: KubeletSMTAlignment, Name: "KubeletSMTAlignment", Class: Placement, Plugin: numaPlugin, Resolvable: true,
		Extra: "threadsPerCore", ExtraMeaning: "CPUs of one core as the kubelet counts them",
		Text: "node(s) kubelet would reject: SMTAlignmentError", Chinese: "kubelet 会拒绝:SMTAlignmentError",
		Cause:  "The kubelet runs with full-pcpus-only, and a container's CPUs are no whole cores, or fewer whole cores are free.",
		Remedy: "Ask for a multiple of threadsPerCore in every container, or wait for pinned pods to end.",
	},
	KubeletAdmission: {
		Code: KubeletAdmission, Name: "KubeletAdmission", Class: Placement, Plugin: numaPlugin, Resolvable: true,
		Extra: "cause", ExtraMeaning: "1 = CPUs short, 2 = memory short, 3 = memory short beside the chosen nodes, 4 = memory only on more nodes than necessary, 5 = memory nodes bound to another group, 6 = devices short, 7 = no healthy device, 8 = the container has another amount already",
		Text: "node(s) kubelet would reject: UnexpectedAdmissionError", Chinese: "kubelet 会拒绝:UnexpectedAdmissionError",
		Cause:  "The pod passes the kubelet's topology manager, and then one of its managers cannot allocate what a container asks for.",
		Remedy: "Ask for less, wait for pods to end, or look at the allocation with tenon explain --hints.",
	},
	KubeletWouldHang: {
		Code: KubeletWouldHang, Name: "KubeletWouldHang", Class: Placement, Plugin: numaPlugin,
		Text: "node(s) kubelet would hang", Chinese: "kubelet 会卡死",
		Cause:  "With distribute-cpus-across-numa, full-pcpus-only and cores of which one thread is reserved, the kubelet's CPU manager never returns for this request and the node admits nothing more.",
		Remedy: "Reserve whole cores on that node, or turn one of the two options off.",
	},
	KubeletRejected: {
		Code: KubeletRejected, Name: "KubeletRejected", Class: Placement, Plugin: numaPlugin, Resolvable: true,
		Extra: "backoffSeconds", ExtraMeaning: "seconds until the node is tried again for pods of this shape",
		Text: "node(s) kubelet rejected a pod of this shape", Chinese: "kubelet 刚拒绝过同样形状的 Pod",
		Cause:  "The node's kubelet rejected a pod with the same requests although it was predicted to fit, so the node is left alone for a while.",
		Remedy: "Wait for the back-off to end; if it repeats, compare the node's report with its kubelet.",
	},

	InsufficientCPU: {
		Code: InsufficientCPU, Name: "InsufficientCPU", Class: Capacity, Plugin: fitPlugin, Resolvable: true, Amount: true,
		Text: "Insufficient cpu", Chinese: "CPU 不足",
		Cause:  "The requests of the pods on the node leave too little CPU.",
		Remedy: "Wait, free CPU, or add a node.",
	},
	InsufficientMemory: {
		Code: InsufficientMemory, Name: "InsufficientMemory", Class: Capacity, Plugin: "any", Resolvable: true,
		Amount: true,
		Text:   "Insufficient memory", Chinese: "内存不足",
		Cause:  "The requests of the pods on the node leave too little memory.",
		Remedy: "Wait, free memory, or add a node.",
	},
	InsufficientEphemeralStorage: {
		Code: InsufficientEphemeralStorage, Name: "InsufficientEphemeralStorage", Class: Capacity, Plugin: fitPlugin,
		Resolvable: true, Amount: true,
		Text: "Insufficient ephemeral-storage", Chinese: "临时存储不足",
		Cause:  "The requests of the pods on the node leave too little ephemeral storage.",
		Remedy: "Wait, free storage, or add a node.",
	},
	InsufficientPods: {
		Code: InsufficientPods, Name: "InsufficientPods", Class: Capacity, Plugin: fitPlugin, Resolvable: true, Amount: true,
		Text: "Too many pods", Chinese: "节点上的 Pod 太多",
		Cause:  "The node runs as many pods as its kubelet allows.",
		Remedy: "Wait, remove pods, or add a node.",
	},
	InsufficientExtended: {
		Code: InsufficientExtended, Name: "InsufficientExtended", Class: Capacity, Plugin: fitPlugin, Resolvable: true,
		Amount: true, Upstream: true,
		Text: "Insufficient extended resource", Chinese: "扩展资源不足",
		Cause:  "The node has too little of an extended resource that the message names.",
		Remedy: "Wait, free the resource, or add a node that has it.",
	},

	NodeAffinity: {
		Code: NodeAffinity, Name: "NodeAffinity", Class: Constraint, Plugin: "NodeAffinity", Upstream: true,
		Text: "node(s) didn't match Pod's node affinity/selector", Chinese: "节点不满足 Pod 的 nodeAffinity/nodeSelector",
		Cause:  "spec.nodeSelector or the node affinity of the pod excludes the node.",
		Remedy: "Correct the selector, or label a node.",
	},
	NodeName: {
		Code: NodeName, Name: "NodeName", Class: Constraint, Plugin: "NodeName", Upstream: true,
		Text: "node(s) didn't match the requested node name", Chinese: "节点名与请求的不符",
		Cause:  "spec.nodeName asks for another node.",
		Remedy: "Remove spec.nodeName.",
	},
	NodeUnschedulable: {
		Code: NodeUnschedulable, Name: "NodeUnschedulable", Class: Constraint, Plugin: "NodeUnschedulable", Upstream: true,
		Text: "node(s) were unschedulable", Chinese: "节点被标记为不可调度",
		Cause:  "The node is cordoned.",
		Remedy: "Uncordon the node when its maintenance is done.",
	},
	TaintToleration: {
		Code: TaintToleration, Name: "TaintToleration", Class: Constraint, Plugin: "TaintToleration", Upstream: true,
		Text: "node(s) had untolerated taint(s)", Chinese: "节点有 Pod 不容忍的污点",
		Cause:  "The node has a taint that the pod does not tolerate.",
		Remedy: "Add a toleration, or remove the taint.",
	},
	NodePorts: {
		Code: NodePorts, Name: "NodePorts", Class: Constraint, Plugin: "NodePorts", Resolvable: true, Upstream: true,
		Text: "node(s) didn't have free ports for the requested pod ports", Chinese: "节点上所需的主机端口已被占用",
		Cause:  "Another pod on the node uses a host port that the pod asks for.",
		Remedy: "Use another host port, or none.",
	},
	PodAffinity: {
		Code: PodAffinity, Name: "PodAffinity", Class: Constraint, Plugin: "InterPodAffinity", Resolvable: true,
		Upstream: true,
		Text:     "node(s) didn't match pod affinity/anti-affinity rules", Chinese: "不满足 Pod 亲和/反亲和规则",
		Cause:  "The pods in the node's topology domain do not match the pod's affinity or anti-affinity, or theirs.",
		Remedy: "Correct the rules, or wait for the pods they name.",
	},
	PodTopologySpread: {
		Code: PodTopologySpread, Name: "PodTopologySpread", Class: Constraint, Plugin: "PodTopologySpread", Resolvable: true,
		Upstream: true,
		Text:     "node(s) didn't match pod topology spread constraints", Chinese: "不满足拓扑分布约束",
		Cause:  "Placing the pod there would exceed maxSkew of a topology spread constraint.",
		Remedy: "Raise maxSkew, or add nodes in the emptier domains.",
	},
	Volume: {
		Code: Volume, Name: "Volume", Class: Constraint, Plugin: "any", Upstream: true,
		Text: "node(s) cannot serve the pod's volumes", Chinese: "节点无法提供 Pod 的存储卷",
		Cause:  "A volume of the pod cannot be bound or attached on the node.",
		Remedy: "Look at the persistent volume claims that the message names.",
	},
	UpstreamFilter: {
		Code: UpstreamFilter, Name: "UpstreamFilter", Class: Constraint, Plugin: "any", Upstream: true,
		Text: "node(s) refused by another plugin", Chinese: "被其他插件拒绝",
		Cause:  "A scheduler plugin that Tenon does not know refused the node with its own text.",
		Remedy: "Read the plugin's name and text in the message.",
	},

	NoVictims: {
		Code: NoVictims, Name: "NoVictims", Class: Victims, Plugin: defaultPreemp, Resolvable: true, Upstream: true,
		Text: "No preemption victims found for incoming pod", Chinese: "没有可抢占的 Pod",
		Cause:  "Evicting all pods of lower priority would not make the pod fit on any node.",
		Remedy: "Raise the pod's priority, or fix the root cause.",
	},
	VictimsTerminating: {
		Code: VictimsTerminating, Name: "VictimsTerminating", Class: Victims, Plugin: defaultPreemp, Resolvable: true,
		Upstream: true,
		Text:     "waiting for preempted pods to terminate", Chinese: "等待被抢占的 Pod 退出",
		Cause:  "Room has been made for the pod, and the evicted pods are still shutting down.",
		Remedy: "Wait for their grace period to end.",
	},
	NominatedElsewhere: {
		Code: NominatedElsewhere, Name: "NominatedElsewhere", Class: Victims, Plugin: defaultPreemp, Resolvable: true,
		Upstream: true,
		Text:     "room is kept for a pod of higher priority", Chinese: "资源已预留给更高优先级的 Pod",
		Cause:  "Another pod of higher or equal priority is nominated to the room that would fit.",
		Remedy: "Wait until that pod is placed.",
	},

	UnallocatedExclusivePod: {
		Code: UnallocatedExclusivePod, Name: "UnallocatedExclusivePod", Class: Enforcement, Plugin: "agent",
		Text: "exclusive pod without allocated CPUs", Chinese: "独占 Pod 没有分配到 CPU",
		Cause:  "An LSE or LSR pod reached the node without an allocation: a scheduler that does not know Tenon bound it.",
		Remedy: "Use a scheduler name that Tenon serves, or start the agent with --allow-unallocated-lsr for LSR.",
	},
}
