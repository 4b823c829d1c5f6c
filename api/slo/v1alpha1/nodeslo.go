package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeSLO is how the best-effort pods of a node give way to the others. Its name is the node's. Percentages are of the
// node's capacity unless a field says otherwise.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=nodeslos,singular=nodeslo
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Suppress",type=boolean,JSONPath=.spec.resourceUsedThresholdWithBE.enable
// +kubebuilder:printcolumn:name="CPU",type=integer,JSONPath=.spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=.spec.resourceUsedThresholdWithBE.cpuSuppressPolicy
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=.metadata.creationTimestamp
type NodeSLO struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the agent of the node does. The manager writes it.
	// +optional
	Spec NodeSLOSpec `json:"spec,omitempty"`
	// Status has no fields.
	// +optional
	Status NodeSLOStatus `json:"status,omitempty"`
}

// NodeSLOList is a list of NodeSLO.
//
// +kubebuilder:object:root=true
type NodeSLOList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []NodeSLO `json:"items"`
}

// NodeSLOStatus has no fields.
type NodeSLOStatus struct{}

// NodeSLOSpec is what the agent of a node does.
type NodeSLOSpec struct {
	// ResourceUsedThresholdWithBE is when best-effort pods are suppressed or evicted.
	// +optional
	ResourceUsedThresholdWithBE *ResourceThresholdStrategy `json:"resourceUsedThresholdWithBE,omitempty"`
	// ResourceQOSStrategy is what the kernel does for each class of pods.
	// +optional
	ResourceQOSStrategy *ResourceQOSStrategy `json:"resourceQOSStrategy,omitempty"`
	// CPUBurstStrategy is how far pods of class LS may exceed their CPU limits for a moment.
	// +optional
	CPUBurstStrategy *CPUBurstStrategy `json:"cpuBurstStrategy,omitempty"`
	// SystemStrategy is accepted from manifests of Koordinator, without effect.
	// +optional
	SystemStrategy *Unread `json:"systemStrategy,omitempty"`
	// Extensions are of other programs, and are kept as written.
	// +optional
	Extensions *Unread `json:"extensions,omitempty"`
	// HostApplications are applications on the node that Kubernetes does not run.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	HostApplications []HostApplicationSpec `json:"hostApplications,omitempty"`
}

// CPUBurstStrategy is how far pods of class LS may exceed their CPU limits for a moment.
type CPUBurstStrategy struct {
	CPUBurstConfig `json:",inline"`
	// SharePoolThresholdPercent is accepted from manifests of Koordinator, without effect.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SharePoolThresholdPercent *int64 `json:"sharePoolThresholdPercent,omitempty"`
}

// CPUBurstConfig is what a node says of all pods, and a pod of itself in its annotation koordinator.sh/cpuBurst.
type CPUBurstConfig struct {
	// Policy is none; cpuBurstOnly, which lets the kernel save CPU time that a container has not used; auto, of which
	// only that part has effect; or cfsQuotaBurstOnly, which has no effect. Default: none.
	// +optional
	// +kubebuilder:validation:Enum=none;auto;cpuBurstOnly;cfsQuotaBurstOnly
	Policy CPUBurstPolicy `json:"policy,omitempty"`
	// CPUBurstPercent is how much CPU time is saved at most, in percent of the CPU limit in a period of 100 ms. The
	// kernel saves at most the limit (100). Default: 1000.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	CPUBurstPercent *int64 `json:"cpuBurstPercent,omitempty"`
	// CFSQuotaBurstPercent is accepted from manifests of Koordinator, without effect.
	// +optional
	CFSQuotaBurstPercent *int64 `json:"cfsQuotaBurstPercent,omitempty"`
	// CFSQuotaBurstPeriodSeconds is accepted from manifests of Koordinator, without effect.
	// +optional
	CFSQuotaBurstPeriodSeconds *int64 `json:"cfsQuotaBurstPeriodSeconds,omitempty"`
}

// CPUBurstPolicy is by which means pods exceed their CPU limits.
type CPUBurstPolicy string

