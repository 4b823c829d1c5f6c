package why

import (
	"cmp"
	"slices"
)

// Entry describes a code. The registry is the source of the documentation of codes, of the metric's label
// set and of every text.
type Entry struct {
	Name  string
	Class Class
	// Plugin is the plugin that refuses, "any" when several do.
	Plugin string
	// Resolvable: waiting or preemption may help.
	Resolvable bool
	// Amount: the code is about an amount. Its reasons carry Asked and Free, Free < Asked.
	Amount bool
	// Extra is the JSON name of Reason.Extra, "" when the code has none; ExtraMeaning describes it.
	Extra, ExtraMeaning string
	// Upstream: adapters put an upstream plugin's own text into Finding.Detail, which then replaces Text.
	Upstream bool
	// Text states the unmet condition, without numbers: it is equal for all nodes that refuse for the same reason.
	// Chinese is the same text in Chinese.
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
	quotaPlugin   = "ElasticQuota"
	gangPlugin    = "Coscheduling"
	devicePlugin  = "DeviceShare"
)

var registry = [numCodes]Entry{
	None: {Name: "None", Text: "granted", Chinese: "已满足"},

	BadAnnotation: {
		Name: "BadAnnotation", Class: Request, Plugin: "any",
		Extra: "offset", ExtraMeaning: "byte offset of the error in the value",
		Text: "invalid annotation", Chinese: "注解无效",
		Cause: "A label or annotation of the pod cannot be parsed: its JSON is malformed, or a value has the wrong " +
			"type or is unknown.",
		Remedy: "Correct the value that the message names. The webhook, when it is reachable, rejects such pods at " +
			"creation.",
	},
	CPURequestNotInteger: {
		Name: "CPURequestNotInteger", Class: Request, Plugin: numaPlugin,
		Text: "the requested CPUs must be integer", Chinese: "请求的 CPU 数必须是整数",
		Cause: "An LSE or LSR pod, or any pod on a node that binds all pods, requests a fraction of a CPU; exclusive " +
			"CPUs are whole CPUs.",
		Remedy: "Request a multiple of 1000m, or use QoS LS and nodes without the label cpu-bind-policy.",
	},
	InvalidField: {
		Name: "InvalidField", Class: Request, Plugin: "webhook",
		Text: "invalid field", Chinese: "字段无效",
		Cause:  "A field has a value that the rule named in the message does not allow.",
		Remedy: "Use one of the allowed values in the message.",
	},
	RequestLimitMismatch: {
		Name: "RequestLimitMismatch", Class: Request, Plugin: "any",
		Text: "requests must equal limits", Chinese: "request 必须等于 limit",
		Cause:  "LSE and LSR pods have guaranteed resources, so their requests must equal their limits.",
		Remedy: "Set limits equal to requests for cpu and memory of every container.",
	},
	InvalidDeviceRequest: {
		Name: "InvalidDeviceRequest", Class: Request, Plugin: devicePlugin,
		Text: "invalid request for devices", Chinese: "设备请求无效",
		Cause: "The resources or device annotations of the pod contradict each other, or ask for what no device can " +
			"give.",
		Remedy: "Correct the field that the message names.",
	},

	NoScheduler: {
		Name: "NoScheduler", Class: Attention, Plugin: "any", Resolvable: true,
		Text: "no scheduler serves the pod's scheduler name", Chinese: "没有调度器负责该 Pod 的 schedulerName",
		Cause:  "No running scheduler serves spec.schedulerName, or none of its replicas is the leader.",
		Remedy: "Start the scheduler, or correct spec.schedulerName.",
	},
	NotAttempted: {
		Name: "NotAttempted", Class: Attention, Plugin: "any", Resolvable: true,
		Text: "queued, no scheduling attempt yet", Chinese: "已入队,尚未尝试调度",
		Cause:  "The pod is in the scheduling queue and no scheduling cycle has attempted it yet.",
		Remedy: "Wait. If it persists, check the queue and the pods of higher priority.",
	},

	SchedulingGate: {
		Name: "SchedulingGate", Class: Gate, Plugin: "SchedulingGates", Resolvable: true, Upstream: true,
		Text: "waiting for scheduling gates", Chinese: "等待调度门(scheduling gates)移除",
		Cause:  "spec.schedulingGates keeps the pod out of the scheduling queue.",
		Remedy: "The controller that set the gates must remove them.",
	},

	QuotaExceeded: {
		Name: "QuotaExceeded", Class: Quota, Plugin: quotaPlugin, Resolvable: true, Amount: true, Upstream: true,
		Text: "Insufficient quotas", Chinese: "配额不足",
		Cause: "With the pod, its quota or a quota above it would use more than it may: its runtime, its max, or, " +
			"for pods that are not preemptible, its min.",
		Remedy: "Wait until pods of the quota end or others give back what they borrowed; raise what the message " +
			"names, or request less.",
	},
	QuotaNotFound: {
		Name: "QuotaNotFound", Class: Quota, Plugin: quotaPlugin, Upstream: true,
		Text: "the quota that the pod names does not exist", Chinese: "Pod 指定的配额不存在",
		Cause: "The label quota.scheduling.koordinator.sh/name names no ElasticQuota, and the plugin's argument " +
			"missingQuotaPolicy is Reject.",
		Remedy: "Create the ElasticQuota or correct the label.",
	},

	GangNotFound: {
		Name: "GangNotFound", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true,
		Text: "the PodGroup that the pod names does not exist", Chinese: "Pod 指定的 PodGroup 不存在",
		Cause: "A label or spec.schedulingGroup of the pod names a PodGroup of its namespace that does not exist, " +
			"or the PodGroup starts with others of a tree, and objects of the tree do not exist.",
		Remedy: "Create the objects that the message names or correct the name.",
	},
	GangGroupNotMutual: {
		Name: "GangGroupNotMutual", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true,
		Text: "the gangs of the group do not all list each other", Chinese: "同组的 gang 没有相互列出",
		Cause: "The gang lists others with which it starts together, and one of them does not exist or does not " +
			"list the same gangs.",
		Remedy: "List the same gangs, in the form namespace/name, in each gang of the group.",
	},
	GangNotReady: {
		Name: "GangNotReady", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true,
		Text: "the gang has fewer members than must run", Chinese: "gang 的成员数少于最小数量",
		Cause:  "Fewer pods of the gang, or of a gang of its group, exist than must start together.",
		Remedy: "Create the other members, or lower the gang's minimum.",
	},
	GangHolding: {
		Name: "GangHolding", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true,
		Text: "members of the gang are reserved and wait for the others", Chinese: "gang 的成员已预留,等待其他成员",
		Cause: "The pod, or another member of its gang, is reserved until the others are, or what members reserved " +
			"is being given back.",
		Remedy: "Wait: within the gang's waiting time all members start, or none.",
	},
	GangSiblingFailed: {
		Name: "GangSiblingFailed", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true,
		Text: "another member of the gang does not fit", Chinese: "gang 的其他成员无法调度",
		Cause:  "Too few members of the gang fit; the message names the one that failed.",
		Remedy: "Make room for that member, or lower the gang's minimum.",
	},
	GangPreempting: {
		Name: "GangPreempting", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true,
		Text: "pods are evicted for the gang", Chinese: "正在为 gang 驱逐低优先级的 Pod",
		Cause: "The gang fits when pods of lower priority have ended. They are evicted, and what they leave is held " +
			"for its members.",
		Remedy: "Wait for their grace period to end.",
	},
	GangTimeout: {
		Name: "GangTimeout", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true,
		Text: "the gang has waited too long for its other members", Chinese: "gang 等待其他成员超时",
		Cause: "Members were reserved, and the rest could not be within the gang's waiting time; what was reserved " +
			"is given back.",
		Remedy: "Make room for all members, or raise gang.scheduling.koordinator.sh/waiting-time.",
	},
	GangDeadlockReleased: {
		Name: "GangDeadlockReleased", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true,
		Text: "the gang gave back what another one needs to start", Chinese: "gang 已释放资源以解除死锁",
		Cause: "NonStrict gangs held what each other needs, so that none could start; this one follows the one " +
			"that the message names.",
		Remedy: "Wait until that gang has started, or let such gangs be Strict: they hold nothing while they wait.",
	},
	GangReserved: {
		Name: "GangReserved", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true,
		Text: "nodes are kept for the gang", Chinese: "已为 gang 保留节点",
		Cause: "The gang does not fit yet, and pods behind it in the queue were started before it as often as " +
			"maxOvertakes allows. Nodes on which it will fit get no pods of lower or equal priority until it starts.",
		Remedy: "Wait until pods that run on those nodes have ended; the message has the member that does not fit.",
	},

	GangLayerNotFound: {
		Name: "GangLayerNotFound", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true,
		Text: "no object defines the layer of the network that the gang must be in", Chinese: "gang 要求的网络拓扑层未定义",
		Cause: "The annotation gang.scheduling.koordinator.sh/network-topology-spec demands MustGather for a layer " +
			"that the ClusterNetworkTopology named default does not have.",
		Remedy: "Add the layer with its node labels to that object, correct the name of the layer, or let the " +
			"strategy be PreferGather.",
	},

	InvalidTopology: {
		Name: "InvalidTopology", Class: Data, Plugin: numaPlugin,
		Extra:        "count",
		ExtraMeaning: "NUMA nodes with CPUs, or threads of a core, where the machine has more than are supported",
		Text:         "node(s) invalid CPU Topology", Chinese: "节点的 CPU 拓扑无效",
		Cause: "The node's NodeResourceTopology is malformed, or the machine has more NUMA nodes with CPUs than are " +
			"supported.",
		Remedy: "Check the annotations of the NodeResourceTopology and the agent's log on that node.",
	},
	TopologyMissing: {
		Name: "TopologyMissing", Class: Data, Plugin: numaPlugin,
		Text: "node(s) invalid CPU Topology", Chinese: "节点没有 CPU 拓扑数据",
		Cause:  "The node has no NodeResourceTopology, so exclusive CPUs cannot be chosen.",
		Remedy: "Run the agent on the node.",
	},
	NUMAInfoEmpty: {
		Name: "NUMAInfoEmpty", Class: Data, Plugin: numaPlugin,
		Text: "numa info is empty", Chinese: "节点没有 NUMA 信息",
		Cause: "The pod's volcano.sh/numa-topology-policy is restricted or single-numa-node, and no agent or " +
			"exporter reports the NUMA nodes of the node's CPUs.",
		Remedy: "Run the agent, or Volcano's exporter, on the node.",
	},
	TopologyStale: {
		Name: "TopologyStale", Class: Data, Plugin: numaPlugin, Resolvable: true,
		Extra: "ageSeconds", ExtraMeaning: "age of the data in seconds",
		Text: "node(s) stale CPU Topology", Chinese: "节点的 CPU 拓扑数据过期",
		Cause:  "The node's NodeResourceTopology has not been confirmed for too long.",
		Remedy: "Check that the agent on the node runs and reaches the API server.",
	},
	TooManyNUMANodes: {
		Name: "TooManyNUMANodes", Class: Data, Plugin: numaPlugin,
		Extra: "allowed", ExtraMeaning: "NUMA nodes that the kubelet's setting or the model allows",
		Text: "node(s) with more NUMA nodes than their kubelet allows", Chinese: "节点的 NUMA 节点数超过 kubelet 允许的上限",
		Cause: "A kubelet with a topology policy does not start on a machine with more NUMA nodes than " +
			"max-allowable-numa-nodes, and more than 64 NUMA nodes are not supported.",
		Remedy: "Raise max-allowable-numa-nodes, or set the topology policy of the kubelet to none.",
	},
	KubeletPanics: {
		Name: "KubeletPanics", Class: Data, Plugin: numaPlugin,
		Extra: "numaID", ExtraMeaning: "the NUMA node id that the kubelet cannot handle, -1 for a hugepage size",
		Text: "node(s) kubelet would crash", Chinese: "kubelet 会崩溃",
		Cause: "The kubelet would crash when it admits the pod: its topology manager does not support NUMA node ids " +
			"of 64 and more, or gaps between ids with prefer-closest-numa-nodes, and its memory manager does not " +
			"support hugepage sizes that the machine does not have, in any amount, including 0.",
		Remedy: "Set the topology policy of the kubelet to none, or disable prefer-closest-numa-nodes where ids have " +
			"gaps; remove hugepages of that size from the pod.",
	},

	SMTAlignment: {
		Name: "SMTAlignment", Class: Placement, Plugin: numaPlugin,
		Extra: "threadsPerCore", ExtraMeaning: "CPUs of one physical core",
		Text: "node(s) requested cpus not multiple cpus per core", Chinese: "请求的 CPU 数不是每核线程数的整数倍",
		Cause: "The node or the pod requires whole physical cores, and the CPUs of the pod or of one of its " +
			"containers are not a multiple of the threads per core.",
		Remedy: "Request a multiple of threadsPerCore in every container.",
	},
	BindPolicyConflict: {
		Name: "BindPolicyConflict", Class: Placement, Plugin: numaPlugin,
		Text:    "node(s) cpu bind policy conflicts with pod's required cpu bind policy",
		Chinese: "节点的 CPU 绑定策略与 Pod 要求的策略冲突",
		Cause:   "The node's CPU bind policy, or its architecture, does not allow the policy that the pod requires.",
		Remedy:  "Prefer the policy instead of requiring it, or choose nodes with another policy.",
	},
	TopologyPolicy: {
		Name: "TopologyPolicy", Class: Placement, Plugin: numaPlugin, Resolvable: true, Amount: true,
		Extra: "numaNodes", ExtraMeaning: "the number of NUMA nodes that the policy allows the pod to span",
		Text: "node(s) NUMA Topology policy not match", Chinese: "不满足节点的 NUMA 拓扑策略",
		Cause: "The CPUs and the memory are free, but not together on as few NUMA nodes as the policy of the node or " +
			"pod allows.",
		Remedy: "Request amounts that fit the allowed number of NUMA nodes, or use a less strict policy.",
	},
	TopologyMismatch: {
		Name: "TopologyMismatch", Class: Placement, Plugin: numaPlugin,
		Text: "node(s) NUMA Topology policy not match", Chinese: "不满足节点的 NUMA 拓扑策略",
		Cause: "Restricted requires every resource on the same NUMA nodes, and on as few of them as an empty machine " +
			"needs; these resources need different numbers of NUMA nodes.",
		Remedy: "Request amounts that need the same number of NUMA nodes, or use BestEffort.",
	},
	TopologyUndecided: {
		Name: "TopologyUndecided", Class: Placement, Plugin: numaPlugin, Resolvable: true,
		Extra: "numaNodes", ExtraMeaning: "the number of NUMA nodes that the policy allows the pod to span",
		Text: "node(s) with too many NUMA node sets to search", Chinese: "NUMA 节点组合过多,无法全部搜索",
		Cause: "The machine has more than 8 NUMA nodes, and none of the NUMA node sets that were searched holds the " +
			"CPUs and the memory of the pod together.",
		Remedy: "Request amounts that fit one NUMA node, use BestEffort, or free CPUs and memory.",
	},
	NUMANodeShared: {
		Name: "NUMANodeShared", Class: Placement, Plugin: numaPlugin, Resolvable: true,
		Extra: "numaNodes", ExtraMeaning: "the number of NUMA nodes that the pod needs",
		Text:    "node(s) NUMA nodes are used by pods that the pod must not share them with",
		Chinese: "NUMA 节点已被不允许与该 Pod 共享的 Pod 使用",
		Cause: "The pod requires singleNUMANodeExclusive, which is the default of pods with a numaTopologyPolicy: it " +
			"uses one NUMA node and every one that holds it has a pod that spans several, or it spans several and " +
			"they have pods that are confined to one.",
		Remedy: "Set singleNUMANodeExclusive to Preferred in the annotation numa-topology-spec, or use nodes without " +
			"pods of the other kind.",
	},
	PoolNotConfined: {
		Name: "PoolNotConfined", Class: Placement, Plugin: numaPlugin,
		Text:    "node(s) do not confine pods of the CPU shared pool to NUMA nodes",
		Chinese: "节点不会把 CPU 共享池中的 Pod 限制在 NUMA 节点内",
		Cause: "The pod runs on the CPU shared pool and requests ConstrainedBurst or a NUMA topology policy of its " +
			"own; in mode Follow or Blind no agent writes the cpuset that would confine it.",
		Remedy: "Choose nodes in mode Own, request BestEffort, or make the pod Guaranteed with whole CPUs where the " +
			"kubelet's CPU manager is static.",
	},
	CPUManagerNotStatic: {
		Name: "CPUManagerNotStatic", Class: Placement, Plugin: numaPlugin,
		Text: "cpu manager policy isn't static", Chinese: "kubelet 的 CPU 管理策略不是 static",
		Cause: "Only the node's kubelet assigns CPUs to pods, and its CPU manager policy is not static: a placement " +
			"on NUMA nodes would not be enforced.",
		Remedy: "Set the CPU manager policy of that kubelet to static, run the agent there, or choose nodes where it " +
			"is static.",
	},
	TopologyPolicyDiffers: {
		Name: "TopologyPolicyDiffers", Class: Placement, Plugin: numaPlugin,
		Extra: "policies",
		ExtraMeaning: "4 × the pod's policy + the node's; 0 = none, 1 = best-effort, 2 = restricted, 3 = " +
			"single-numa-node",
		Text: "task topology policy is different with node", Chinese: "Pod 的拓扑策略与节点不同",
		Cause: "The pod's volcano.sh/numa-topology-policy requires alignment, and the node's kubelet does not align " +
			"pods; or the plugin's volcanoStrictPolicyMatch requires equal policies.",
		Remedy: "Choose nodes whose kubelet has a topology policy; under volcanoStrictPolicyMatch, the same policy " +
			"as the pod.",
	},
	InsufficientExclusiveCPU: {
		Name: "InsufficientExclusiveCPU", Class: Placement, Plugin: numaPlugin, Resolvable: true, Amount: true,
		Extra: "requiredBindPolicy", ExtraMeaning: "1 = FullPCPUs, 2 = SpreadByPCPUs was required; 0 = none",
		Text: "not enough cpus available to satisfy request", Chinese: "没有足够的可独占 CPU",
		Cause: "Other pods and reservations hold too many of the node's CPUs, or too many cores are partly allocated " +
			"for the required bind policy.",
		Remedy: "Wait, or free CPUs; where the pod requires a bind policy, prefer it instead.",
	},
	SharedPoolTooSmall: {
		Name: "SharedPoolTooSmall", Class: Placement, Plugin: numaPlugin, Resolvable: true, Amount: true,
		Text: "node(s) CPU shared pool too small", Chinese: "节点的 CPU 共享池太小",
		Cause:  "No set of NUMA nodes has a shared pool large enough for the pod's CPU limit and CPU request.",
		Remedy: "Lower the CPU limit, or free exclusive CPUs on the node.",
	},
	SharedPoolCommitted: {
		Name: "SharedPoolCommitted", Class: Placement, Plugin: numaPlugin, Resolvable: true, Amount: true,
		Text: "node(s) CPU shared pool committed to LS pods", Chinese: "CPU 共享池已承诺给 LS Pod",
		Cause: "A part of the shared pool of those NUMA nodes is committed to LS pods; more exclusive CPUs would " +
			"leave them less than that.",
		Remedy: "Wait for those LS pods to end, or request fewer CPUs.",
	},
	SharedPoolFloor: {
		Name: "SharedPoolFloor", Class: Placement, Plugin: numaPlugin, Resolvable: true, Amount: true,
		Extra: "floor", ExtraMeaning: "CPUs that the shared pool must keep",
		Text: "node(s) CPU shared pool would fall below its floor", Chinese: "CPU 共享池将低于下限",
		Cause: "The CPUs are free, but allocating them would leave the node's shared pool with fewer CPUs than its " +
			"minimum.",
		Remedy: "Request fewer CPUs, or lower minSharedCPUs of the plugin.",
	},
	InsufficientKubeletCPU: {
		Name: "InsufficientKubeletCPU", Class: Placement, Plugin: numaPlugin, Resolvable: true, Amount: true,
		Text: "node(s) kubelet does not have enough free CPUs to pin", Chinese: "kubelet 没有足够的可绑定 CPU",
		Cause: "The kubelet's static CPU manager pins every Guaranteed container with whole CPUs and does not have " +
			"enough free CPUs: it would reject the pod.",
		Remedy: "Wait for pinned pods to end, or switch the kubelet's CPU manager policy to none.",
	},
	KubeletTopologyAffinity: {
		Name: "KubeletTopologyAffinity", Class: Placement, Plugin: numaPlugin, Resolvable: true,
		Extra: "cause",
		ExtraMeaning: "1 = not enough free on any NUMA nodes, 2 = free only on more NUMA nodes than capacity needs, " +
			"3 = resources need different numbers of nodes, 4 = no nodes in common, 5 = more than one node needed",
		Text: "node(s) kubelet would reject: TopologyAffinityError", Chinese: "kubelet 会拒绝:TopologyAffinityError",
		Cause: "The kubelet's topology manager finds no set of NUMA nodes that its policy accepts for all resources " +
			"of the pod or of one of its containers.",
		Remedy: "Request less than one NUMA node has free, or inspect the hints with tenon explain --hints; reserved " +
			"CPUs and unhealthy devices count as capacity there.",
	},
	KubeletSMTAlignment: {
		Name: "KubeletSMTAlignment", Class: Placement, Plugin: numaPlugin, Resolvable: true,
		Extra: "threadsPerCore", ExtraMeaning: "CPUs of one core as the kubelet counts them",
		Text: "node(s) kubelet would reject: SMTAlignmentError", Chinese: "kubelet 会拒绝:SMTAlignmentError",
		Cause: "The kubelet runs with full-pcpus-only, and a container's CPUs are not a multiple of the threads per " +
			"core, or too few whole cores are free.",
		Remedy: "Request a multiple of threadsPerCore in every container, or wait for pinned pods to end.",
	},
	KubeletAdmission: {
		Name: "KubeletAdmission", Class: Placement, Plugin: numaPlugin, Resolvable: true,
		Extra: "cause",
		ExtraMeaning: "1 = not enough CPUs, 2 = not enough memory, 3 = not enough memory in the group of the chosen " +
			"NUMA nodes, 4 = memory only on more NUMA nodes than necessary, 5 = memory of the NUMA nodes belongs to " +
			"another group, 6 = not enough devices, 7 = no healthy device, 8 = the container already holds another " +
			"amount",
		Text: "node(s) kubelet would reject: UnexpectedAdmissionError", Chinese: "kubelet 会拒绝:UnexpectedAdmissionError",
		Cause: "The kubelet's topology manager admits the pod, but one of its resource managers cannot allocate what " +
			"a container requests.",
		Remedy: "Request less, wait for pods to end, or inspect the allocation with tenon explain --hints.",
	},
	KubeletWouldHang: {
		Name: "KubeletWouldHang", Class: Placement, Plugin: numaPlugin,
		Extra:        "seconds",
		ExtraMeaning: "about how long the merge of NUMA hints takes; 0 = the CPU manager never returns",
		Text:         "node(s) kubelet would hang", Chinese: "kubelet 会卡死",
		Cause: "The node would admit no other pod for more than 30 s. Either the kubelet evaluates every combination " +
			"of the NUMA hints of the pod's resources (kubernetes#131738), or, with distribute-cpus-across-numa, " +
			"full-pcpus-only and cores of which one thread is reserved, its CPU manager never returns.",
		Remedy: "Request fewer kinds of resources that have hints (hugepages and each device count) in one " +
			"container, use the kubelet's policy single-numa-node or fewer NUMA nodes in the firmware; with seconds " +
			"0, reserve whole cores on that node, or disable one of the two options.",
	},
	KubeletSharesCPUs: {
		Name: "KubeletSharesCPUs", Class: Placement, Plugin: numaPlugin, Resolvable: true,
		Extra: "sharedCPUs", ExtraMeaning: "CPUs that the pod would get and another pod has",
		Text: "node(s) kubelet would give CPUs of another pod", Chinese: "kubelet 会分配其他 Pod 已占用的 CPU",
		Cause: "The machine's cores have different numbers of threads (a hybrid machine, or threads that are " +
			"offline), where the kubelet's CPU manager takes a core for free when only one of its threads is " +
			"(kubernetes#140495, #124066).",
		Remedy: "Wait for the other pod to end; or disable SMT, or set the threads that are offline online, so that " +
			"all cores are alike.",
	},
	KubeletRejected: {
		Name: "KubeletRejected", Class: Placement, Plugin: numaPlugin, Resolvable: true,
		Extra: "backoffSeconds", ExtraMeaning: "seconds until the node is tried again for pods of this shape",
		Text: "node(s) kubelet rejected a pod of this shape", Chinese: "kubelet 刚拒绝过同样形状的 Pod",
		Cause: "The node's kubelet rejected a pod with the same requests although it was predicted to fit, so the " +
			"node is excluded for pods of this shape until a back-off ends.",
		Remedy: "Wait for the back-off to end. If it repeats, compare the node's report with its kubelet.",
	},
	EnforcementDegraded: {
		Name: "EnforcementDegraded", Class: Placement, Plugin: numaPlugin,
		Text: "node(s) cannot enforce exclusive CPUs from a container's start", Chinese: "节点无法从容器启动起就保证独占 CPU",
		Cause: "The node's condition tenon.sh/EnforcementDegraded is True: containers may start without the agent, " +
			"so an LSE pod could share its CPUs for a while.",
		Remedy: "Connect NRI or the runtime proxy on the node; or start its agent with --allow-degraded-enforcement.",
	},
	KubeletAssumed: {
		Name: "KubeletAssumed", Class: Placement, Plugin: numaPlugin,
		Text: "node(s) kubelet is not one that the model knows", Chinese: "模型不了解节点的 kubelet",
		Cause: "In mode Follow the kubelet chooses the CPUs, and this kubelet's release, options or feature gates " +
			"are not in the model (condition tenon.sh/KubeletAssumed), so what it chooses is a guess.",
		Remedy: "Run a kubelet that the model knows, remove the option or gate that the node's condition names, or " +
			"set the plugin argument followAssumedKubelets to RankLast or Trust.",
	},
	DeviceMissing: {
		Name: "DeviceMissing", Class: Placement, Plugin: devicePlugin,
		Text: "node(s) missing Device", Chinese: "节点没有 Device 对象或没有该类设备",
		Cause: "The node has no Device object that can be read, or no device of the requested type, vendor or " +
			"profile in it.",
		Remedy: "Use other nodes; on this one check that its agent reports devices.",
	},
	DevicesOfKubelet: {
		Name: "DevicesOfKubelet", Class: Placement, Plugin: devicePlugin,
		Text: "node(s) kubelet gives out the devices", Chinese: "节点的设备由 kubelet 分配",
		Cause: "The node is in device mode Follow: its kubelet chooses whole GPUs, and neither a share nor a choice " +
			"of Tenon could be enforced.",
		Remedy: "Request whole GPUs by their vendor's name, or move the node's devices to device mode Own.",
	},
	ForeignDevices: {
		Name: "ForeignDevices", Class: Placement, Plugin: devicePlugin,
		Extra: "holders", ExtraMeaning: "pods of which it is not known which devices they have, and unknown devices",
		Text: "node(s) hold devices allocated outside the scheduler", Chinese: "节点上有调度器之外分配的设备",
		Cause: "A pod on the node requests devices, got none of Tenon's scheduler, and is not in the annotation " +
			"devices-checkpoints of the node's Device object; or that names a device that the object does not list. " +
			"Any device of the node may be in use.",
		Remedy: "Wait until the agent reports what the pod has; without an agent, or with an unknown device, delete " +
			"the pod that another scheduler bound.",
	},
	PartitionTableMissing: {
		Name: "PartitionTableMissing", Class: Placement, Plugin: devicePlugin,
		Text: "node(s) missing GPU Partition Table", Chinese: "节点缺少 GPU 分区表",
		Cause: "The pod or the node's label gpu-partition-policy demands partitions, and the Device object has no " +
			"table of them.",
		Remedy: "Write the annotation gpu-partitions, or let the pod's gpu-partition-spec be BestEffort.",
	},
	PartitionCountUnsupported: {
		Name: "PartitionCountUnsupported", Class: Placement, Plugin: devicePlugin,
		Text: "node(s) Unsupported number of GPU requests", Chinese: "节点的分区表不支持该 GPU 数量",
		Cause:  "The node's partition table has no partition of as many GPUs as the pod requests.",
		Remedy: "Request a number of GPUs that the table has.",
	},
	SharedTemplateMissing: {
		Name: "SharedTemplateMissing", Class: Placement, Plugin: devicePlugin,
		Text: "no matched GPU shared resource template", Chinese: "没有匹配的 GPU 共享模板",
		Cause:  "The requested units equal no template that the node's devices have.",
		Remedy: "Request the exact units of a template that the text names.",
	},
	DeviceShareUnsupported: {
		Name: "DeviceShareUnsupported", Class: Placement, Plugin: devicePlugin,
		Text: "model does not support GPU Share", Chinese: "该型号不支持共享 GPU",
		Cause:  "The plugin argument gpuShareUnsupportedModels names the model of the node's GPUs.",
		Remedy: "Request whole GPUs, or use nodes with other models.",
	},
	GPUIsolationMissing: {
		Name: "GPUIsolationMissing", Class: Placement, Plugin: devicePlugin,
		Text: "GPUIsolationProviderHAMICore not found on the node", Chinese: "节点没有 Pod 要求的 GPU 隔离组件",
		Cause: "The pod asks for a share of a GPU and has the label koordinator.sh/gpu-isolation-provider, and the " +
			"node does not have the same one.",
		Remedy: "Install the library that the label names on the node and label the node, or remove the pod's label.",
	},
	VirtualFunctionsMissing: {
		Name: "VirtualFunctionsMissing", Class: Placement, Plugin: devicePlugin,
		Text: "Insufficient VirtualFunctions", Chinese: "虚拟功能(VF)不足",
		Cause:  "The pod demands a virtual function, and no device of the node has one that matches.",
		Remedy: "Make virtual functions on the NICs, or correct the pod's vfSelector.",
	},
	DeviceJointAllocation: {
		Name: "DeviceJointAllocation", Class: Placement, Plugin: devicePlugin, Resolvable: true,
		Text: "node(s) Device Joint-Allocate rules violation", Chinese: "不满足设备联合分配规则",
		Cause:  "Each type of device is free by itself, but no combination satisfies the pod's joint allocation.",
		Remedy: "Wait, or relax requiredScope.",
	},
	InsufficientNUMADevices: {
		Name: "InsufficientNUMADevices", Class: Placement, Plugin: devicePlugin, Resolvable: true,
		Text: "Insufficient NUMA Scoped Devices", Chinese: "同一 NUMA 节点上的设备不足",
		Cause: "Devices are free, but not on NUMA nodes that the topology policy allows together with the pod's CPUs " +
			"and memory.",
		Remedy: "Wait, request less, or relax the topology policy of pod or node.",
	},
	InsufficientPartitions: {
		Name: "InsufficientPartitions", Class: Placement, Plugin: devicePlugin, Resolvable: true, Amount: true,
		Text: "Insufficient Partitioned GPU Devices", Chinese: "可用的 GPU 分区不足",
		Cause:  "GPUs are free, but no whole partition of the table.",
		Remedy: "Wait until the GPUs of one partition are free.",
	},
	InsufficientScopedDevices: {
		Name: "InsufficientScopedDevices", Class: Placement, Plugin: devicePlugin, Resolvable: true, Amount: true,
		Text: "Insufficient Topology Scoped Devices", Chinese: "同一拓扑范围内的设备不足",
		Cause:  "Devices are free, but not enough within one scope of the pod's requiredTopologyScope.",
		Remedy: "Wait, or demand a wider scope.",
	},
	InsufficientDevices: {
		Name: "InsufficientDevices", Class: Placement, Plugin: devicePlugin, Resolvable: true, Amount: true,
		Extra: "whole", ExtraMeaning: "devices of the type that no pod has a part of",
		Text: "Insufficient devices", Chinese: "设备不足",
		Cause: "The node has too few devices that can give what the pod asks of each: in use by other pods, not " +
			"healthy, or excluded by a selector.",
		Remedy: "Wait until pods end, request less, or add nodes.",
	},

	InsufficientCPU: {
		Name: "InsufficientCPU", Class: Capacity, Plugin: fitPlugin, Resolvable: true, Amount: true,
		Text: "Insufficient cpu", Chinese: "CPU 不足",
		Cause:  "The requests of the pods on the node leave too little CPU.",
		Remedy: "Wait, free CPU, or add a node.",
	},
	InsufficientMemory: {
		Name: "InsufficientMemory", Class: Capacity, Plugin: "any", Resolvable: true, Amount: true,
		Text: "Insufficient memory", Chinese: "内存不足",
		Cause:  "The requests of the pods on the node leave too little memory.",
		Remedy: "Wait, free memory, or add a node.",
	},
	InsufficientEphemeralStorage: {
		Name: "InsufficientEphemeralStorage", Class: Capacity, Plugin: fitPlugin, Resolvable: true, Amount: true,
		Text: "Insufficient ephemeral-storage", Chinese: "临时存储不足",
		Cause:  "The requests of the pods on the node leave too little ephemeral storage.",
		Remedy: "Wait, free storage, or add a node.",
	},
	InsufficientPods: {
		Name: "InsufficientPods", Class: Capacity, Plugin: fitPlugin, Resolvable: true, Amount: true,
		Text: "Too many pods", Chinese: "节点上的 Pod 太多",
		Cause:  "The node runs as many pods as its kubelet allows.",
		Remedy: "Wait, remove pods, or add a node.",
	},
	InsufficientExtended: {
		Name: "InsufficientExtended", Class: Capacity, Plugin: fitPlugin, Resolvable: true, Amount: true,
		Upstream: true, Extra: "allocatable", ExtraMeaning: "amount of the resource that the node has in all",
		Text: "Insufficient extended resource", Chinese: "扩展资源不足",
		Cause:  "The node has too little of an extended resource that the message names.",
		Remedy: "Wait, free the resource, or add a node that has it.",
	},

	GangOtherDomain: {
		Name: "GangOtherDomain", Class: Constraint, Plugin: gangPlugin, Upstream: true,
		Text: "node(s) were not in the domain of the pod's gang", Chinese: "节点不在 Pod 所属 gang 的网络拓扑域内",
		Cause: "The members of the gang must be in one domain of a layer of the network, and others of them run in " +
			"another domain.",
		Remedy: "Make room in the domain in which the gang runs.",
	},
	NodeAffinity: {
		Name: "NodeAffinity", Class: Constraint, Plugin: "NodeAffinity", Upstream: true,
		Text: "node(s) didn't match Pod's node affinity/selector", Chinese: "节点不满足 Pod 的 nodeAffinity/nodeSelector",
		Cause:  "spec.nodeSelector or the node affinity of the pod excludes the node.",
		Remedy: "Correct the selector, or label a node.",
	},
	NodeName: {
		Name: "NodeName", Class: Constraint, Plugin: "NodeName", Upstream: true,
		Text: "node(s) didn't match the requested node name", Chinese: "节点名与请求的不符",
		Cause:  "spec.nodeName asks for another node.",
		Remedy: "Remove spec.nodeName.",
	},
	NodeUnschedulable: {
		Name: "NodeUnschedulable", Class: Constraint, Plugin: "NodeUnschedulable", Upstream: true,
		Text: "node(s) were unschedulable", Chinese: "节点被标记为不可调度",
		Cause:  "The node is cordoned.",
		Remedy: "Uncordon the node when its maintenance is done.",
	},
	TaintToleration: {
		Name: "TaintToleration", Class: Constraint, Plugin: "TaintToleration", Upstream: true,
		Text: "node(s) had untolerated taint(s)", Chinese: "节点有 Pod 不容忍的污点",
		Cause:  "The node has a taint that the pod does not tolerate.",
		Remedy: "Add a toleration, or remove the taint.",
	},
	NodePorts: {
		Name: "NodePorts", Class: Constraint, Plugin: "NodePorts", Resolvable: true, Upstream: true,
		Text: "node(s) didn't have free ports for the requested pod ports", Chinese: "节点上所需的主机端口已被占用",
		Cause:  "Another pod on the node uses a host port that the pod requests.",
		Remedy: "Use another host port, or none.",
	},
	PodAffinity: {
		Name: "PodAffinity", Class: Constraint, Plugin: "InterPodAffinity", Resolvable: true, Upstream: true,
		Text: "node(s) didn't match pod affinity/anti-affinity rules", Chinese: "不满足 Pod 亲和/反亲和规则",
		Cause:  "The pods in the node's topology domain do not match the pod's affinity or anti-affinity, or theirs.",
		Remedy: "Correct the rules, or wait for the pods they name.",
	},
	PodTopologySpread: {
		Name: "PodTopologySpread", Class: Constraint, Plugin: "PodTopologySpread", Resolvable: true, Upstream: true,
		Text: "node(s) didn't match pod topology spread constraints", Chinese: "不满足拓扑分布约束",
		Cause:  "Placing the pod there would exceed maxSkew of a topology spread constraint.",
		Remedy: "Raise maxSkew, or add nodes in the domains with the fewest pods.",
	},
	Volume: {
		Name: "Volume", Class: Constraint, Plugin: "any", Upstream: true,
		Text: "node(s) cannot serve the pod's volumes", Chinese: "节点无法提供 Pod 的存储卷",
		Cause:  "A volume of the pod cannot be bound or attached on the node.",
		Remedy: "Check the persistent volume claims that the message names.",
	},
	UpstreamFilter: {
		Name: "UpstreamFilter", Class: Constraint, Plugin: "any", Upstream: true,
		Text: "node(s) rejected by another plugin", Chinese: "被其他插件拒绝",
		Cause:  "A scheduler plugin that Tenon does not know rejected the node with its own message.",
		Remedy: "Read the plugin's name and text in the message.",
	},

	NoVictims: {
		Name: "NoVictims", Class: Victims, Plugin: defaultPreemp, Resolvable: true, Upstream: true,
		Text: "No preemption victims found for incoming pod", Chinese: "没有可抢占的 Pod",
		Cause:  "Evicting all pods of lower priority would not make the pod fit on any node.",
		Remedy: "Raise the pod's priority, or fix the root cause.",
	},
	VictimsTerminating: {
		Name: "VictimsTerminating", Class: Victims, Plugin: defaultPreemp, Resolvable: true, Upstream: true,
		Text: "waiting for preempted pods to terminate", Chinese: "等待被抢占的 Pod 退出",
		Cause:  "Pods were evicted for this pod and are still terminating.",
		Remedy: "Wait for their grace period to end.",
	},
	NominatedElsewhere: {
		Name: "NominatedElsewhere", Class: Victims, Plugin: defaultPreemp, Resolvable: true, Upstream: true,
		Text: "resources are reserved for a pod of higher priority", Chinese: "资源已预留给更高优先级的 Pod",
		Cause:  "The resources that would fit the pod are reserved for a nominated pod of higher or equal priority.",
		Remedy: "Wait until that pod is bound.",
	},
	Preempted: {
		Name: "Preempted", Class: Victims, Plugin: defaultPreemp, Resolvable: true, Upstream: true,
		Text: "evicted for a pod of higher priority", Chinese: "已被更高优先级的 Pod 抢占",
		Cause:  "tenon simulate: a pod of higher priority fits only without this one.",
		Remedy: "Raise the pod's priority, or add a node.",
	},

	UnallocatedExclusivePod: {
		Name: "UnallocatedExclusivePod", Class: Enforcement, Plugin: "agent",
		Text: "exclusive pod without allocated CPUs", Chinese: "独占 Pod 没有分配到 CPU",
		Cause: "An LSE or LSR pod reached the node without an allocation: a scheduler that does not know Tenon bound " +
			"it.",
		Remedy: "Use a scheduler name that Tenon serves, or start the agent with --allow-unallocated-lsr for LSR.",
	},
}
