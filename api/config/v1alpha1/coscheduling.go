package v1alpha1

import (
	"cmp"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tenon-project/tenon/api/annotation"
)

// CoschedulingArgs are the arguments of the plugin Coscheduling, which has the names and meanings of Koordinator's.
//
// +kubebuilder:object:root=true
type CoschedulingArgs struct {
	metav1.TypeMeta `json:",inline"`

	// DefaultMatchPolicy applies to gangs without a policy: once-satisfied (default), only-waiting or
	// waiting-and-running.
	DefaultMatchPolicy string `json:"defaultMatchPolicy,omitempty"`
	// DefaultTimeout is how long reserved members of NonStrict gangs without their own time wait, more than 0. Default:
	// 600s.
	DefaultTimeout *metav1.Duration `json:"defaultTimeout,omitempty"`
	// EnablePreemption lets a gang evict pods of lower priority if all its members then fit. Default: true.
	EnablePreemption *bool `json:"enablePreemption,omitempty"`
	// PreemptionDelay is how long a gang waits after its first failed attempt before it evicts pods: in the meantime a
	// cluster autoscaler may add nodes, or a job may end. Default: 0s, it evicts at once.
	PreemptionDelay *metav1.Duration `json:"preemptionDelay,omitempty"`
	// MaxOvertakes is how many pods or gangs behind a gang in the queue, of lower priority or younger, may start before
	// it while it does not fit. Then the scheduler reserves nodes on which it will fit. 0: it reserves none. Default:
	// 10.
	MaxOvertakes *int32 `json:"maxOvertakes,omitempty"`
	// ReservedBeforeScaleUp is how long the members of a gang for which nodes are reserved show these nodes as
	// status.nominatedNodeName. Cluster autoscalers add no nodes for them in the meantime. Later the scheduler still
	// reserves the nodes but removes the field. It has no effect with --autoscaler-reasons=false. Default: 2m.
	ReservedBeforeScaleUp *metav1.Duration `json:"reservedBeforeScaleUp,omitempty"`
	// MaxHolds is how many pods and gangs that do not fit hold the nodes on which they can start first by the declared
	// run times of other pods, 0 to 1000, the first ones in the order of HoldOrder. 1 is EASY backfilling, more is
	// conservative backfilling, 0 holds nothing for a declared start. Where no pod declares a run time, nothing is
	// held. Default: 1.
	MaxHolds *int32 `json:"maxHolds,omitempty"`
	// HoldOrder is who holds first: Priority (default), and of one priority the oldest, or Age, the oldest.
	HoldOrder string `json:"holdOrder,omitempty"`
	// EnableBackfill lets pods and gangs use held nodes that end before the held start, by their declared run times, or
	// leave enough at that time. Default: true.
	EnableBackfill *bool `json:"enableBackfill,omitempty"`
	// BackfillBelowPriority lets pods with a lower priority than this, at most 1000000000, use held nodes although they
	// may not have ended by then: the pod or gang that holds the nodes evicts them. Default: -2147483648, no pods.
	BackfillBelowPriority *int32 `json:"backfillBelowPriority,omitempty"`
	// EnableJointGPUs allocates the best-linked set of one node to gangs whose members all request whole GPUs, if they
	// fit on one node, as if each member had the annotation device-joint-allocate. Default: true.
	EnableJointGPUs *bool `json:"enableJointGPUs,omitempty"`

	// InterruptedGangs applies to Strict gangs without their own setting: Keep (default) or Evict the bound members if
	// a scheduler stopped while it bound their gang, and the others do not fit within the waiting time.
	InterruptedGangs string `json:"interruptedGangs,omitempty"`

	// ControllerWorkers is accepted from configurations of Koordinator, without effect: there are no such workers.
	ControllerWorkers *int64 `json:"controllerWorkers,omitempty"`
	// SkipCheckScheduleCycle is accepted from configurations of Koordinator, without effect: all members of a gang are
	// tried in one cycle.
	SkipCheckScheduleCycle *bool `json:"skipCheckScheduleCycle,omitempty"`
	// AwareNetworkTopology is accepted from configurations of Koordinator, without effect: the network topology that a
	// gang requests is always respected.
	AwareNetworkTopology *bool `json:"awareNetworkTopology,omitempty"`
}

