package event

// Reasons, in the order of the list.
const (
	none Reason = iota
	Drifted
	DriftRepaired
	EnforcementFailed
	EffectiveWiderThanDesired
	CPUHandOverPending
	UnallocatedExclusivePod
	UnallocatedDevicePod
	DeviceUnavailable
	DeviceConflict
	DeviceMismatch
	DeviceMemoryExceeded
	AllocationRefused
	AllocationConflict
	AllocationUnusable
	BoundCPUOffline
	BadAnnotation
	AgentNotReady
	UnknownPod
	EnforcementDegraded
	NRIDisconnected
	HookSocketUnusable
	RuntimeCallSlow
	AgentRestarted
	SecondAgent
	APIServerUnreachable
	KubeletRestarted
	KubeletSettingsChanged
	KubeletStateUnreadable
	KubeletStateContradictory
	DeviceHoldersUnclear
	KubeletStaticActive
	KubeletAssumed
	TopologyModeConflict
	TopologySourceDegraded
	TopologyWriterConflict
	TopologyChanged
	TopologyPublished
	TopologyLarge
	TopologyCut
	TopologyTooLarge
	TakeoverPhase
	NodeLeft
	OrphanHeld
	CheckpointLost
	ExclusivePolicyIgnored
	PlacementMispredicted
	PlacementUnconfirmed
	KubeletModelSuspect
	AccountRepaired
	GangHeld
	GangRoundFailed
	GangTimeout
	GangDeadlockReleased
	Preempted
	GangPreempted
	GangScheduled
	GangDegraded
	GangConfigMismatch
	QuotaNotFound
	QuotaRevocationPlanned
	QuotaRevocationCancelled
	QuotaRevoked
	QuotaRevocation
	OveruseNotRevocable
	QuotaNotFollowed
)

const (
	agent     = "tenon-agent"
	scheduler = "tenon-scheduler"
	manager   = "tenon-manager"
)