// Values of CPUBurstPolicy.
const (
	CPUBurstNone      CPUBurstPolicy = "none"
	CPUBurstAuto      CPUBurstPolicy = "auto"
	CPUBurstOnly      CPUBurstPolicy = "cpuBurstOnly"
	CFSQuotaBurstOnly CPUBurstPolicy = "cfsQuotaBurstOnly"
)

// CPUBurstPolicies returns the values of CPUBurstPolicy.
func CPUBurstPolicies() []string {
	return []string{string(CPUBurstNone), string(CPUBurstAuto), string(CPUBurstOnly), string(CFSQuotaBurstOnly)}
}

// ResourceThresholdStrategy is when best-effort pods are suppressed or evicted.
//
// +kubebuilder:validation:XValidation:rule="!has(self.memoryEvictThresholdPercent) || !has(self.memoryEvictLowerPercent) || self.memoryEvictLowerPercent < self.memoryEvictThresholdPercent",message="memoryEvictLowerPercent must be less than memoryEvictThresholdPercent"
// +kubebuilder:validation:XValidation:rule="!has(self.memoryAllocatableEvictThresholdPercent) || !has(self.memoryAllocatableEvictLowerPercent) || self.memoryAllocatableEvictLowerPercent < self.memoryAllocatableEvictThresholdPercent",message="memoryAllocatableEvictLowerPercent must be less than memoryAllocatableEvictThresholdPercent"
// +kubebuilder:validation:XValidation:rule="!has(self.cpuEvictBESatisfactionUpperPercent) || !has(self.cpuEvictBESatisfactionLowerPercent) || self.cpuEvictBESatisfactionLowerPercent < self.cpuEvictBESatisfactionUpperPercent",message="cpuEvictBESatisfactionLowerPercent must be less than cpuEvictBESatisfactionUpperPercent"
// +kubebuilder:validation:XValidation:rule="!has(self.cpuEvictThresholdPercent) || !has(self.cpuEvictLowerPercent) || self.cpuEvictLowerPercent < self.cpuEvictThresholdPercent",message="cpuEvictLowerPercent must be less than cpuEvictThresholdPercent"
// +kubebuilder:validation:XValidation:rule="!has(self.cpuAllocatableEvictThresholdPercent) || !has(self.cpuAllocatableEvictLowerPercent) || self.cpuAllocatableEvictLowerPercent < self.cpuAllocatableEvictThresholdPercent",message="cpuAllocatableEvictLowerPercent must be less than cpuAllocatableEvictThresholdPercent"
type ResourceThresholdStrategy struct {
	// Enable is whether best-effort pods are suppressed and evicted. Default: false.
	// +optional
	Enable *bool `json:"enable,omitempty"`
	// CPUSuppressThresholdPercent is up to which use of the node's CPUs best-effort pods get what others leave.
	// Default: 65.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CPUSuppressThresholdPercent *int64 `json:"cpuSuppressThresholdPercent,omitempty"`
	// CPUSuppressMinPercent is what best-effort pods keep in any case. Default: the minimum of the policy.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CPUSuppressMinPercent *int64 `json:"cpuSuppressMinPercent,omitempty"`
	// CPUSuppressPolicy is cpuset, which takes CPUs from best-effort pods, or cfsQuota, which limits their time.
	// Default: cpuset.
	// +optional
	// +kubebuilder:validation:Enum=cpuset;cfsQuota
	CPUSuppressPolicy CPUSuppressPolicy `json:"cpuSuppressPolicy,omitempty"`
	// MemoryEvictThresholdPercent is the use of the node's memory from which on best-effort pods are evicted.
	// Default: none; no pod is evicted for memory.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MemoryEvictThresholdPercent *int64 `json:"memoryEvictThresholdPercent,omitempty"`
	// MemoryEvictLowerPercent is the use down to which they are. Default: memoryEvictThresholdPercent - 2.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MemoryEvictLowerPercent *int64 `json:"memoryEvictLowerPercent,omitempty"`
	// MemoryAllocatableEvictThresholdPercent is accepted from manifests of Koordinator, without effect.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryAllocatableEvictThresholdPercent *int64 `json:"memoryAllocatableEvictThresholdPercent,omitempty"`
	// MemoryAllocatableEvictLowerPercent is accepted from manifests of Koordinator, without effect.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryAllocatableEvictLowerPercent *int64 `json:"memoryAllocatableEvictLowerPercent,omitempty"`
	// CPUEvictBESatisfactionUpperPercent is the share of their CPU requests at which best-effort pods are satisfied:
	// until what they may use is so much, pods are evicted. Default: none; no pod is evicted for CPU.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CPUEvictBESatisfactionUpperPercent *int64 `json:"cpuEvictBESatisfactionUpperPercent,omitempty"`
	// CPUEvictBESatisfactionLowerPercent is the share below which best-effort pods are evicted. Default: none; no pod
	// is evicted for CPU.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CPUEvictBESatisfactionLowerPercent *int64 `json:"cpuEvictBESatisfactionLowerPercent,omitempty"`
	// CPUEvictBEUsageThresholdPercent is the use of what best-effort pods may have, from which on they are evicted.
	// Default: 90.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CPUEvictBEUsageThresholdPercent *int64 `json:"cpuEvictBEUsageThresholdPercent,omitempty"`
	// CPUEvictTimeWindowSeconds is how long pods must be unsatisfied without a break before they are evicted.
	// Default: 60.
	// +optional
	// +kubebuilder:validation:Minimum=1
	CPUEvictTimeWindowSeconds *int64 `json:"cpuEvictTimeWindowSeconds,omitempty"`
	// CPUEvictThresholdPercent is accepted from manifests of Koordinator, without effect.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CPUEvictThresholdPercent *int64 `json:"cpuEvictThresholdPercent,omitempty"`
	// CPUEvictLowerPercent is accepted from manifests of Koordinator, without effect.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CPUEvictLowerPercent *int64 `json:"cpuEvictLowerPercent,omitempty"`
	// CPUAllocatableEvictThresholdPercent is accepted from manifests of Koordinator, without effect.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CPUAllocatableEvictThresholdPercent *int64 `json:"cpuAllocatableEvictThresholdPercent,omitempty"`
	// CPUAllocatableEvictLowerPercent is accepted from manifests of Koordinator, without effect.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CPUAllocatableEvictLowerPercent *int64 `json:"cpuAllocatableEvictLowerPercent,omitempty"`
	// CPUEvictPolicy is whether satisfaction is what pods may use now (evictByRealLimit), or batch-cpu in Node.status
	// (evictByAllocatable), divided by their requests. Default: evictByRealLimit.
	// +optional
	// +kubebuilder:validation:Enum=evictByRealLimit;evictByAllocatable
	CPUEvictPolicy CPUEvictPolicy `json:"cpuEvictPolicy,omitempty"`
	// EvictEnabledPriorityThreshold is accepted from manifests of Koordinator, without effect.
	// +optional
	EvictEnabledPriorityThreshold *int32 `json:"evictEnabledPriorityThreshold,omitempty"`
	// AllocatableEvictPriorityThreshold is accepted from manifests of Koordinator, without effect.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7999
	AllocatableEvictPriorityThreshold *int32 `json:"allocatableEvictPriorityThreshold,omitempty"`
}