// Values of HoldOrder.
const (
	HoldByPriority = "Priority"
	HoldByAge      = "Age"
)

const (
	// mostHolds bounds the plans that are made after each failed attempt.
	mostHolds = 1000
	// highestUserPriority is that of Kubernetes: pods of the system are above it.
	highestUserPriority = 1_000_000_000
)

// SetDefaults fills what is not said.
func (a *CoschedulingArgs) SetDefaults() {
	a.DefaultMatchPolicy = cmp.Or(a.DefaultMatchPolicy, annotation.GangOnceSatisfied)
	a.DefaultTimeout = cmp.Or(a.DefaultTimeout, &metav1.Duration{Duration: 10 * time.Minute})
	a.EnablePreemption = cmp.Or(a.EnablePreemption, new(true))
	a.PreemptionDelay = cmp.Or(a.PreemptionDelay, &metav1.Duration{})
	a.ReservedBeforeScaleUp = cmp.Or(a.ReservedBeforeScaleUp, &metav1.Duration{Duration: 2 * time.Minute})
	a.InterruptedGangs = cmp.Or(a.InterruptedGangs, annotation.GangKeepBound)
	a.EnableJointGPUs = cmp.Or(a.EnableJointGPUs, new(true))
	a.MaxOvertakes = cmp.Or(a.MaxOvertakes, new(int32(10)))
	a.MaxHolds = cmp.Or(a.MaxHolds, new(int32(1)))
	a.HoldOrder = cmp.Or(a.HoldOrder, HoldByPriority)
	a.EnableBackfill = cmp.Or(a.EnableBackfill, new(true))
	a.BackfillBelowPriority = cmp.Or(a.BackfillBelowPriority, new(int32(math.MinInt32)))
}

// Validate returns every field whose value cannot be used.
func (a *CoschedulingArgs) Validate() field.ErrorList {
	errs := slices.Concat(
		oneOf(field.NewPath("defaultMatchPolicy"), a.DefaultMatchPolicy, annotation.GangOnceSatisfied,
			annotation.GangOnlyWaiting, annotation.GangWaitingAndRunning),
		oneOf(field.NewPath("interruptedGangs"), a.InterruptedGangs, annotation.GangKeepBound,
			annotation.GangEvictBound),
		oneOf(field.NewPath("holdOrder"), a.HoldOrder, HoldByPriority, HoldByAge),
	)
	if d := a.DefaultTimeout; d != nil && d.Duration <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("defaultTimeout"), d.Duration.String(), "must be more than 0"))
	}
	if d := a.PreemptionDelay; d != nil && d.Duration < 0 {
		errs = append(errs, field.Invalid(field.NewPath("preemptionDelay"), d.Duration.String(), "must be 0s or more"))
	}
	if d := a.ReservedBeforeScaleUp; d != nil && d.Duration < 0 {
		errs = append(errs, field.Invalid(field.NewPath("reservedBeforeScaleUp"), d.Duration.String(),
			"must be 0s or more"))
	}
	if n := a.MaxOvertakes; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(field.NewPath("maxOvertakes"), *n, "must be 0, for never, or more"))
	}
	if n := a.MaxHolds; n != nil && (*n < 0 || *n > mostHolds) {
		errs = append(errs, field.Invalid(field.NewPath("maxHolds"), *n, "must be 0, for none, to 1000"))
	}
	if n := a.BackfillBelowPriority; n != nil && *n > highestUserPriority {
		errs = append(errs, field.Invalid(field.NewPath("backfillBelowPriority"), *n, "must be at most 1000000000"))
	}
	return errs
}
