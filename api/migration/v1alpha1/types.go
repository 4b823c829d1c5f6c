package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PodMigrationJob moves a pod to another node: the descheduler reserves room there, evicts the pod, and waits until its
// successor runs in that room.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=podmigrationjobs,singular=podmigrationjob,shortName=pmj
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=.status.status
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=.status.nodeName
// +kubebuilder:printcolumn:name="Reservation",type=string,JSONPath=.spec.reservationOptions.reservationRef.name
// +kubebuilder:printcolumn:name="PodNamespace",type=string,JSONPath=.spec.podRef.namespace
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=.spec.podRef.name
// +kubebuilder:printcolumn:name="NewPod",type=string,JSONPath=.status.podRef.name
// +kubebuilder:printcolumn:name="TTL",type=string,JSONPath=.spec.ttl
type PodMigrationJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is which pod is moved, and how.
	Spec PodMigrationJobSpec `json:"spec"`
	// Status is how far the job is. The descheduler writes it.
	// +optional
	// +kubebuilder:default={phase: Pending}
	Status PodMigrationJobStatus `json:"status,omitempty"`

	// Unread is why the object could not be read; "" for one that could. It is not of the API.
	Unread string `json:"-"`
}

// PodMigrationJobList is a list of PodMigrationJob.
//
// +kubebuilder:object:root=true
type PodMigrationJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []PodMigrationJob `json:"items"`
}

// PodMigrationJobSpec is which pod is moved, and how.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.mode) || has(self.mode) && self.mode == oldSelf.mode",message="mode is immutable once it is set"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'EvictDirectly' || !has(self.reservationOptions)",message="reservationOptions must not be set with mode EvictDirectly: no room is reserved"
type PodMigrationJobSpec struct {
	// Paused holds the job: no step runs, and ttl does not pass. Default: false.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// TTL is how long the job may take from its start, as a Go duration of 0 or more, such as 5m. 0: any time. Default:
	// defaultJobTTL of the descheduler, 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must be a Go duration that fits 64 bits"
	TTL *metav1.Duration `json:"ttl,omitempty"`
	// Mode is ReservationFirst, which evicts the pod when room on another node is reserved for its successor, or
	// EvictDirectly, which reserves nothing. Default: defaultJobMode of the descheduler, ReservationFirst.
	// +optional
	// +kubebuilder:validation:Enum=ReservationFirst;EvictDirectly
	Mode PodMigrationJobMode `json:"mode,omitempty"`
	// PodRef is the pod that is moved, by namespace and name. With a uid, a later pod of that name is not moved.
	//
	// +kubebuilder:validation:XValidation:rule="has(self.__namespace__) && self.__namespace__ != '' && has(self.name) && self.name != ''",message="podRef must have namespace and name"
	// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind in ['', 'Pod']",message="podRef.kind must be Pod"
	// +kubebuilder:validation:XValidation:rule="self.name == oldSelf.name && self.__namespace__ == oldSelf.__namespace__ && (!has(oldSelf.uid) || has(self.uid) && self.uid == oldSelf.uid)",message="podRef is immutable: create another job"
	PodRef *corev1.ObjectReference `json:"podRef"`
	// ReservationOptions are about the room of mode ReservationFirst. Default: a Reservation is made from the pod.
	// +optional
	ReservationOptions *PodMigrateReservationOptions `json:"reservationOptions,omitempty"`
	// DeleteOptions are those of the eviction, such as gracePeriodSeconds. Default: those of the pod.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.dryRun) || size(self.dryRun) == 0",message="deleteOptions.dryRun must be empty: no pod would be evicted"
	// +kubebuilder:validation:XValidation:rule="!has(self.gracePeriodSeconds) || self.gracePeriodSeconds >= 0",message="deleteOptions.gracePeriodSeconds must be 0 or more"
	DeleteOptions *metav1.DeleteOptions `json:"deleteOptions,omitempty"`
}

// PodMigrationJobMode is how a pod is moved.
type PodMigrationJobMode string

// Modes.
const (
	// ReservationFirst evicts the pod when room on another node is reserved for its successor.
	ReservationFirst PodMigrationJobMode = "ReservationFirst"
	// EvictDirectly evicts the pod and reserves nothing.
	EvictDirectly PodMigrationJobMode = "EvictDirectly"
)

