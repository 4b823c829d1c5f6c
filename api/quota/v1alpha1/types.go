package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ElasticQuotaProfile keeps the ElasticQuota at the top of a tree equal to the nodes of a selector. The quota is in the
// profile's namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=elasticquotaprofiles,shortName=eqp,singular=elasticquotaprofile
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Quota",type=string,JSONPath=.spec.quotaName
// +kubebuilder:printcolumn:name="Ratio",type=string,JSONPath=.spec.resourceRatio
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=.metadata.creationTimestamp
type ElasticQuotaProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is which quota is kept, and from which nodes.
	// +optional
	Spec ElasticQuotaProfileSpec `json:"spec,omitempty"`
}

// ElasticQuotaProfileList is a list of ElasticQuotaProfile.
//
// +kubebuilder:object:root=true
type ElasticQuotaProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []ElasticQuotaProfile `json:"items"`
}

// ElasticQuotaProfileSpec is which quota is kept, and from which nodes.
type ElasticQuotaProfileSpec struct {
	// QuotaName names the ElasticQuota, which is created where it does not exist.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	QuotaName string `json:"quotaName"`
	// QuotaLabels are added to the quota's labels.
	// +optional
	QuotaLabels map[string]string `json:"quotaLabels,omitempty"`
	// ResourceRatio is the part of the nodes' allocatable resources that the quota divides: a decimal number with at
	// most six digits after the point, such as "0.9". The default is "1".
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9]{1,3}(\.[0-9]{1,6})?$`
	ResourceRatio *string `json:"resourceRatio,omitempty"`
	// NodeSelector selects the nodes by their labels. An empty selector selects every node.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector"`
}