var entries = [...]Entry{
	none: {},
	Drifted: {
		Name: "Drifted", From: agent, On: "Pod",
		Means: "Another program changed a cpuset of the pod.",
		Does: "It restores it at the next comparison; of two exclusive pods whose sets were swapped, it leaves both " +
			"where they are until one of them ends.",
		Do: "Find the other writer: tenon doctor names those that it knows.",
	},
	DriftRepaired: {
		Name: "DriftRepaired", From: agent, On: "Pod", Normal: true,
		Means: "A cpuset that another program had changed is as wanted again.",
	},
	EnforcementFailed: {
		Name: "EnforcementFailed", From: agent, On: "Pod",
		Means: "The kernel does not take a value, or the CPUs of an exclusive pod cannot be recorded because the disk" +
			" is full.",
		Does: "It keeps trying, with pauses; a container whose CPUs are not set or not recorded does not start.",
		Do:   "The text has the file and the kernel's answer.",
	},
	EffectiveWiderThanDesired: {
		Name: "EffectiveWiderThanDesired", From: agent, On: "Pod",
		Means: "The kernel takes a set and gives the group more CPUs than that.",
		Does:  "It keeps trying; a container does not start so.",
		Do:    "Look for another writer of the groups above the pod's.",
	},
	CPUHandOverPending: {
		Name: "CPUHandOverPending", From: agent, On: "Pod",
		Means: "Exclusive CPUs of the pod are still in use by a pod that ends.",
		Does:  "The new container does not start until they are free.",
		Do:    "Wait; the kubelet tries again.",
	},
	UnallocatedExclusivePod: {
		Name: "UnallocatedExclusivePod", From: agent, On: "Pod",
		Means: "An LSE or LSR pod was bound without CPUs, as by another scheduler.",
		Does:  "It does not start.",
		Do:    "Set spec.schedulerName and create the pod anew.",
	},
	UnallocatedDevicePod: {
		Name: "UnallocatedDevicePod", From: agent, On: "Pod",
		Means: "A pod that requests devices was bound without any, as by another scheduler, on a node whose devices " +
			"are Tenon's.",
		Does: "Its containers are not created.",
		Do:   "Set spec.schedulerName and create the pod anew.",
	},
	DeviceUnavailable: {
		Name: "DeviceUnavailable", From: agent, On: "Pod",
		Means: "A device that was allocated to the pod is not on the machine, or its driver has no device file for it.",
		Does:  "The pod's containers are not created.",
		Do:    "Look for the device on the node; delete the pod to have it placed anew.",
	},
	DeviceConflict: {
		Name: "DeviceConflict", From: agent, On: "Pod",
		Means: "A container was to be created with devices that were not allocated to it, or without its own.",
		Does:  "The container is not created.",
		Do: "The text names the device: remove the other writer, such as a device plugin that passes device files, " +
			"or the privilege.",
	},
	DeviceMismatch: {
		Name: "DeviceMismatch", From: agent, On: "Pod",
		Means: "A running container can use a device that was not allocated to its pod, or cannot use its own: it " +
			"was started while no agent answered, another program changed it, or the device is gone.",
		Does: "The container goes on; the Event is sent again when the difference changes.",
		Do:   "Delete the pod. If it comes back, find the other writer: tenon doctor checks the runtime.",
	},
	DeviceMemoryExceeded: {
		Name: "DeviceMemoryExceeded", From: agent, On: "Pod",
		Means: "The processes of a pod use more memory of a GPU than was allocated to it, by what the driver says: " +
			"the limits of shares are cooperative.",
		Does: "The pod goes on; the Event is sent again when it has used less meanwhile.",
		Do:   "Delete the pod, or let it request as much as it uses. Programs without trust need whole GPUs.",
	},
	AllocationRefused: {
		Name: "AllocationRefused", From: agent, On: "Pod",
		Means: "The allocation of a running pod was changed.",
		Does:  "The pod keeps what it was granted until it ends.",
		Do:    "Delete the pod to place it anew.",
	},
	AllocationConflict: {
		Name: "AllocationConflict", From: agent, On: "Pod",
		Means: "An allocation names CPUs that another pod has, or that are reserved on the node.",
		Does:  "The pod that had them first keeps them; the other one does not start on them. Both have the Event.",
		Do:    "Delete the pod that does not start.",
	},
	AllocationUnusable: {
		Name: "AllocationUnusable", From: agent, On: "Pod",
		Means: "An allocation names CPUs or NUMA nodes that the machine does not have, or all its CPUs went offline.",
		Does: "It leaves them out. A running pod without any CPU left runs on the CPU shared pool until they are " +
			"back; new containers of it do not start.",
		Do: "Bring the CPUs back, or delete the pod to place it anew.",
	},
	BoundCPUOffline: {
		Name: "BoundCPUOffline", From: agent, On: "Pod",
		Means: "Some CPUs of an allocation are offline.",
		Does:  "The pod runs on the rest of them until they are back.",
		Do:    "Bring the CPUs back.",
	},
	BadAnnotation: {
		Name: "BadAnnotation", From: agent, On: "Pod",
		Means: "An annotation of the pod cannot be read; the text names the place.",
		Does:  "It treats it as absent; with an allocation that cannot be read no container of the pod starts.",
		Do:    "Find who edited it, and create the pod anew.",
	},
	AgentNotReady: {
		Name: "AgentNotReady", From: agent, On: "Pod",
		Means: "A container is created before the agent knows its node.",
		Does: "It does not start, if its pod uses Tenon. While the API server does not answer an agent that starts, " +
			"it serves after 5 s the containers that the runtime reports, with the pools of the Node as it was last" +
			" known; CPUs in the record of granted ones are held for their pods, groups of pods that the runtime " +
			"does not report are not changed. Where the kubelet's CPU manager is static, or no agent has worked " +
			"here before, containers wait.",
		Do: "Wait; the kubelet tries again.",
	},
	UnknownPod: {
		Name: "UnknownPod", From: agent, On: "Pod",
		Means: "A container is created of a pod that the API does not have.",
		Does:  "It does not start, if its pod uses Tenon.",
		Do:    "Wait; the kubelet tries again.",
	},
	EnforcementDegraded: {
		Name: "EnforcementDegraded", From: agent, On: "Node, Pod", Condition: true,
		Means: "Containers may start without the agent. Reasons of the condition: NoTransport (neither NRI nor a " +
			"runtime proxy is connected), OldRuntime (the runtime continues when the agent does not answer in " +
			"time), FenceDisabled (the runtime does not read the annotation of required plugins), DegradedAllowed " +
			"(one of those, with --allow-degraded-enforcement).",
		Does: "Containers are set right after their start. LSE pods do not start, unless --allow-degraded-enforcement" +
			" allows them; such a pod has the Event, too.",
		Do: "Run tenon doctor on the node. For OldRuntime update the runtime or install the proxy; for FenceDisabled " +
			"enable the default validator.",
	},
	NRIDisconnected: {
		Name: "NRIDisconnected", From: agent, On: "Node",
		Means: "The container runtime is not connected by NRI, or restarts.",
		Does:  "It keeps trying; the comparison of the cgroup tree goes on.",
		Do:    "Wait; if it persists, run tenon doctor on the node.",
	},
	HookSocketUnusable: {
		Name: "HookSocketUnusable", From: agent, On: "Node",
		Means: "The hook socket cannot be created: a runtime proxy cannot ask.",
		Does:  "It keeps trying.",
		Do:    "The text has the file and the cause.",
	},
	RuntimeCallSlow: {
		Name: "RuntimeCallSlow", From: agent, On: "Node",
		Means: "The agent did not answer a call of the runtime within 1.5 s.",
		Does:  "It refuses the step for a pod that uses Tenon, before the runtime would continue without an answer.",
		Do:    "Look at the load of the node.",
	},
	AgentRestarted: {
		Name: "AgentRestarted", From: agent, On: "Node",
		Means: "The agent was killed, or ended with an error; the text has the longest time without an agent.",
		Does:  "The next one adopts what it finds. An end that was asked for has no Event.",
		Do:    "Look for its end: the kernel's log for a kill, kubectl -n tenon-system logs --previous.",
	},
	SecondAgent: {
		Name: "SecondAgent", From: agent, On: "Node",
		Means: "Another agent was started on the machine; the text names the process that works.",
		Does:  "The second one ends at once. One Event is kept at a time.",
		Do:    "Stop one of them: a second DaemonSet, or a unit of systemd.",
	},
	APIServerUnreachable: {
		Name: "APIServerUnreachable", From: agent, On: "Node",
		Means: "The API server did not answer for 10 s or more; sent once it answers again.",
		Does: "Meanwhile it keeps what runs in order and starts it again; pods that the kubelet starts get what their" +
			" annotations say.",
		Do: "Look at the API server and the network.",
	},
	KubeletRestarted: {
		Name: "KubeletRestarted", From: agent, On: "Node", Normal: true,
		Means: "The kubelet has started anew.",
		Does:  "It asks the kubelet again; what a static one then sets on running containers is overridden.",
		Do:    "Nothing, unless it comes again and again.",
	},
	KubeletSettingsChanged: {
		Name: "KubeletSettingsChanged", From: agent, On: "Node", Normal: true,
		Means: "The kubelet's policies or options have changed.",
		Does:  "It follows, and publishes them.",
	},
	KubeletStateUnreadable: {
		Name: "KubeletStateUnreadable", From: agent, On: "Node", Condition: true,
		Means: "A record of the kubelet (cpu_manager_state, memory_manager_state, the device checkpoint) cannot be " +
			"used, or was there and is removed.",
		Does: "The last good one of that manager counts.",
		Do:   "The message names the record.",
	},
	KubeletStateContradictory: {
		Name: "KubeletStateContradictory", From: agent, On: "Node", Condition: true,
		Means: "A static kubelet records one CPU for two pods, as it does where cores differ in threads " +
			"(kubernetes#140495), or PodResources and a record differ about a container.",
		Does: "It publishes the record as it is; no other pod gets that CPU.",
		Do:   "The message names it.",
	},
	DeviceHoldersUnclear: {
		Name: "DeviceHoldersUnclear", From: agent, On: "Node", Condition: true,
		Means: "A pod that the API does not have uses devices, as after a deletion by force; the kubelet gave out a " +
			"device that Tenon's scheduler gave to another pod, or one that the Device object does not list; the " +
			"kubelet's answer, its checkpoint and a container's environment name different devices; or none of them " +
			"names those of a pod that requests some.",
		Does: "What one source names stays held; the containers of the second holder are not created. The node gets " +
			"no other pod with devices while those of a pod are not known.",
		Do: "The message names devices or pods: delete one of two holders, end processes that were left, see that " +
			"the kubelet answers.",
	},
	KubeletStaticActive: {
		Name: "KubeletStaticActive", From: agent, On: "Node", Condition: true,
		Means: "A static kubelet records CPUs for one pod that are exclusive to another.",
		Does:  "It keeps the pod off them: Tenon's values hold.",
		Do:    "Leave the static policy, or label the node Follow.",
	},
	KubeletAssumed: {
		Name: "KubeletAssumed", From: agent, On: "Node", Condition: true,
		Means: "The scheduler's model does not know this kubelet's release, options or feature gates.",
		Does:  "It reports it; the plugin argument followAssumedKubelets says what follows in mode Follow.",
		Do:    "The message names what is not known; the guide NUMA alignment says what it means for predictions.",
	},
	TopologyModeConflict: {
		Name: "TopologyModeConflict", From: agent, On: "Node", Condition: true,
		Means: "The label asks for a topology mode that is not possible.",
		Does:  "It keeps its own.",
		Do:    "Change the label.",
	},
	TopologySourceDegraded: {
		Name: "TopologySourceDegraded", From: agent, On: "Node", Condition: true,
		Means: "The machine's files contradict each other or cannot be read, or the kubelet does not answer or " +
			"contradicts itself.",
		Does: "The last good topology or answer counts, as the message says; at its start the agent ends with the " +
			"file's name.",
		Do: "The message names the file or the right.",
	},
	TopologyWriterConflict: {
		Name: "TopologyWriterConflict", From: agent, On: "Node", Condition: true,
		Means: "Another program writes the annotations of the NodeResourceTopology (koordlet), the Device or the " +
			"Numatopology.",
		Does: "It stops writing. Zones, attributes and policies that another program writes (NFD, a topology " +
			"exporter) are left to it, without an Event.",
		Do: "Stop one of the two.",
	},
	TopologyChanged: {
		Name: "TopologyChanged", From: agent, On: "Node",
		Means: "CPUs or NUMA nodes came or went while the agent runs.",
		Does:  "It publishes the machine anew; what pods hold of CPUs that are gone is left out.",
		Do:    "Find who took them offline.",
	},
	TopologyPublished: {
		Name: "TopologyPublished", From: agent, On: "Node", Normal: true,
		Means: "The node's topology is published for the first time since the agent's start.",
	},
	TopologyLarge: {
		Name: "TopologyLarge", From: agent, On: "Node",
		Means: "The annotations of the NodeResourceTopology come to more than 128 KiB.",
		Does:  "It publishes them.",
	},
	TopologyCut: {
		Name: "TopologyCut", From: agent, On: "Node",
		Means: "The annotations come to more than 240 KiB.",
		Does:  "It leaves out what each container holds.",
	},
	TopologyTooLarge: {
		Name: "TopologyTooLarge", From: agent, On: "Node",
		Means: "The annotations come to more than 240 KiB without what each container holds.",
		Does:  "It does not publish them; the last ones remain.",
	},
	TakeoverPhase: {
		Name: "TakeoverPhase", From: agent, On: "Node", Normal: true,
		Means: "The take-over of CPUs from a static kubelet has reached its next phase.",
		Does:  "The text says which.",
	},
	NodeLeft: {
		Name: "NodeLeft", From: agent, On: "Node", Condition: true,
		Means: "The Node has the annotation node.tenon.sh/leave. Reasons of the condition: Left (containers start " +
			"without the agent), AgentNeeded (some pods of the node do not, or would lack their devices; the text " +
			"names them), CgroupsRemain (the kernel did not take a value).",
		Does: "It has given cgroups back to the kubelet, holds no container back, and publishes nothing.",
		Do: "For AgentNeeded do what the text says. tenon leave shows all nodes; tenon leave --undo brings the node " +
			"back.",
	},
	OrphanHeld: {
		Name: "OrphanHeld", From: agent, On: "Node", Normal: true,
		Means: "A pod was deleted by force while its processes live; sent after a restart of the agent.",
		Does:  "Its CPUs remain its own until its group is empty.",
		Do:    "Look for the processes in the group that the text names.",
	},
	CheckpointLost: {
		Name: "CheckpointLost", From: agent, On: "Node",
		Means: "The agent's record of granted CPUs cannot be used.",
		Does:  "It uses the cgroup tree: CPUs that no shared pool uses count as exclusive.",
	},
	ExclusivePolicyIgnored: {
		Name: "ExclusivePolicyIgnored", From: scheduler, On: "Pod",
		Means: "The pod's exclusive policy does not exist on the architecture of its node.",
		Does:  "It binds the pod; other pods may share cores with it.",
		Do:    "Leave the policy out, or select other nodes.",
	},
	PlacementMispredicted: {
		Name: "PlacementMispredicted", From: scheduler, On: "Pod",
		Means: "The kubelet of a Follow node gave the pod something else than was predicted.",
		Does:  "It accounts what the kubelet reports.",
		Do:    "tenon explain shows both placements; if it repeats, report it with both.",
	},
	PlacementUnconfirmed: {
		Name: "PlacementUnconfirmed", From: scheduler, On: "Pod",
		Means: "The kubelet has not started a pod that was bound long ago.",
		Does:  "What it was predicted to get remains reserved.",
		Do:    "Look at the kubelet of the node.",
	},
	KubeletModelSuspect: {
		Name: "KubeletModelSuspect", From: scheduler, On: "Node",
		Means: "The kubelet rejected pods again and again that its model admits.",
		Does:  "The node ranks last for pods that the kubelet's managers concern.",
		Do:    "Compare the node's kubelet settings with what tenon topology shows.",
	},
	AccountRepaired: {
		Name: "AccountRepaired", From: scheduler, On: "Node",
		Means: "The scheduler's account of the node or of its pods' quotas differed from the API for a minute.",
		Does:  "It repaired the account.",
		Do:    "Report it with the scheduler's log.",
	},
	GangHeld: {
		Name: "GangHeld", From: scheduler, On: "Pod",
		Means: "The gang of the pod has too few members, its PodGroup or a gang of its group is missing, or what is " +
			"said of it cannot be read.",
		Does: "It binds no member of the gang. The condition PodScheduled has the same message.",
		Do:   "Create the members or the PodGroup, or correct what the message names.",
	},
	GangRoundFailed: {
		Name: "GangRoundFailed", From: scheduler, On: "Pod",
		Means: "All members of the gang were tried together and too few fit, for what the named member lacks.",
		Does:  "It reserves nothing for the gang, and tries it again when something changes that may help.",
		Do:    "Make room for the member that the message names.",
	},
	GangTimeout: {
		Name: "GangTimeout", From: scheduler, On: "Pod",
		Means: "The waiting time of a NonStrict gang was over before enough members were reserved.",
		Does:  "It gives back what was reserved, and tries the gang again.",
		Do:    "Make room for the missing members, or set a longer waiting-time.",
	},
	GangDeadlockReleased: {
		Name: "GangDeadlockReleased", From: scheduler, On: "Pod",
		Means: "NonStrict gangs held what the others needed, so that none could start.",
		Does:  "It gives back what this gang held, for a more important one, and tries it again when that has started.",
		Do:    "Nothing, or make the gangs Strict.",
	},
	Preempted: {
		Name: "Preempted", From: scheduler, On: "Pod", Normal: true,
		Means: "The pod is evicted, or its reservation ends, for a pod or gang of higher priority. Kubernetes' own " +
			"scheduler sends the same.",
	},
	GangPreempted: {
		Name: "GangPreempted", From: scheduler, On: "PodGroup", Normal: true,
		Means: "Pods of the gang are evicted for a pod or gang of higher priority, which the text names. Of a gang " +
			"without a PodGroup, the Event is about the pod.",
		Does: "It evicts no part that the gang cannot spare: all of it goes, with the gangs that started with it, or " +
			"pods above its minimum.",
	},
	GangScheduled: {
		Name: "GangScheduled", From: manager, On: "PodGroup", Normal: true,
		Means: "As many pods of the gang as must start are on nodes.",
	},
	GangDegraded: {
		Name: "GangDegraded", From: manager, On: "PodGroup",
		Means: "Fewer pods of a gang are on nodes than must run: some have ended, or could not be bound.",
		Does:  "It writes the phase Unknown. The scheduler tries the gang's pending pods before others.",
		Do:    "Look which pods have failed, and whether others are pending.",
	},
	GangConfigMismatch: {
		Name: "GangConfigMismatch", From: scheduler, On: "Pod",
		Means: "The annotations of the pod say other things of its gang than those of its oldest pod.",
		Does:  "It follows the oldest pod.",
		Do:    "Give all pods of the gang the same annotations, or put them on its PodGroup.",
	},
	QuotaNotFound: {
		Name: "QuotaNotFound", From: scheduler, On: "Pod",
		Means: "The pod names a quota that does not exist.",
		Does:  "It places the pod in the default quota until the quota exists.",
		Do:    "Create the ElasticQuota or correct the label quota.scheduling.koordinator.sh/name.",
	},
	QuotaRevocationPlanned: {
		Name: "QuotaRevocationPlanned", From: manager, On: "Pod",
		Means: "The quota of the pod uses more than its share, and a pod of another quota waits for it.",
		Does: "It evicts the pod when the time in the text is over, unless the need ends before. Until then the pod " +
			"has the condition tenon.sh/QuotaRevocation.",
		Do: "Give the pod's quota more min, or the pod a higher priority; a pod with the label preemptible=false is " +
			"never evicted for a quota.",
	},
	QuotaRevocationCancelled: {
		Name: "QuotaRevocationCancelled", From: manager, On: "Pod", Normal: true,
		Means: "The pod is not evicted: no other quota needs what it uses any more, or another pod was enough.",
	},
	QuotaRevoked: {
		Name: "QuotaRevoked", From: manager, On: "Pod",
		Means: "The pod was evicted, or the Eviction API refused to, because its quota used more than its share.",
		Does:  "After a refusal it waits, and takes another pod meanwhile.",
		Do:    "The text has the quotas and the amounts; tenon quota shows the tree.",
	},
	QuotaRevocation: {
		Name: "QuotaRevocation", From: manager, On: "ElasticQuota", Normal: true,
		Means: "The record of an eviction, or with the policy DryRun of what would be evicted: the quotas, the " +
			"amounts before and after, and the outcome.",
	},
	OveruseNotRevocable: {
		Name: "OveruseNotRevocable", From: manager, On: "ElasticQuota",
		Means: "The quota uses more than its share, and none of its pods can be evicted; the text names the cause " +
			"for each pod.",
		Does: "It plans again when a cause ends.",
		Do:   "Change what the text names: labels, PodDisruptionBudgets, gangs, limits of revocation.",
	},
	QuotaNotFollowed: {
		Name: "QuotaNotFollowed", From: manager, On: "ElasticQuota",
		Means: "The quota says something that cannot be followed: a parent that does not exist or is below it, an " +
			"amount that is negative, above max or without a max, text that cannot be read, the name of another quota.",
		Does: "The scheduler counts what the text says instead.",
		Do:   "Correct what the text names; the webhook refuses such changes while the manager runs.",
	},
}
