package v1alpha1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ReservationArgs are the arguments of the plugin Reservation, which has the names of Koordinator's.
//
// +kubebuilder:object:root=true
type ReservationArgs struct {
	metav1.TypeMeta `json:",inline"`

	// GCDurationSeconds is how long Reservations that have ended are kept, more than 0. If profiles differ, that of the
	// last one counts. Default: 86400.
	GCDurationSeconds *int64 `json:"gcDurationSeconds,omitempty"`
	// DisableGarbageCollection keeps Reservations that have ended until someone deletes them. Default: false.
	DisableGarbageCollection bool `json:"disableGarbageCollection,omitempty"`

	// EnablePreemption evicts pods of lower priority for a Reservation that fits nowhere, as for a pod with the
	// priority and the preemption policy of its template. No pod is evicted whose room a Reservation would get back,
	// and no preemption takes the room of a Reservation. If profiles differ, that of the last one counts. Default:
	// false.
	EnablePreemption bool `json:"enablePreemption,omitempty"`

	// PreAllocationConfig is for Reservations with preAllocation.
	PreAllocationConfig *PreAllocationConfig `json:"preAllocationConfig,omitempty"`

	// MinCandidateNodesPercentage is accepted from configurations of Koordinator, without effect: victims are
	// looked for on as many nodes as for a pod.
	MinCandidateNodesPercentage *int32 `json:"minCandidateNodesPercentage,omitempty"`
	// MinCandidateNodesAbsolute is accepted from configurations of Koordinator, without effect: victims are
	// looked for on as many nodes as for a pod.
	MinCandidateNodesAbsolute *int32 `json:"minCandidateNodesAbsolute,omitempty"`
	// ControllerWorkers is accepted from configurations of Koordinator, without effect: one worker writes each status.
	ControllerWorkers *int64 `json:"controllerWorkers,omitempty"`
	// GCIntervalSeconds is accepted from configurations of Koordinator, without effect: each Reservation is deleted
	// when its time is over.
	GCIntervalSeconds *int64 `json:"gcIntervalSeconds,omitempty"`
	// ResyncIntervalSeconds is accepted from configurations of Koordinator, without effect: a status is written when
	// something changes.
	ResyncIntervalSeconds *int64 `json:"resyncIntervalSeconds,omitempty"`
}

// PreAllocationConfig is which pre-allocation is allowed.
type PreAllocationConfig struct {
	// EnableClusterMode lets a Reservation with preAllocationPolicy.mode Cluster take over the room of every running
	// pod with the label pod.koordinator.sh/is-pre-allocatable, whatever its owners. If profiles differ, that of the
	// last one counts. Default: false.
	EnableClusterMode bool `json:"enableClusterMode,omitempty"`
}

// AllowsClusterMode returns EnableClusterMode.
func (a *ReservationArgs) AllowsClusterMode() bool {
	return a.PreAllocationConfig != nil && a.PreAllocationConfig.EnableClusterMode
}

// SetDefaults fills what is not said.
func (a *ReservationArgs) SetDefaults() {
	a.GCDurationSeconds = cmp.Or(a.GCDurationSeconds, new(int64(24*60*60)))
}

// Validate returns every field whose value cannot be used.
func (a *ReservationArgs) Validate() (errs field.ErrorList) {
	if n := a.GCDurationSeconds; n != nil && (*n <= 0 || *n > mostSeconds) {
		errs = append(errs, field.Invalid(field.NewPath("gcDurationSeconds"), *n,
			"must be more than 0, and at most 3155760000 (100 years)"))
	}
	return errs
}

// mostSeconds are those of 100 years: a Duration holds 292.
const mostSeconds = 3155760000

// KeepEnded returns how long Reservations that have ended are kept; 0 for ever.
func (a *ReservationArgs) KeepEnded() time.Duration {
	if a.DisableGarbageCollection || a.GCDurationSeconds == nil {
		return 0
	}
	return time.Duration(*a.GCDurationSeconds) * time.Second
}
