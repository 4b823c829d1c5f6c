// Package v1alpha1 is ScheduleExplanation: the question why a pod is not scheduled, and its answer. The types are
// wire-compatible with Koordinator's.
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.koordinator.sh
package v1alpha1
