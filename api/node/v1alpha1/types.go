package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
)

// NodeResourceTopology describes the resources of a node and their NUMA nodes. Its name is the node's.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=noderesourcetopologies,shortName=node-res-topo,singular=noderesourcetopology
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes/enhancements/pull/1870"
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=.topologyPolicies[0]
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=.metadata.creationTimestamp
type NodeResourceTopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// TopologyPolicies are the topology manager's policy and scope as one word, e.g. SingleNUMANodePodLevel. The first
	// one that is known counts.
	// +listType=atomic
	TopologyPolicies []string `json:"topologyPolicies"`
	// Zones are the NUMA nodes, and whatever other parts of the node a writer describes.
	Zones v1alpha2.ZoneList `json:"zones"`
}

// NodeResourceTopologyList is a list of NodeResourceTopology.
//
// +kubebuilder:object:root=true
type NodeResourceTopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []NodeResourceTopology `json:"items"`
}
