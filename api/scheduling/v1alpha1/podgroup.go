package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// PodGroup is a gang: pods of its namespace that start together. They name it in the label of its group,
// pod-group.scheduling.sigs.k8s.io or scheduling.x-k8s.io/pod-group. Its annotations of gang.scheduling.koordinator.sh
// come before its spec, and those of its oldest pod before both.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=podgroups,shortName={pg,pgs},singular=podgroup
// +kubebuilder:storageversion
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name="Min",type=integer,JSONPath=.spec.minMember
// +kubebuilder:printcolumn:name="Scheduled",type=integer,JSONPath=.status.scheduled
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=.status.running
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=.metadata.creationTimestamp
type PodGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the gang needs to start.
	// +optional
	Spec PodGroupSpec `json:"spec,omitempty"`
	// Status is what its pods do.
	// +optional
	Status PodGroupStatus `json:"status,omitempty"`

	// Unread is why a field could not be read, by its path. It is not of the API, like what follows.
	Unread map[string]string `json:"-"`
	// Basic and Whole are read of Kubernetes' own PodGroup: its pods start one by one; its pods are evicted together.
	Basic, Whole bool `json:"-"`
	// Priority is that of Kubernetes' own PodGroup, as the API server finds it in priorityClassName.
	Priority *int32 `json:"-"`
	// TopologyKey is read of Kubernetes' own PodGroup: a label of nodes that is equal on the nodes of all its pods.
	TopologyKey string `json:"-"`
	// Parent is read of Kubernetes' own: the name of the CompositePodGroup above it.
	Parent string `json:"-"`
	// NeverPreempts is read of Kubernetes' own PodGroup: no pod is evicted for it.
	NeverPreempts bool `json:"-"`
	// Claims are read of Kubernetes' own PodGroup: pods that list one of them, with the same fields, share one
	// ResourceClaim, which is reserved for the PodGroup.
	Claims []corev1.PodResourceClaim `json:"-"`
}

// PodGroupList is a list of PodGroup.
//
// +kubebuilder:object:root=true
type PodGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []PodGroup `json:"items"`
}

// PodGroupSpec is what a gang needs to start.
type PodGroupSpec struct {
	// MinMember is how many pods must start together. Default, also for a number below 1: the annotation total-number;
	// 1 without it.
	// +optional
	MinMember int32 `json:"minMember,omitempty"`
	// MinResources is what must be free in the whole cluster before the gang is tried, as quantities by resource, 0 or
	// more. What pods of lower priority have is free where the gang may evict them. Default: nothing.
	// +optional
	MinResources corev1.ResourceList `json:"minResources,omitempty"`
	// ScheduleTimeoutSeconds is how long reserved pods wait for the others, in seconds. Default, also for a number
	// below 1: 600.
	// +optional
	ScheduleTimeoutSeconds *int32 `json:"scheduleTimeoutSeconds,omitempty"`
}

// PodGroupPhase is how far a gang is.
type PodGroupPhase string

// Phases.
const (
	PodGroupPending       PodGroupPhase = "Pending"
	PodGroupPreScheduling PodGroupPhase = "PreScheduling"
	PodGroupScheduling    PodGroupPhase = "Scheduling"
	PodGroupScheduled     PodGroupPhase = "Scheduled"
	PodGroupRunning       PodGroupPhase = "Running"
	PodGroupUnknown       PodGroupPhase = "Unknown"
	PodGroupFinished      PodGroupPhase = "Finished"
	PodGroupFailed        PodGroupPhase = "Failed"
)

// PodGroupStatus is what the pods of a gang do.
type PodGroupStatus struct {
	// Phase is Pending, PreScheduling, Scheduling, Scheduled, Running, Unknown, Finished or Failed.
	// +optional
	Phase PodGroupPhase `json:"phase,omitempty"`
	// OccupiedBy is namespace/name of the owners of the pods, separated by commas; empty without one.
	// +optional
	OccupiedBy string `json:"occupiedBy,omitempty"`
	// Scheduled is how many pods have a node.
	// +optional
	Scheduled int32 `json:"scheduled,omitempty"`
	// Running is how many pods run.
	// +optional
	Running int32 `json:"running,omitempty"`
	// Succeeded is how many pods have ended with success.
	// +optional
	Succeeded int32 `json:"succeeded,omitempty"`
	// Failed is how many pods have ended without success.
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// ScheduleStartTime is when scheduling of the gang began.
	// +optional
	ScheduleStartTime *metav1.Time `json:"scheduleStartTime,omitempty"`
	// Conditions has PodGroupScheduled: False with what the scheduler says of the pods, as their condition PodScheduled
	// does, until as many as must have started, then True for ever.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ScheduledCondition returns the type of the condition that is True when the gang was started once.
func ScheduledCondition(kind schema.GroupVersionKind) string {
	if kind.Group == NativeGroupName && kind.Version != "v1alpha2" {
		return "PodGroupInitiallyScheduled" // since Kubernetes 1.37
	}
	return "PodGroupScheduled"
}

// NativePhase returns what the conditions of Kubernetes' own PodGroup prove: those of 1.36 and of 1.37.
func NativePhase(conditions []metav1.Condition) (phase PodGroupPhase) {
	for _, c := range conditions {
		known := c.Type == "PodGroupScheduled" || c.Type == "PodGroupInitiallyScheduled"
		if known && c.Status == metav1.ConditionTrue {
			phase = PodGroupScheduled
		}
	}
	return phase
}

// IsStarted reports whether the phase proves that the minimum of members was reserved once.
func (p PodGroupPhase) IsStarted() bool {
	return p == PodGroupScheduled || p == PodGroupRunning || p == PodGroupUnknown || p.IsFinal()
}

// IsUnderWay reports whether a set of pods has started that has not ended as a whole.
func (p PodGroupPhase) IsUnderWay() bool { return p.IsStarted() && !p.IsFinal() }

// IsFinal reports whether all pods of the gang have ended.
func (p PodGroupPhase) IsFinal() bool { return p == PodGroupFinished || p == PodGroupFailed }
