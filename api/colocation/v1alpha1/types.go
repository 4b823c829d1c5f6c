package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ClusterColocationProfile changes pods that are created. Of several profiles that match a pod, the ones with later
// names are applied later, and win.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clustercolocationprofiles,scope=Cluster,singular=clustercolocationprofile
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="QoS",type=string,JSONPath=.spec.qosClass
// +kubebuilder:printcolumn:name="Priority",type=string,JSONPath=.spec.priorityClassName
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=.metadata.creationTimestamp
type ClusterColocationProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is which pods are changed, and how.
	// +optional
	Spec ClusterColocationProfileSpec `json:"spec,omitempty"`
}

// ClusterColocationProfileList is a list of ClusterColocationProfile.
//
// +kubebuilder:object:root=true
type ClusterColocationProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []ClusterColocationProfile `json:"items"`
}

// ClusterColocationProfileSpec is which pods are changed, and how.
type ClusterColocationProfileSpec struct {
	// NamespaceSelector matches the labels of the pod's namespace. Every namespace matches where it is left out.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Selector matches the labels of the pod. Every pod matches where it is left out.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Probability is the part of the matching pods that is changed, 0 to 100, or "0%" to "100%". Of n percent, a pod is
	// changed if a number drawn from 0 to 99 is less than n. Default: all.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 100 : self.matches('^([1-9]?[0-9]|100)%$')",message="must be 0 to 100, or 0% to 100%"
	Probability *intstr.IntOrString `json:"probability,omitempty"`
	// QoSClass is written into the label koordinator.sh/qosClass.
	// +optional
	// +kubebuilder:validation:Enum=LSE;LSR;LS;BE;SYSTEM
	QoSClass string `json:"qosClass,omitempty"`
	// PriorityClassName replaces that of the pod, and with it spec.priority.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// KoordinatorPriority is written into the label koordinator.sh/priority.
	// +optional
	KoordinatorPriority *int32 `json:"koordinatorPriority,omitempty"`
	// Labels are added to the pod, over its own.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are added to the pod, over its own.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// LabelKeysMapping copies the value of a label that the pod has to another key.
	// +optional
	LabelKeysMapping map[string]string `json:"labelKeysMapping,omitempty"`
	// AnnotationKeysMapping copies the value of an annotation that the pod has to another key.
	// +optional
	AnnotationKeysMapping map[string]string `json:"annotationKeysMapping,omitempty"`
	// LabelSuffixes are appended to the values of labels that the pod has and that do not end in them yet.
	// +optional
	LabelSuffixes map[string]string `json:"labelSuffixes,omitempty"`
	// SchedulerName replaces that of the pod.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SchedulerName string `json:"schedulerName,omitempty"`
	// Patch is a strategic merge patch of the pod, applied last.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Patch runtime.RawExtension `json:"patch,omitempty"`
}
