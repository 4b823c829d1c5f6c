// Package v1alpha1 is what Koordinator's group describes of nodes: Device, the GPUs, RDMA adapters and FPGAs of a node,
// which Decode reads in every spelling that Koordinator has used; ClusterNetworkTopology, the network between nodes.
// Links between devices, partitions and what the kubelet gave away are annotations (package annotation).
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.koordinator.sh
package v1alpha1
