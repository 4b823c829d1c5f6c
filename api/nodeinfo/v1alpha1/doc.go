// Package v1alpha1 is Volcano's Numatopology: which CPUs of a node are free, and where each CPU stands. The types are
// wire-compatible with Volcano's, except that a number that is 0 is written: absent and 0 mean the same to readers.
//
// +kubebuilder:object:generate=true
// +groupName=nodeinfo.volcano.sh
package v1alpha1
