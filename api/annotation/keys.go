package annotation

// Labels of a Pod.
const (
	// QoSClass is LSE, LSR, LS, BE or SYSTEM.
	QoSClass = "koordinator.sh/qosClass"
	// PriorityClass names a class of Koordinator and overrides the one derived from spec.priority.
	PriorityClass = "koordinator.sh/priority-class"
	// Priority is an int32, the priority of a pod inside its class.
	Priority = "koordinator.sh/priority"
)

// Annotations of a Pod.
const (
	// ResourceSpecKey holds a ResourceSpec, written by users.
	ResourceSpecKey = "scheduling.koordinator.sh/resource-spec"
	// ResourceStatusKey holds a ResourceStatus, written by the scheduler in the Binding.
	ResourceStatusKey = "scheduling.koordinator.sh/resource-status"
	// NUMATopologySpecKey holds a NUMATopologySpec, written by users.
	NUMATopologySpecKey = "scheduling.koordinator.sh/numa-topology-spec"
	// IsolationKey is prefer, require or avoid, which counts where it is absent: whether a pod with exclusive CPUs gets
	// CPUs that the boot of the node isolated.
	IsolationKey = "tenon.sh/isolated-cpus"
	// SimulateKey holds a Simulate: how a simulated node plays the pod.
	SimulateKey = "tenon.sh/simulate"
	// PredictedPlacementKey holds a PredictedPlacement, written by the scheduler in the Binding.
	PredictedPlacementKey = "tenon.sh/predicted-placement"
)

// Annotations of a Pod that only a scheduler writes. They are removed from pods that are created, so that a copied
// manifest cannot smuggle an allocation in.
const (
	// DeviceAllocatedKey holds DeviceAllocations, written by the scheduler in the Binding.
	DeviceAllocatedKey = "scheduling.koordinator.sh/device-allocated"
	// ReservationAllocatedKey holds a ReservationAllocated: the Reservation that the pod uses.
	ReservationAllocatedKey = "scheduling.koordinator.sh/reservation-allocated"
	// BindKeyPrefix begins keys that are removed from pods that are created.
	BindKeyPrefix = "scheduling.koordinator.sh/bind-"
)

// RotateCertificates is an annotation of the Secret with the certificates of a release: "now" makes new ones at once,
// and the old authority remains trusted until it expires; "replace" drops it as soon as the new certificates are
// served, for a key that has leaked. The manager removes it.
const RotateCertificates = "tenon.sh/rotate-certificates"

// Annotations of the ConfigMap slo-controller-config, which the manager writes.
const (
	// LastValidStrategy holds the last data of the ConfigMap without an error, as JSON. It counts while the data has an
	// error.
	LastValidStrategy = "tenon.sh/last-valid-strategy"
	// StrategyProblem is the error of the data. It is removed when the data is corrected.
	StrategyProblem = "tenon.sh/strategy-problem"
)

// RequiredPlugins is an annotation of a Pod for container runtimes: a YAML list of the NRI plugins without which its
// containers must not be created. With "/pod" behind it, it says the same; with "/container." and a name, it counts for
// one container instead. NRIPlugin is the name of the agent's plugin.
const (
	RequiredPlugins = "required-plugins.noderesource.dev"
	NRIPlugin       = "tenon-agent"
)

// Labels of a Node, with the spellings that are read besides them.
const (
	// NodeCPUBindPolicy is None, FullPCPUsOnly or SpreadByPCPUs.
	NodeCPUBindPolicy = "node.koordinator.sh/cpu-bind-policy"
	// NodeCPUBindPolicyAlias is read where NodeCPUBindPolicy is absent.
	NodeCPUBindPolicyAlias = "node.koordator.sh/cpubind-policy"

	// NodeNUMAAllocateStrategy is MostAllocated, LeastAllocated or DistributeEvenly.
	NodeNUMAAllocateStrategy = "node.koordinator.sh/numa-allocate-strategy"

	// NodeNUMATopologyPolicy is None, BestEffort, Restricted or SingleNUMANode; the policy of the kubelet where it is
	// absent.
	NodeNUMATopologyPolicy = "node.koordinator.sh/numa-topology-policy"
	// NodeNUMATopologyPolicyAlias is read where NodeNUMATopologyPolicy is absent.
	NodeNUMATopologyPolicyAlias = "node.koordinator.sh/numa-topology-alignment-policy"
)

// Annotations of a Node, copied to its NodeResourceTopology by the agent.
const (
	// NodeReservation holds a Reservation.
	NodeReservation = "node.koordinator.sh/reservation"
	// NodeSystemQoSResource holds a SystemQoSResource.
	NodeSystemQoSResource = "node.koordinator.sh/system-qos-resource"
)

// NodeColocationStrategy is an annotation of a Node with what counts for it alone of the strategy of colocation: the
// fields of colocation-config.
const NodeColocationStrategy = "node.koordinator.sh/colocation-strategy"

// Labels of a Node with a share of its capacity, 0 to 1, which count over the strategy of colocation.
const (
	// NodeCPUReclaimRatio and NodeMemoryReclaimRatio are what all pods together may use.
	NodeCPUReclaimRatio    = "node.koordinator.sh/cpu-reclaim-ratio"
	NodeMemoryReclaimRatio = "node.koordinator.sh/memory-reclaim-ratio"
	// NodeMidStaticCPURatio and NodeMidStaticMemoryRatio are what mid pods get in the mode static.
	NodeMidStaticCPURatio    = "node.koordinator.sh/mid-static-cpu-reserved-ratio"
	NodeMidStaticMemoryRatio = "node.koordinator.sh/mid-static-memory-reserved-ratio"
)

