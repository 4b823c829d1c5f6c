package v1alpha2

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeResourceTopology describes the resources of a node and their NUMA nodes. Its name is the node's.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=noderesourcetopologies,shortName=node-res-topo,singular=noderesourcetopology
// +kubebuilder:storageversion
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes/enhancements/pull/1870"
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.attributes[?(@.name=="topologyManagerPolicy")].value`
// +kubebuilder:printcolumn:name="Scope",type=string,JSONPath=`.attributes[?(@.name=="topologyManagerScope")].value`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=.metadata.creationTimestamp
type NodeResourceTopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// TopologyPolicies are the topology manager's policy and scope as one word, e.g. SingleNUMANodePodLevel. The first
	// one that is known counts.
	//
	// Deprecated: the attributes topologyManagerPolicy and topologyManagerScope say it.
	// +optional
	// +listType=atomic
	TopologyPolicies []string `json:"topologyPolicies,omitempty"`
	// Zones are the NUMA nodes, and whatever other parts of the node a writer describes.
	Zones ZoneList `json:"zones"`
	// Attributes describe the whole node: topologyManagerPolicy and topologyManagerScope in the kubelet's spelling, and
	// those of other writers.
	// +optional
	Attributes AttributeList `json:"attributes,omitempty"`
}

// NodeResourceTopologyList is a list of NodeResourceTopology.
//
// +kubebuilder:object:root=true
type NodeResourceTopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []NodeResourceTopology `json:"items"`
}

// Zone is a part of a node that has resources of its own, e.g. a NUMA node.
type Zone struct {
	// Name is unique in the object: node-<kernel id> for a NUMA node.
	Name string `json:"name"`
	// Type is Node for a NUMA node.
	Type string `json:"type"`
	// Parent names the zone that contains this one.
	// +optional
	Parent string `json:"parent,omitempty"`
	// Costs are the distances to every zone.
	// +optional
	Costs CostList `json:"costs,omitempty"`
	// Attributes describe the zone.
	// +optional
	Attributes AttributeList `json:"attributes,omitempty"`
	// Resources are the amounts in the zone.
	// +optional
	Resources ResourceInfoList `json:"resources,omitempty"`
}

// ZoneList is a list of zones. It has one writer.
// +listType=atomic
type ZoneList []Zone

// ResourceInfo is the amount of one resource in a zone.
type ResourceInfo struct {
	// Name of the resource.
	Name string `json:"name"`
	// Capacity is what the zone has, Allocatable what pods may get, Available what is left of that.
	Capacity    resource.Quantity `json:"capacity"`
	Allocatable resource.Quantity `json:"allocatable"`
	Available   resource.Quantity `json:"available"`
}

// ResourceInfoList is a list of resources. It has one writer.
// +listType=atomic
type ResourceInfoList []ResourceInfo

// CostInfo is the distance to another zone.
type CostInfo struct {
	// Name of the other zone.
	Name string `json:"name"`
	// Value as in the firmware's table: 10 is the zone itself.
	Value int64 `json:"value"`
}

// CostList is a list of distances. It has one writer.
// +listType=atomic
type CostList []CostInfo

// AttributeInfo is a name with a value.
type AttributeInfo struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// AttributeList is a list of attributes. It has one writer.
// +listType=atomic
type AttributeList []AttributeInfo
