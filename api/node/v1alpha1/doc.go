// Package v1alpha1 is NodeResourceTopology as seed 000 and older tools know it: what the NUMA nodes of a node hold. The
// types are wire-compatible with those of the topology-aware scheduling working group.
//
// +kubebuilder:object:generate=true
// +groupName=topology.node.k8s.io
package v1alpha1
