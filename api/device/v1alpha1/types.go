package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Device describes the devices of a node. Its name is the node's. A node without devices has none.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=devices,singular=device
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.metadata.annotations.node\.tenon\.sh/device-mode`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=.metadata.creationTimestamp
type Device struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the node has.
	// +optional
	Spec DeviceSpec `json:"spec,omitempty"`
	// Status is which pods hold the devices.
	// +optional
	Status DeviceStatus `json:"status,omitempty"`

	// Unread is why a field could not be read, by its path; it is made by Decode. It is not of the API.
	Unread map[string]string `json:"-"`
}

// DeviceList is a list of Device.
//
// +kubebuilder:object:root=true
type DeviceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Device `json:"items"`
}

// DeviceSpec is what a node has.
type DeviceSpec struct {
	// Devices are all devices, also those that do not work. The agent writes them by type, then id. An id is unique
	// among the devices of a type: of two, the first counts. The list has one owner, as owners of single fields take
	// half of an object.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Devices []DeviceInfo `json:"devices,omitempty"`
}

// DeviceInfo is one device.
//
// +kubebuilder:validation:XValidation:rule="!has(self.conditions) || self.conditions.all(c, c.type != 'Healthy' || c.status != (has(self.health) && self.health ? 'False' : 'True'))",message="the condition Healthy must not contradict health"
type DeviceInfo struct {
	// Type is gpu, rdma, fpga or another.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type"`
	// Labels describe the device. Hints of pods select by them.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// ID identifies the device over reboots: the UUID of a GPU or of a MIG device, the PCI address of another device.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ID string `json:"id"`
	// Minor is the number of the device file. It identifies nothing: two devices of a type may have the same.
	// +optional
	Minor *int32 `json:"minor,omitempty"`
	// ModuleID is the physical position of a GPU, by which partitions name it.
	// +optional
	ModuleID *int32 `json:"moduleID,omitempty"`
	// Health is whether pods can use the device. Default: false.
	// +optional
	// +kubebuilder:default=false
	Health bool `json:"health"`
	// Resources are what the device has, as quantities by resource: koordinator.sh/gpu-core, gpu-memory-ratio, rdma
	// and fpga in percent of one device, koordinator.sh/gpu-memory in bytes. Default, for a GPU: 100 percent of
	// gpu-core and of gpu-memory-ratio, with memory of a size that is not known.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="['gpu-core', 'gpu-memory-ratio', 'rdma', 'fpga'].map(r, 'koordinator.sh/' + r).all(r, !(r in self) || int(self[r]) >= 0 && int(self[r]) <= 100)",message="koordinator.sh/gpu-core, gpu-memory-ratio, rdma and fpga must be whole percentages from 0 to 100"
	// +kubebuilder:validation:XValidation:rule="self.all(r, type(self[r]) == int ? self[r] >= 0 : !self[r].startsWith('-'))",message="quantities must not be negative"
	Resources map[corev1.ResourceName]resource.Quantity `json:"resources,omitempty"`
	// Topology is where the device is. Default: not known.
	// +optional
	Topology *DeviceTopology `json:"topology,omitempty"`
	// VFGroups are the virtual functions.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	VFGroups []VirtualFunctionGroup `json:"vfGroups,omitempty"`
	// Conditions are Healthy, Degraded (it works and is likely to fail) and Foreign (it is in use, by whom is not
	// known).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions of a device: Healthy is False where it does not work; a Degraded one works and is likely to fail, pods get
// it where no other serves; of a Foreign one it is not known who uses it.
const (
	Healthy  = "Healthy"
	Degraded = "Degraded"
	Foreign  = "Foreign"
)

// DeviceTopology is where a device is.
type DeviceTopology struct {
	// SocketID is the kernel's id of the package. Default: -1, not known.
	// +optional
	// +kubebuilder:default=-1
	// +kubebuilder:validation:Minimum=-1
	SocketID int32 `json:"socketID"`
	// NodeID is the kernel's id of the NUMA node. Default: -1, not known: the device fits every NUMA node.
	// +optional
	// +kubebuilder:default=-1
	// +kubebuilder:validation:Minimum=-1
	NodeID int32 `json:"nodeID"`
	// PCIEID is the PCI root complex, such as pci0000:3a. Devices with the same one are in the same scope PCIe.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PCIEID string `json:"pcieID"`
	// BusID is the PCI address, such as 0000:3b:00.0.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	BusID string `json:"busID,omitempty"`
}

// VirtualFunctionGroup is virtual functions with the same labels.
type VirtualFunctionGroup struct {
	// Labels describe the virtual functions. Hints of pods select by them.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// VFs are the virtual functions.
	// +optional
	// +listType=map
	// +listMapKey=busID
	// +kubebuilder:validation:MaxItems=1024
	VFs []VirtualFunction `json:"vfs,omitempty"`
}

// VirtualFunction is one virtual function.
type VirtualFunction struct {
	// Minor is the number of the device file; -1 = none.
	// +optional
	Minor int32 `json:"minor"`
	// BusID is the PCI address, such as 0000:09:00.2.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	BusID string `json:"busID"`
}

// DeviceStatus is which pods hold the devices of a node. It is for people; the annotation device-allocated of the pods
// decides.
type DeviceStatus struct {
	// Allocations are the pods, by type of device.
	// +optional
	// +listType=atomic
	Allocations []DeviceAllocation `json:"allocations,omitempty"`
}

// DeviceAllocation is which pods hold devices of one type.
type DeviceAllocation struct {
	// Type is gpu, rdma, fpga or another.
	// +optional
	Type string `json:"type,omitempty"`
	// Entries are the pods.
	// +optional
	// +listType=atomic
	Entries []DeviceAllocationItem `json:"entries,omitempty"`
}

// DeviceAllocationItem is a pod and what it holds.
type DeviceAllocationItem struct {
	// Name of the pod.
	// +optional
	Name string `json:"name,omitempty"`
	// Namespace of the pod.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// UUID is the UID of the pod.
	// +optional
	UUID string `json:"uuid,omitempty"`
	// Minors of the devices.
	// +optional
	// +listType=atomic
	Minors []int32 `json:"minors,omitempty"`
}
