// Package v1alpha1 is Reservation: room on a node that is kept for pods to come. The types are wire-compatible with
// Koordinator's.
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.koordinator.sh
package v1alpha1