// LeaveKey is an annotation of a Node, with any value: its agent gives cgroups back to the kubelet and publishes
// nothing, and no pod is given CPUs or devices there. `tenon leave` sets it.
const LeaveKey = "node.tenon.sh/leave"

// What Nodes have for autoscalers, which add and remove them.
const (
	// StartupTaint is a taint that a Node registers with. The manager removes it once the agent has reported the
	// machine, and with the value StartupDevices once devices are reported, too.
	StartupTaint = "tenon.sh/agent-not-ready"
	// ScaleDownDisabled is an annotation: with the value "true" the cluster autoscaler keeps the Node.
	ScaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	// DoNotDisrupt is an annotation: with the value "true" Karpenter keeps the Node.
	DoNotDisrupt = "karpenter.sh/do-not-disrupt"
)

// What pods have for autoscalers.
const (
	// ScaleHelper is a label of a pod for which autoscalers add a node in the place of another pod: its value is the
	// UID of that pod. The annotation of the same key is the pod's namespace and name. A Node has the label
	// where Karpenter adds nodes, if pods wait that fit it by amounts alone.
	ScaleHelper = "tenon.sh/scale-helper"
	// ConsumeProvisioningRequest is an annotation of a pod: the cluster autoscaler provisions its capacity by a
	// ProvisioningRequest. Such a pod gets no ScaleHelper.
	ConsumeProvisioningRequest = "autoscaling.x-k8s.io/consume-provisioning-request"
)

// StartupDevices is a value of StartupTaint.
const StartupDevices = "devices"

// IsLeaving reports whether a Node with these annotations is to be left.
func IsLeaving(annotations map[string]string) bool {
	_, leaving := annotations[LeaveKey]
	return leaving
}

// Metadata of a NodeResourceTopology.
const (
	// ManagedBy and ManagedByKoordinator are the label by which other tools find the object.
	ManagedBy            = "app.kubernetes.io/managed-by"
	ManagedByKoordinator = "Koordinator"

	// KubeletCPUManagerPolicy holds a KubeletCPUManager.
	KubeletCPUManagerPolicy       = "kubelet.koordinator.sh/cpu-manager-policy"
	KubeletCPUManagerPolicyAlias1 = "kubelet.koordinator.sh/cpu-manger-policy"
	KubeletCPUManagerPolicyAlias2 = "kubelet.koartiator.sh/cpu-manager-policy"

	// CPUTopology holds a CPUTopologyDetail.
	CPUTopology = "node.koordinator.sh/cpu-topology"
	// PodCPUAllocsKey holds PodCPUAllocs.
	PodCPUAllocsKey = "node.koordinator.sh/pod-cpu-allocs"
	// CPUSharedPoolsKey and BECPUSharedPoolsKey hold CPUSharedPools.
	CPUSharedPoolsKey   = "node.koordinator.sh/cpu-shared-pools"
	BECPUSharedPoolsKey = "node.koordinator.sh/be-cpu-shared-pools"

	// Writer names the agent and its version, on every object that it owns.
	Writer = "tenon.sh/writer"
	// DeviceSchedulingLabel of a Namespace, with the value enabled, makes Tenon the scheduler of its pods with devices
	// that name none, and lets no other one bind those.
	DeviceSchedulingLabel = "tenon.sh/device-scheduling"
	// TakeoverKey holds a Takeover.
	TakeoverKey = "node.tenon.sh/takeover"
	// ReportKey holds a Report.
	ReportKey = "node.tenon.sh/report"
	// IsolatedCPUsKey holds an IsolatedCPUs. It is absent where the boot isolated no CPU and nothing disturbs them.
	IsolatedCPUsKey = "node.tenon.sh/isolated-cpus"
	// KubeletKey holds a Kubelet, NUMAStateKey a NUMAState.
	KubeletKey   = "node.tenon.sh/kubelet"
	NUMAStateKey = "node.tenon.sh/numa-state"
	// TopologyMode is a Mode, ModeOwn where it is absent. On a Node the label of this name is the admin's wish.
	TopologyMode = "node.tenon.sh/topology-mode"
)

// Lookup returns the value of the first key that is present: a canonical key before its aliases.
func Lookup(m map[string]string, keys ...string) (value, key string, found bool) {
	for _, key := range keys {
		if value, ok := m[key]; ok {
			return value, key, true
		}
	}
	return "", "", false
}

// EnforcementDegraded is the condition of a Node on which containers may start without the agent, so that a pod is not
// alone on its exclusive CPUs from its first process on. Reasons: NoTransport, OldRuntime and FenceDisabled, or
// DegradedAllowed where the agent's --allow-degraded-enforcement accepts LSE pods all the same.
const (
	EnforcementDegraded = "tenon.sh/EnforcementDegraded"
	DegradedAllowed     = "DegradedAllowed"
	// KubeletStateContradictory is the condition of a Node whose kubelet's records contradict themselves; its reason is
	// CPUsGivenTwice where CPUs are given to two pods, or given and free at once.
	KubeletStateContradictory = "tenon.sh/KubeletStateContradictory"
	CPUsGivenTwice            = "CPUsGivenTwice"
)
