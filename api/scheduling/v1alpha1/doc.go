// Package v1alpha1 is ElasticQuota, in both groups that serve it: Koordinator's and that of today's scheduler-plugins.
// Both have the same three fields, so there is one type. The tree, weights and lending are labels and annotations
// (package annotation).
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.sigs.k8s.io
package v1alpha1
