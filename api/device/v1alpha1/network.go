package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ClusterNetworkTopologyName is the name of the object that counts.
const ClusterNetworkTopologyName = "default"

// NetworkResource is the resource under which ClusterNetworkTopologies are served.
func NetworkResource() schema.GroupVersionResource {
	return GroupVersion().WithResource("clusternetworktopologies")
}

// ClusterNetworkTopology describes the network between nodes as layers, such as spine and block: nodes whose labels of
// a layer are equal are in one domain of it. Gangs name layers in which their pods are to be together. Only the object
// named default counts.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=clusternetworktopologies,singular=clusternetworktopology
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
type ClusterNetworkTopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the layers.
	// +optional
	Spec ClusterNetworkTopologySpec `json:"spec,omitempty"`

	// Status is Koordinator's: its count of the nodes of each domain. Tenon neither reads nor writes it, and keeps it.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Status *runtime.RawExtension `json:"status,omitempty"`
}

// ClusterNetworkTopologyList is a list of ClusterNetworkTopology.
//
// +kubebuilder:object:root=true
type ClusterNetworkTopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []ClusterNetworkTopology `json:"items"`
}

// ClusterNetworkTopologySpec is the layers of the network.
type ClusterNetworkTopologySpec struct {
	// NetworkTopologySpec lists the layers, in any order.
	// +optional
	// +listType=map
	// +listMapKey=topologyLayer
	// +kubebuilder:validation:MaxItems=32
	NetworkTopologySpec []NetworkLayer `json:"networkTopologySpec,omitempty"`
}

// NetworkLayer is one layer. NodeTopologyLayer and ClusterTopologyLayer, each node and all nodes, exist without being
// listed, and so does GPUCliqueTopologyLayer, whose domains the label nvidia.com/gpu.clique names: listed without
// labels, it has this one.
type NetworkLayer struct {
	// TopologyLayer is the name of the layer, by which gangs ask for it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	TopologyLayer string `json:"topologyLayer"`
	// ParentTopologyLayer is the layer whose domains contain those of this one. Default: none, the layer is outermost.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ParentTopologyLayer string `json:"parentTopologyLayer,omitempty"`
	// LabelKey lists labels of nodes. The first that a node has names its domain; a node without any is in none.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=317
	LabelKey []string `json:"labelKey,omitempty"`
}
