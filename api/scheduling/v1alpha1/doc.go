// Package v1alpha1 is ElasticQuota and PodGroup, in both groups that serve them: Koordinator's and that of today's
// scheduler-plugins. Both have the same fields, so there is one type of each; it also holds what is read of
// Kubernetes' own PodGroup. The tree of quotas, weights and lending, and most settings of gangs, are labels and
// annotations (package annotation).
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.sigs.k8s.io
package v1alpha1
