// Package v1alpha1 is ClusterColocationProfile: what pods that match it get when they are created. The types are
// wire-compatible with Koordinator's.
//
// +kubebuilder:object:generate=true
// +groupName=config.koordinator.sh
package v1alpha1