// PodMigrateReservationOptions are about the room that is reserved for the pod's successor.
type PodMigrateReservationOptions struct {
	// ReservationRef is the Reservation, by name. The descheduler writes it when it has created one; a user may name
	// one that exists.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.name) && self.name != ''",message="reservationRef must have a name"
	ReservationRef *corev1.ObjectReference `json:"reservationRef,omitempty"`
	// Template is the metadata and spec of the Reservation that is created. What it does not set is made from the pod.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Template *runtime.RawExtension `json:"template,omitempty"`
	// PreemptionOptions is accepted from manifests of Koordinator, without effect: no pod is preempted for a
	// Reservation.
	// +optional
	PreemptionOptions *PodMigrationJobPreemptionOptions `json:"preemptionOptions,omitempty"`
}

// PodMigrationJobPreemptionOptions has no fields.
type PodMigrationJobPreemptionOptions struct{}

// PodMigrationJobPhase is how far a job is.
type PodMigrationJobPhase string

// Phases. Succeeded, Failed and Aborted are final.
const (
	// PodMigrationJobPending waits for its turn.
	PodMigrationJobPending PodMigrationJobPhase = "Pending"
	// PodMigrationJobRunning reserves room, evicts the pod, or waits for its successor.
	PodMigrationJobRunning PodMigrationJobPhase = "Running"
	// PodMigrationJobSucceeded has a successor of the pod that runs on another node, or, with EvictDirectly, no pod.
	PodMigrationJobSucceeded PodMigrationJobPhase = "Succeeded"
	// PodMigrationJobSucceed is how old jobs of Koordinator spell Succeeded. It is read, not written.
	PodMigrationJobSucceed PodMigrationJobPhase = "Succeed"
	// PodMigrationJobFailed ended without moving the pod, or before its successor was ready.
	PodMigrationJobFailed PodMigrationJobPhase = "Failed"
	// PodMigrationJobAborted was stopped by a user.
	PodMigrationJobAborted PodMigrationJobPhase = "Aborted"
)

// IsFinal reports whether the job has ended.
func (p PodMigrationJobPhase) IsFinal() bool {
	switch p {
	case PodMigrationJobSucceeded, PodMigrationJobSucceed, PodMigrationJobFailed, PodMigrationJobAborted:
		return true
	}
	return false
}

// PodMigrationJobStatus is how far a job is.
type PodMigrationJobStatus struct {
	// Phase is Pending, Running, Succeeded, Failed or Aborted.
	// +optional
	Phase PodMigrationJobPhase `json:"phase,omitempty"`
	// Status is the type of the last condition, and Complete when the job has succeeded.
	// +optional
	Status string `json:"status,omitempty"`
	// Reason is one word for machines: why the job waits, or why it failed.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message,omitempty"`
	// Conditions are the steps that were taken.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []PodMigrationJobCondition `json:"conditions,omitempty"`
	// NodeName is the node on which room is reserved.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// PodRef is the successor of the pod.
	// +optional
	PodRef *corev1.ObjectReference `json:"podRef,omitempty"`
	// PreemptedPodsRef are read from jobs of Koordinator, and not written.
	// +optional
	// +listType=atomic
	PreemptedPodsRef []corev1.ObjectReference `json:"preemptedPodsRef,omitempty"`
	// PreemptedPodsReservation are read from jobs of Koordinator, and not written.
	// +optional
	// +listType=atomic
	PreemptedPodsReservation []PodMigrationJobPreemptedReservation `json:"preemptedPodsReservation,omitempty"`
}

// PodMigrationJobCondition is a condition, in Koordinator's shape.
type PodMigrationJobCondition struct {
	// Type is the step.
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

// PodMigrationJobPreemptedReservation is room that Koordinator reserved for a pod that it preempted.
type PodMigrationJobPreemptedReservation struct {
	// Namespace and Name are those of the Reservation.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	Name string `json:"name,omitempty"`
	// NodeName is the node with the room.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Phase is that of the Reservation.
	// +optional
	Phase string `json:"phase,omitempty"`
	// PreemptedPodRef is the pod that was preempted.
	// +optional
	PreemptedPodRef *corev1.ObjectReference `json:"preemptedPodRef,omitempty"`
	// PodsRef are the pods that use the room.
	// +optional
	// +listType=atomic
	PodsRef []corev1.ObjectReference `json:"podsRef,omitempty"`
}
