// Package v1alpha1 is Koordinator's Device: the GPUs, RDMA adapters and FPGAs of a node. Decode reads it in every
// spelling that Koordinator has used. Links between devices, partitions and what the kubelet gave away are annotations
// (package annotation).
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.koordinator.sh
package v1alpha1
