package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ElasticQuota is a team's part of the cluster: what it is guaranteed and what it may use at most. Its name is unique
// in the cluster, over all namespaces and both groups.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elasticquotas,shortName={eq,eqs},singular=elasticquota
// +kubebuilder:storageversion
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes-sigs/scheduler-plugins/pull/52"
// +kubebuilder:printcolumn:name="Min",type=string,JSONPath=.spec.min
// +kubebuilder:printcolumn:name="Max",type=string,JSONPath=.spec.max
// +kubebuilder:printcolumn:name="Runtime",type=string,JSONPath=.metadata.annotations['quota\.scheduling\.koordinator\.sh/runtime']
// +kubebuilder:printcolumn:name="Used",type=string,JSONPath=.status.used
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=.metadata.creationTimestamp
type ElasticQuota struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the quota is guaranteed and limited to.
	// +optional
	Spec ElasticQuotaSpec `json:"spec,omitempty"`
	// Status is what its pods hold.
	// +optional
	Status ElasticQuotaStatus `json:"status,omitempty"`

	// Unread is why a field could not be read, by its path. It is not of the API.
	Unread map[string]string `json:"-"`
}

// ElasticQuotaList is a list of ElasticQuota.
//
// +kubebuilder:object:root=true
type ElasticQuotaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []ElasticQuota `json:"items"`
}

// ElasticQuotaSpec is what a quota is guaranteed and limited to.
type ElasticQuotaSpec struct {
	// Min is guaranteed, as quantities by resource, 0 or more. Each of its resources is in max, and not above it; the
	// default of a resource of max is 0. The children of a quota have no more min together than the quota.
	// +optional
	Min corev1.ResourceList `json:"min,omitempty"`
	// Max is the ceiling, as quantities by resource, 0 or more. A resource that is absent is not limited by this quota.
	// The max of a child may exceed its parent's.
	// +optional
	Max corev1.ResourceList `json:"max,omitempty"`
}

// ElasticQuotaStatus is what the pods of a quota hold.
type ElasticQuotaStatus struct {
	// Used is the sum of the requests of the quota's pods, and of those of the quotas below it, that are reserved or
	// bound and have not ended. The leading manager writes it.
	// +optional
	Used corev1.ResourceList `json:"used,omitempty"`
}
