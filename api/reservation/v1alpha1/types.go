package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Reservation keeps room on a node for pods to come. The scheduler places its template as it places a pod; no
// container is started. Pods that match one of its owners use the room: the same CPUs and devices.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=reservations,singular=reservation
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=.status.nodeName
// +kubebuilder:printcolumn:name="TTL",type=string,JSONPath=.spec.ttl
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=.spec.expires
type Reservation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is reserved, for whom and for how long.
	Spec ReservationSpec `json:"spec"`
	// Status is where the room is and which pods use it. The scheduler writes it.
	// +optional
	// +kubebuilder:default={phase: Pending}
	Status ReservationStatus `json:"status,omitempty"`

	// Unread is why a field could not be read, by its path. It is not of the API.
	Unread map[string]string `json:"-"`
}

// ReservationList is a list of Reservation.
//
// +kubebuilder:object:root=true
type ReservationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Reservation `json:"items"`
}

// ReservationSpec is what is reserved, for whom and for how long.
//
// +kubebuilder:validation:XValidation:rule="!has(self.expires) || !has(self.ttl) || self.ttl in ['24h', '24h0m0s']",message="ttl and expires are mutually exclusive"
type ReservationSpec struct {
	// Template is scheduled like a pod. With spec.nodeName, only that node is taken.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Required
	Template *corev1.PodTemplateSpec `json:"template"`
	// Owners are the pods that may use the room. A pod is an owner if an entry matches it.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Owners []ReservationOwner `json:"owners"`
	// TTL is how long after its creation the reservation expires, as a Go duration of 0 or more. 0: it never expires.
	// Ignored with expires. Default: 24h.
	// +optional
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`
	TTL *metav1.Duration `json:"ttl,omitempty"`
	// Expires is when the reservation expires. Default: ttl after its creation.
	// +optional
	Expires *metav1.Time `json:"expires,omitempty"`
	// PreAllocation lets the reservation be placed on the room of running pods that an owner entry matches, where too
	// little is free. It takes their room over when they end, and is Waiting until then. The template, and those pods,
	// must have no CPUs or devices of their own. Default: false.
	// +optional
	PreAllocation bool `json:"preAllocation,omitempty"`
	// PreAllocationPolicy is which running pods count. Ignored without preAllocation.
	// +optional
	PreAllocationPolicy *PreAllocationPolicy `json:"preAllocationPolicy,omitempty"`
	// AllocateOnce ends the reservation with the first pod that uses it: what the pod leaves is free for others.
	// Default: true.
	// +optional
	// +kubebuilder:default=true
	AllocateOnce *bool `json:"allocateOnce,omitempty"`
	// AllocatePolicy is where a pod gets what the reservation has too little of. Aligned, and the empty policy: from
	// the node. Restricted: nowhere; the pod does not use the reservation. What the reservation has nothing of comes
	// from the node in any case.
	// +optional
	// +kubebuilder:validation:Enum="";Aligned;Restricted
	AllocatePolicy ReservationAllocatePolicy `json:"allocatePolicy,omitempty"`
	// Unschedulable keeps other pods than the current owners from the room. Default: false.
	// +optional
	Unschedulable bool `json:"unschedulable,omitempty"`
	// Taints keep pods from the room whose reservation-affinity does not tolerate them. Default: none.
	// +optional
	// +listType=atomic
	Taints []corev1.Taint `json:"taints,omitempty"`
}

// PreAllocationPolicy is on the room of which running pods a reservation may be placed.
type PreAllocationPolicy struct {
	// Mode is Default: pods that an owner entry matches; or Cluster: pods of any namespace with the label
	// is-pre-allocatable, where the scheduler's arguments allow it. Default: Default.
	// +optional
	// +kubebuilder:validation:Enum="";Default;Cluster
	Mode PreAllocationMode `json:"mode,omitempty"`
	// EnableMultiple lets the reservation take over the room of several pods of a node. Default: false, which is one.
	// +optional
	EnableMultiple bool `json:"enableMultiple,omitempty"`
}

// PreAllocationMode is which running pods count.
type PreAllocationMode string

// Modes. The empty one is PreAllocationDefault.
const (
	PreAllocationDefault PreAllocationMode = "Default"
	PreAllocationCluster PreAllocationMode = "Cluster"
)

// ReservationAllocatePolicy is where a pod gets what a reservation has too little of.
type ReservationAllocatePolicy string

// Policies. The empty one is ReservationAligned.
const (
	ReservationAligned    ReservationAllocatePolicy = "Aligned"
	ReservationRestricted ReservationAllocatePolicy = "Restricted"
)

// ReservationOwner matches pods by all of its fields that are set.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.labelSelector) || has(self.labelSelector.matchLabels) && size(self.labelSelector.matchLabels) > 0 || has(self.labelSelector.matchExpressions) && size(self.labelSelector.matchExpressions) > 0",message="labelSelector must not be empty: it would match every pod of the cluster"
// +kubebuilder:validation:XValidation:rule="!has(self.object) || has(self.object.uid) || has(self.object.name)",message="object must have a uid or a name"
type ReservationOwner struct {
	// Object is the pod itself: by uid, else by name and namespace. Other fields are compared where they are set.
	// +optional
	Object *corev1.ObjectReference `json:"object,omitempty"`
	// Controller is the controller of the pod: by uid, else by apiVersion, kind and name.
	// +optional
	Controller *ReservationController `json:"controller,omitempty"`
	// LabelSelector matches the labels of the pod, in every namespace.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// ReservationController is the controller of pods.
type ReservationController struct {
	// APIVersion is that of the controller, such as apps/v1.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind is that of the controller, such as ReplicaSet.
	// +kubebuilder:validation:MinLength=1
	Kind string `json:"kind"`
	// Name is that of the controller.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// UID of the controller. Default: every controller of the name.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Namespace of the pods. Default: any.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Controller is accepted, as in the ownerReferences of pods. Only controllers of pods are compared.
	// +optional
	Controller *bool `json:"controller,omitempty"`
	// BlockOwnerDeletion is accepted, as in the ownerReferences of pods, and not read.
	// +optional
	BlockOwnerDeletion *bool `json:"blockOwnerDeletion,omitempty"`
}

// ReservationPhase is how far a reservation is.
type ReservationPhase string

// Phases. Succeeded and Failed are final.
const (
	// ReservationPending has no node.
	ReservationPending ReservationPhase = "Pending"
	// ReservationAvailable keeps room on a node.
	ReservationAvailable ReservationPhase = "Available"
	// ReservationWaiting has a node and waits until the pods end on whose room it was placed.
	ReservationWaiting ReservationPhase = "Waiting"
	// ReservationSucceeded was used by the one pod that it was for.
	ReservationSucceeded ReservationPhase = "Succeeded"
	// ReservationFailed has expired, or its node was deleted.
	ReservationFailed ReservationPhase = "Failed"
)

// IsFinal reports whether the reservation keeps no room any more, and never will.
func (p ReservationPhase) IsFinal() bool { return p == ReservationSucceeded || p == ReservationFailed }

// ReservationStatus is where the room is and which pods use it.
type ReservationStatus struct {
	// Phase is Pending, Available, Waiting, Succeeded or Failed.
	// +optional
	Phase ReservationPhase `json:"phase,omitempty"`
	// Conditions are Scheduled and Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []ReservationCondition `json:"conditions,omitempty"`
	// CurrentOwners are the pods that use the room.
	// +optional
	// +listType=atomic
	CurrentOwners []corev1.ObjectReference `json:"currentOwners,omitempty"`
	// NodeName is the node with the room.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Allocatable is what is reserved, as quantities by resource.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// Allocated is what current owners request of it, never more than allocatable.
	// +optional
	Allocated corev1.ResourceList `json:"allocated,omitempty"`
}

// Types and reasons of conditions.
const (
	ReservationScheduled = "Scheduled"
	ReservationReady     = "Ready"

	ReasonScheduled     = "Scheduled"
	ReasonUnschedulable = "Unschedulable"
	ReasonAvailable     = "Available"
	ReasonWaiting       = "WaitForRunningPods"
	ReasonSucceeded     = "Succeeded"
	ReasonExpired       = "Expired"
	// ReasonRoomTaken: its node has less beside its pods than the Reservation keeps.
	ReasonRoomTaken = "RoomTaken"
)

// ReservationCondition is a condition, in Koordinator's shape.
type ReservationCondition struct {
	// Type is Scheduled or Ready.
	Type string `json:"type"`
	// Status is True, False or Unknown.
	// +kubebuilder:validation:Enum=True;False;Unknown
	Status metav1.ConditionStatus `json:"status"`
	// Reason is one word for machines.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message,omitempty"`
	// LastProbeTime is when the condition was last examined.
	// +optional
	// +nullable
	LastProbeTime metav1.Time `json:"lastProbeTime,omitempty"`
	// LastTransitionTime is when the status last changed.
	// +optional
	// +nullable
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
}
