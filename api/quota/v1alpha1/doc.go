// Package v1alpha1 is ElasticQuotaProfile: the top of an extra tree of quotas, which divides the nodes of a selector.
// The types are wire-compatible with Koordinator's.
//
// +kubebuilder:object:generate=true
// +groupName=quota.koordinator.sh
package v1alpha1
