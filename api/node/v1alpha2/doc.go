// Package v1alpha2 is NodeResourceTopology as it is stored: like v1alpha1, with attributes in place of
// topologyPolicies. The types are wire-compatible with those of the topology-aware scheduling working group; an object
// of v1alpha1 decodes into them without loss.
//
// +kubebuilder:object:generate=true
// +groupName=topology.node.k8s.io
package v1alpha2
