package v1alpha1

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tenon-project/tenon/api/annotation"
)

// CoschedulingKind is what the arguments of Coscheduling may call themselves.
const CoschedulingKind = "CoschedulingArgs"

// CoschedulingArgs are the arguments of the plugin Coscheduling, which has the names and meanings of Koordinator's.
//
// +kubebuilder:object:root=true
type CoschedulingArgs struct {
	metav1.TypeMeta `json:",inline"`

	// DefaultMatchPolicy is for gangs that say none: once-satisfied (default), only-waiting or waiting-and-running.
	DefaultMatchPolicy string `json:"defaultMatchPolicy,omitempty"`
	// DefaultTimeout is how long reserved members of NonStrict gangs wait that say nothing, more than 0. Default: 600s.
	DefaultTimeout *metav1.Duration `json:"defaultTimeout,omitempty"`
	// EnablePreemption lets a gang evict pods of lower priority where all its members fit then. Default: true.
	EnablePreemption *bool `json:"enablePreemption,omitempty"`

	// ControllerWorkers may be set, as in configurations of Koordinator. It has no effect.
	ControllerWorkers *int64 `json:"controllerWorkers,omitempty"`
	// SkipCheckScheduleCycle may be set, as in configurations of Koordinator. It has no effect.
	SkipCheckScheduleCycle *bool `json:"skipCheckScheduleCycle,omitempty"`
	// AwareNetworkTopology may be set, as in configurations of Koordinator. It has no effect: what a gang asks of the
	// network counts.
	AwareNetworkTopology *bool `json:"awareNetworkTopology,omitempty"`
}

// DecodeCoscheduling is Decode for the plugin Coscheduling.
func DecodeCoscheduling(obj runtime.Object) (CoschedulingArgs, error) {
	return decode[CoschedulingArgs](obj, CoschedulingKind)
}

// SetDefaults fills what is not said.
func (a *CoschedulingArgs) SetDefaults() {
	a.DefaultMatchPolicy = cmp.Or(a.DefaultMatchPolicy, annotation.GangOnceSatisfied)
	a.DefaultTimeout = cmp.Or(a.DefaultTimeout, &metav1.Duration{Duration: 10 * time.Minute})
	a.EnablePreemption = cmp.Or(a.EnablePreemption, new(true))
}

// Validate returns every field whose value cannot be used.
func (a *CoschedulingArgs) Validate() field.ErrorList {
	errs := validateKind(a.TypeMeta, CoschedulingKind)
	allowed := []string{
		annotation.GangOnceSatisfied, annotation.GangOnlyWaiting, annotation.GangWaitingAndRunning,
	}
	if !slices.Contains(allowed, a.DefaultMatchPolicy) {
		errs = append(errs, field.NotSupported(field.NewPath("defaultMatchPolicy"), a.DefaultMatchPolicy, allowed))
	}
	if d := a.DefaultTimeout; d != nil && d.Duration <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("defaultTimeout"), d.Duration.String(), "must be more than 0"))
	}
	return errs
}
