package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Keys of Spec.Policies. Scope and options of the kubelet have none.
const (
	// CPUManagerPolicy is none or static.
	CPUManagerPolicy = "CPUManagerPolicy"
	// TopologyManagerPolicy is none, best-effort, restricted or single-numa-node.
	TopologyManagerPolicy = "TopologyManagerPolicy"
)

// TimestampKey is the annotation with the time of the last change, in seconds since 1970.
const TimestampKey = "timestamp"

// Numatopology describes the CPUs of a node. Its name is the node's.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=numatopologies,shortName=numatopo,singular=numatopology
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="CPUs",type=string,JSONPath=.spec.policies.CPUManagerPolicy
// +kubebuilder:printcolumn:name="Alignment",type=string,JSONPath=.spec.policies.TopologyManagerPolicy
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=.metadata.creationTimestamp
type Numatopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the node has, and what of it is free.
	// +optional
	Spec NumatopoSpec `json:"spec,omitempty"`
}

// NumatopologyList is a list of Numatopology.
//
// +kubebuilder:object:root=true
type NumatopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Numatopology `json:"items"`
}

// NumatopoSpec is what a node has, and what of it is free.
type NumatopoSpec struct {
	// Policies of the kubelet, under CPUManagerPolicy and TopologyManagerPolicy, in the kubelet's spelling.
	// +optional
	Policies map[string]string `json:"policies,omitempty"`
	// ResReserved is what the kubelet keeps for itself and the system: {"cpu": "200m"}. Readers of Volcano take that
	// many CPUs off the free ones, by ids of their own choice.
	// +optional
	ResReserved map[string]string `json:"resReserved,omitempty"`
	// NumaResMap is what is free, by resource; only cpu is known.
	// +optional
	NumaResMap map[string]ResourceInfo `json:"numares,omitempty"`
	// CPUDetail says where each CPU stands, by the kernel's id.
	// +optional
	CPUDetail map[string]CPUInfo `json:"cpuDetail,omitempty"`
	// PodAllocations are the pods with CPUs of their own. Definitions before the middle of 2026 drop the field.
	// +optional
	// +listType=atomic
	PodAllocations []PodAllocation `json:"podAllocations,omitempty"`
}

// ResourceInfo is one resource of a node.
type ResourceInfo struct {
	// Allocatable are the free CPUs in Linux list format.
	// +optional
	Allocatable string `json:"allocatable"`
	// Capacity counts all CPUs.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Capacity int64 `json:"capacity"`
}

// CPUInfo is where a CPU stands. An absent number is 0.
type CPUInfo struct {
	// NUMANodeID is the kernel's id of the NUMA node.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NUMANodeID int64 `json:"numa"`
	// SocketID is the kernel's id of the package.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SocketID int64 `json:"socket"`
	// CoreID is unique on the node where Tenon's agent writes it, and at least on the socket where others do.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CoreID int64 `json:"core"`
}

// PodAllocation is what one pod has. Others write the UID alone, or namespace and name alone.
type PodAllocation struct {
	// UID of the pod.
	// +optional
	UID string `json:"uid,omitempty"`
	// Namespace of the pod.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the pod.
	// +optional
	Name string `json:"name,omitempty"`
	// ContainerAllocations is what its containers have.
	// +optional
	// +listType=atomic
	ContainerAllocations []ContainerAllocation `json:"containerAllocations,omitempty"`
}

// ContainerAllocation is what one container has.
type ContainerAllocation struct {
	// Name of the container.
	// +optional
	Name string `json:"name,omitempty"`
	// Allocations by resource: for cpu the ids in Linux list format, for others an amount.
	// +optional
	Allocations map[string]string `json:"allocations,omitempty"`
}
