package v1alpha1

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ScarceResourceAvoidanceArgs are the arguments of the plugin ScarceResourceAvoidance, which has the names of
// Koordinator's.
//
// +kubebuilder:object:root=true
type ScarceResourceAvoidanceArgs struct {
	metav1.TypeMeta `json:",inline"`

	// Resources are the names of scarce resources: pods that do not request them prefer nodes without them. Default:
	// none, so all nodes are equal.
	Resources []corev1.ResourceName `json:"resources,omitempty"`
}

// SetDefaults does nothing: the zero value has no effect.
func (*ScarceResourceAvoidanceArgs) SetDefaults() {}

// Validate returns every field whose value cannot be used.
func (a *ScarceResourceAvoidanceArgs) Validate() (errs field.ErrorList) {
	known := map[corev1.ResourceName]bool{}
	for i, name := range a.Resources {
		path := field.NewPath("resources").Index(i)
		for _, text := range validation.IsQualifiedName(string(name)) {
			errs = append(errs, field.Invalid(path, name, text))
		}
		if known[name] {
			errs = append(errs, field.Duplicate(path, fmt.Sprint(name)))
		}
		known[name] = true
	}
	return errs
}
