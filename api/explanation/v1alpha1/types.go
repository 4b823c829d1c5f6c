package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ScheduleExplanation asks why a pod of its namespace is not scheduled. The scheduler keeps the answer in its status,
// and deletes it when its ttl has passed.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=scheduleexplanations,singular=scheduleexplanation,shortName=sched-exp
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=.spec.questionObjectKey
// +kubebuilder:printcolumn:name="Schedulable",type=boolean,JSONPath=.status.schedulable
// +kubebuilder:printcolumn:name="Preemption",type=boolean,JSONPath=.status.schedulableAfterPreemption
// +kubebuilder:printcolumn:name="Updated",type=date,JSONPath=.status.lastUpdateTime
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=.status.failedMessage
type ScheduleExplanation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the question.
	Spec ScheduleExplanationSpec `json:"spec"`
	// Status is the answer. The scheduler of the pod writes it.
	// +optional
	Status ScheduleExplanationStatus `json:"status,omitempty"`
}

// ScheduleExplanationList is a list of ScheduleExplanation.
//
// +kubebuilder:object:root=true
type ScheduleExplanationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []ScheduleExplanation `json:"items"`
}

// ScheduleExplanationSpec is the question.
//
// +kubebuilder:validation:XValidation:rule="!has(self.questionObjectTemplate)",message="questionObjectTemplate must not be set: POST /apis/v1/whatif answers about a pod that does not exist"
type ScheduleExplanationSpec struct {
	// QuestionObjectKey is NAMESPACE/NAME of a pod, or of a gang, of which the first pod by name that waits is
	// explained. The namespace must be that of the object.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",message="must be NAMESPACE/NAME of one pod or one gang"
	QuestionObjectKey string `json:"questionObjectKey"`
	// QuestionObjectTemplate must not be set. It is a field of Koordinator's, which has no effect there either.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	QuestionObjectTemplate *runtime.RawExtension `json:"questionObjectTemplate,omitempty"`
	// TTL is how long after its creation the object is deleted, as a Go duration of 0 or more. 0: never. Default: 24h.
	// +optional
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must be a Go duration that fits 64 bits"
	TTL string `json:"ttl,omitempty"`
}

// DefaultTTL is the ttl of an object without one.
const DefaultTTL = 24 * time.Hour

// ScheduleExplanationStatus is the answer.
type ScheduleExplanationStatus struct {
	// Schedulable is true for a pod that has a node, or that a node would take now.
	// +optional
	Schedulable bool `json:"schedulable"`
	// SchedulableAfterPreemption is true if the pod gets a node once pods of lower priority are evicted.
	// +optional
	SchedulableAfterPreemption bool `json:"schedulableAfterPreemption"`
	// FailedMessage is the root cause with its code first, or what is wrong with the question; empty if Schedulable.
	// +optional
	FailedMessage string `json:"failedMessage,omitempty"`
	// LastUpdateTime is when the answer was written: when it has changed, and at least once a minute.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`
	// DetailedExplanation has one item, which is about all nodes; none if the question could not be answered.
	// +optional
	// +listType=atomic
	DetailedExplanation []DomainExplanation `json:"detailedExplanation,omitempty"`
}

// DomainExplanation explains a pod on a set of nodes.
type DomainExplanation struct {
	// TopologyDomain names the set of nodes; empty for all.
	// +optional
	TopologyDomain string `json:"topologyDomain,omitempty"`
	// Schedulable, SchedulableAfterPreemption and FailedMessage are as in the status.
	// +optional
	Schedulable bool `json:"schedulable"`
	// +optional
	SchedulableAfterPreemption bool `json:"schedulableAfterPreemption"`
	// +optional
	FailedMessage string `json:"failedMessage,omitempty"`
	// ScheduleExplanation is about the cluster as it is.
	// +optional
	ScheduleExplanation NodeExplanation `json:"scheduleExplanation,omitempty"`
	// NodePossibleVictims are the pods of the object's namespace that would be evicted for the pod.
	// +optional
	// +listType=atomic
	NodePossibleVictims []NodeVictims `json:"nodePossibleVictims,omitempty"`
	// PreemptExplanation is about the cluster once pods of lower priority are evicted.
	// +optional
	PreemptExplanation NodeExplanation `json:"preemptExplanation,omitempty"`
}

// NodeExplanation is what nodes answer about a pod.
type NodeExplanation struct {
	// +optional
	Schedulable bool `json:"schedulable"`
	// +optional
	FailedMessage string `json:"failedMessage,omitempty"`
	// FeasibleSchedulingResult is the pod with its node.
	// +optional
	// +listType=atomic
	FeasibleSchedulingResult []PodOnNode `json:"feasibleSchedulingResult,omitempty"`
	// NodeFailedDetails are the reasons of nodes, that of most nodes first.
	// +optional
	// +listType=atomic
	NodeFailedDetails []NodeRefusal `json:"nodeFailedDetails,omitempty"`
}

// PodKey names a pod.
type PodKey struct {
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	Name string `json:"name,omitempty"`
	// +optional
	UID string `json:"uid,omitempty"`
}

// PodOnNode is a pod with its node.
type PodOnNode struct {
	PodKey `json:",inline"`
	// +optional
	NodeName string `json:"nodeName,omitempty"`
}

// NodeRefusal is one reason for which nodes refuse the pod.
type NodeRefusal struct {
	// +optional
	FailedPlugin string `json:"failedPlugin,omitempty"`
	// Reason is the code and text of the reason, with the number of nodes.
	// +optional
	Reason string `json:"reason,omitempty"`
	// PreemptMightHelp is true if the reason can end when other pods do.
	// +optional
	PreemptMightHelp bool `json:"preemptMightHelp,omitempty"`
	// FailedNodes is one of the nodes, as an example.
	// +optional
	// +listType=atomic
	FailedNodes []string `json:"failedNodes,omitempty"`
}

// NodeVictims are the pods that would be evicted from a node.
type NodeVictims struct {
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// +optional
	// +listType=atomic
	PossibleVictims []PossibleVictim `json:"possibleVictims,omitempty"`
}

// PossibleVictim is a pod that would be evicted.
type PossibleVictim struct {
	PodKey `json:",inline"`
	// IsNominatedPod is false: pods without a node are not evicted.
	// +optional
	IsNominatedPod bool `json:"isNominatedPod,omitempty"`
}