// CPUSuppressPolicy is how best-effort pods lose CPU.
type CPUSuppressPolicy string

// Values of CPUSuppressPolicy.
const (
	CPUSetPolicy      CPUSuppressPolicy = "cpuset"
	CPUCfsQuotaPolicy CPUSuppressPolicy = "cfsQuota"
)

// CPUEvictPolicy is what satisfaction of best-effort pods is.
type CPUEvictPolicy string

// Values of CPUEvictPolicy.
const (
	EvictByRealLimit   CPUEvictPolicy = "evictByRealLimit"
	EvictByAllocatable CPUEvictPolicy = "evictByAllocatable"
)

// ResourceQOSStrategy is what the kernel does for each class of pods.
type ResourceQOSStrategy struct {
	// Policies are by which mechanisms.
	// +optional
	Policies *ResourceQOSPolicies `json:"policies,omitempty"`
	// LSRClass is for pods of class LSR.
	// +optional
	LSRClass *ResourceQOS `json:"lsrClass,omitempty"`
	// LSClass is for pods of class LS.
	// +optional
	LSClass *ResourceQOS `json:"lsClass,omitempty"`
	// BEClass is for pods of class BE.
	// +optional
	BEClass *ResourceQOS `json:"beClass,omitempty"`
	// SystemClass is for pods of class SYSTEM.
	// +optional
	SystemClass *ResourceQOS `json:"systemClass,omitempty"`
	// CgroupRoot is for the root of the cgroup tree.
	// +optional
	CgroupRoot *ResourceQOS `json:"cgroupRoot,omitempty"`
}

