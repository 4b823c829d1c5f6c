package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Configuration files of components of Tenon. Each field has the default and the meaning of the flag of its name
// (nriSocket of --nri-socket), which wins over it.
const (
	ComponentAPIVersion      = "config.tenon.sh/v1alpha1"
	AgentConfigurationKind   = "AgentConfiguration"
	ManagerConfigurationKind = "ManagerConfiguration"
)

// AgentConfiguration is the file that tenon-agent run reads with --config. What differs from node to node (node name,
// root, addresses, kubeconfig, log level) has flags alone.
type AgentConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// AllowDegradedEnforcement starts LSE pods even if containers may start without the agent. Default: false.
	AllowDegradedEnforcement bool `json:"allowDegradedEnforcement,omitempty"`
	// AllowUnallocatedLSR runs LSR pods that another scheduler bound on the CPU shared pool. Default: false.
	AllowUnallocatedLSR bool `json:"allowUnallocatedLSR,omitempty"`
	// CgroupRoot is the cgroup below which the kubelet keeps its pods, as an absolute path. Default: as the kubelet
	// reports, else /.
	CgroupRoot string `json:"cgroupRoot,omitempty"`
	// DeviceExempt lists NAMESPACE or NAMESPACE/SELECTOR of pods that may see devices without an allocation.
	DeviceExempt []string `json:"deviceExempt,omitempty"`
	// DeviceMode determines who allocates devices: Follow (the kubelet), Own (Tenon) or Moving. Default: by the Device
	// object.
	DeviceMode string `json:"deviceMode,omitempty"`
	// DisableQueryKubeletConfig does not ask the kubelet (take-over phase 1). Default: false.
	DisableQueryKubeletConfig bool `json:"disableQueryKubeletConfig,omitempty"`
	// EvictDeviceOveruse evicts best-effort pods that exceed their allocation of GPU memory for a minute. Default:
	// false.
	EvictDeviceOveruse bool `json:"evictDeviceOveruse,omitempty"`
	// FeatureGates contains CPUSetAllocator: whether the agent writes cpusets. Default: true.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
	// HookSocket is the socket for tenon-runtime-proxy; empty to not listen. Default: /run/tenon/hooks.sock.
	HookSocket string `json:"hookSocket,omitempty"`
	// IsolateExclusiveCPUs moves interrupts off the CPUs of LSE pods, and of LSR pods that ask for it, and limits how
	// deep CPUs sleep where pods ask for it. Default: false.
	IsolateExclusiveCPUs bool `json:"isolateExclusiveCPUs,omitempty"`
	// Kubelet describes how the kubelet handles CPUs, memory and topology, such as static,restricted. Default: as the
	// kubelet reports.
	Kubelet string `json:"kubelet,omitempty"`
	// NRISocket is the container runtime's NRI socket; empty to not connect. Default: /var/run/nri/nri.sock.
	NRISocket string `json:"nriSocket,omitempty"`
	// PodResourcesSocket is the kubelet's PodResources socket; empty to not ask. Default: the standard path, below the
	// root.
	PodResourcesSocket string `json:"podResourcesSocket,omitempty"`
	// PublishNumatopology also publishes the node's Numatopology for Volcano. Default: false.
	PublishNumatopology bool `json:"publishNumatopology,omitempty"`
	// Resync is the time between two comparisons of the whole cgroup tree, 1s or more. Default: 30s.
	Resync metav1.Duration `json:"resync,omitempty"`
	// SchedulerNames are the schedulers whose pods may use Tenon. Labels and annotations of Tenon on other pods are
	// ignored. Default: all.
	SchedulerNames []string `json:"schedulerNames,omitempty"`
}

// ManagerConfiguration is the file that tenon-manager reads with --config. Addresses, certificates, kubeconfig, leader
// election, the file of arguments of quotas and the log level have flags alone.
type ManagerConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// ProtectReservations sets the annotations by which the cluster autoscaler and Karpenter keep a node, on nodes with
	// Reservations that hold capacity. Default: false.
	ProtectReservations bool `json:"protectReservations,omitempty"`
	// PublishDeviceResources publishes the amounts of devices in the capacity of their nodes. Default: true.
	PublishDeviceResources bool `json:"publishDeviceResources,omitempty"`
	// RelaxResourceKeys accepts an ElasticQuota whose max has only some of the resources of its parent's. Default:
	// false.
	RelaxResourceKeys bool `json:"relaxResourceKeys,omitempty"`
	// RequireNRIPlugin makes runtimes refuse containers that hold CPUs while the agent is down. Default: true.
	RequireNRIPlugin bool `json:"requireNRIPlugin,omitempty"`
	// ScaleHelper creates pods in the namespace tenon-scale-helper for which cluster autoscalers add nodes, for pods
	// that fit nodes by amounts alone. Default: false.
	ScaleHelper bool `json:"scaleHelper,omitempty"`
	// SchedulerIdentities are user names that may write the annotations of a scheduler. Default: the service accounts
	// of tenon-scheduler and koord-scheduler.
	SchedulerIdentities []string `json:"schedulerIdentities,omitempty"`
	// SchedulerNames are the schedulers whose pods count, first the one that gets pods with devices of namespaces that
	// ask for it. Default: pods of every scheduler count.
	SchedulerNames []string `json:"schedulerNames,omitempty"`
	// SLOConfigNamespace is that of the ConfigMap slo-controller-config; empty to write no NodeMetrics, NodeSLOs and
	// amounts of batch and mid pods. Default: tenon-system.
	SLOConfigNamespace string `json:"sloConfigNamespace,omitempty"`
	// Workloads is about objects of operators, whose pods start together.
	Workloads *WorkloadsConfiguration `json:"workloads,omitempty"`
}

// WorkloadsConfiguration says which pods of an operator's object start together.
type WorkloadsConfiguration struct {
	// Grouping says whose pods start together: Declared for those of all namespaces, OptIn for those of namespaces with
	// the label tenon.sh/gangs=auto, Off for none. Default: Declared.
	Grouping string `json:"grouping,omitempty"`
	// Rules are added to those of the built-in table. One replaces the built-in rule of its kind and versions.
	Rules []runtime.RawExtension `json:"rules,omitempty"`
}
