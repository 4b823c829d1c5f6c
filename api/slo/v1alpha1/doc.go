// Package v1alpha1 is NodeMetric, what a node and its pods use, and NodeSLO, how a node's best-effort pods give way to
// the others. The types are wire-compatible with Koordinator's 1.8.
//
// +kubebuilder:object:generate=true
// +groupName=slo.koordinator.sh
package v1alpha1
