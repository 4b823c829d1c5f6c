// Package v1alpha1 is PodMigrationJob: a pod that is moved to another node. The types are wire-compatible with
// Koordinator's.
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.koordinator.sh
package v1alpha1