// ResourceQOSPolicies are the mechanisms of ResourceQOSStrategy.
type ResourceQOSPolicies struct {
	// CPUPolicy is groupIdentity or coreSched. Accepted from manifests of Koordinator, without effect.
	// +optional
	// +kubebuilder:validation:Enum=groupIdentity;coreSched
	CPUPolicy *string `json:"cpuPolicy,omitempty"`
	// NETQOSPolicy is tc or terway-qos. Accepted from manifests of Koordinator, without effect.
	// +optional
	// +kubebuilder:validation:Enum=tc;terway-qos
	NETQOSPolicy *string `json:"netQOSPolicy,omitempty"`
}

// ResourceQOS is what the kernel does for a class of pods. All of it is accepted from manifests of Koordinator and
// kept, without effect.
type ResourceQOS struct {
	// CPUQOS is about CPU time.
	// +optional
	CPUQOS *Unread `json:"cpuQOS,omitempty"`
	// MemoryQOS is about memory.
	// +optional
	MemoryQOS *Unread `json:"memoryQOS,omitempty"`
	// BlkIOQOS is about disks.
	// +optional
	BlkIOQOS *Unread `json:"blkioQOS,omitempty"`
	// ResctrlQOS is about caches and memory bandwidth.
	// +optional
	ResctrlQOS *Unread `json:"resctrlQOS,omitempty"`
	// NetworkQOS is about the network.
	// +optional
	NetworkQOS *Unread `json:"networkQOS,omitempty"`
}

// HostApplicationSpec is an application on the node that Kubernetes does not run.
type HostApplicationSpec struct {
	// Name identifies the application in NodeMetric.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Priority is its class of priority, such as koord-prod.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Priority string `json:"priority,omitempty"`
	// QoS is its class of QoS, such as LS.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	QoS string `json:"qos,omitempty"`
	// CgroupPath is its cgroup. Without one its use counts as that of the system.
	// +optional
	CgroupPath *CgroupPath `json:"cgroupPath,omitempty"`
	// Strategy has no fields.
	// +optional
	Strategy *HostApplicationStrategy `json:"strategy,omitempty"`
}

// HostApplicationStrategy has no fields.
type HostApplicationStrategy struct{}

// CgroupPath is a cgroup of a host application: base, parentDir and relativePath, joined.
//
// +kubebuilder:validation:XValidation:rule="(!has(self.parentDir) || self.parentDir.split('/').all(p, p != '..')) && (!has(self.relativePath) || self.relativePath.split('/').all(p, p != '..'))",message="parentDir and relativePath must not contain .."
type CgroupPath struct {
	// Base is CgroupRoot, the root of the hierarchy; Kubepods, the cgroup of all pods; KubepodsBurstable or
	// KubepodsBesteffort, those of these classes. Default: CgroupRoot.
	// +optional
	// +kubebuilder:validation:Enum=CgroupRoot;Kubepods;KubepodsBurstable;KubepodsBesteffort
	Base CgroupBase `json:"base,omitempty"`
	// ParentDir is a path below base.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ParentDir string `json:"parentDir,omitempty"`
	// RelativePath is a path below parentDir.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	RelativePath string `json:"relativePath,omitempty"`
}

// CgroupBase is the cgroup below which a CgroupPath begins.
type CgroupBase string

// Values of CgroupBase.
const (
	BaseRoot       CgroupBase = "CgroupRoot"
	BaseKubepods   CgroupBase = "Kubepods"
	BaseBurstable  CgroupBase = "KubepodsBurstable"
	BaseBesteffort CgroupBase = "KubepodsBesteffort"
)
