package admission

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/why"
)

// PodMigrationJob answers about a job that is created (old is nil) or changed. template is the Reservation that its
// reservationOptions.template spells; nil where there is none.
func PodMigrationJob(j, old *v1alpha1.PodMigrationJob, template *reservation.Reservation,
	kinds device.Kinds,
) (a Answer) {
	s := &j.Spec
	a.podRef(s.PodRef)
	if s.TTL != nil && s.TTL.Duration < 0 {
		a.refuse(why.InvalidField, "spec.ttl", "must be 0 or more: it is %s", s.TTL.Duration)
	}
	a.oneOf("spec.mode", string(s.Mode), string(v1alpha1.ReservationFirst), string(v1alpha1.EvictDirectly))
	a.deleteOptions(s.DeleteOptions)
	if o := s.ReservationOptions; o != nil {
		const field = "spec.reservationOptions"
		if s.Mode == v1alpha1.EvictDirectly {
			a.refuse(why.InvalidField, field, "must not be set with mode EvictDirectly: no room is reserved")
		}
		if o.ReservationRef != nil && o.ReservationRef.Name == "" {
			a.refuse(why.InvalidField, field+".reservationRef.name", "must be set")
		}
		if o.PreemptionOptions != nil {
			a.warn(field+".preemptionOptions", "has no effect: no pod is preempted for a Reservation")
		}
		a.reservationOf(field+".template.", template, kinds)
	}
	if old != nil {
		a.sameJob(s, &old.Spec)
	}
	return a
}

func (a *Answer) podRef(ref *corev1.ObjectReference) {
	const field = "spec.podRef"
	if ref == nil {
		a.refuse(why.InvalidField, field, "must be set: the namespace and name of a pod")
		return
	}
	if ref.Namespace == "" {
		a.refuse(why.InvalidField, field+".namespace", "must be set")
	}
	if ref.Name == "" {
		a.refuse(why.InvalidField, field+".name", "must be set")
	}
	a.oneOf(field+".kind", ref.Kind, "Pod")
	a.oneOf(field+".apiVersion", ref.APIVersion, "v1")
}

func (a *Answer) deleteOptions(o *metav1.DeleteOptions) {
	if o == nil {
		return
	}
	const field = "spec.deleteOptions"
	if s := o.GracePeriodSeconds; s != nil && *s < 0 {
		a.refuse(why.InvalidField, field+".gracePeriodSeconds", "must be 0 or more: it is %d", *s)
	}
	if len(o.DryRun) > 0 {
		a.refuse(why.InvalidField, field+".dryRun", "must be empty: no pod would be evicted")
	}
	if p := o.PropagationPolicy; p != nil {
		a.oneOf(field+".propagationPolicy", string(*p), string(metav1.DeletePropagationOrphan),
			string(metav1.DeletePropagationBackground), string(metav1.DeletePropagationForeground))
	}
}

// reservationOf checks a template of a Reservation. What it does not set is made from the pod.
func (a *Answer) reservationOf(field string, template *reservation.Reservation, kinds device.Kinds) {
	if template == nil {
		return
	}
	r := template.DeepCopy()
	if len(r.Spec.Owners) == 0 {
		r.Spec.Owners = []reservation.ReservationOwner{{Object: &corev1.ObjectReference{Name: "pod"}}}
	}
	r.Spec.Template = cmp.Or(r.Spec.Template, &corev1.PodTemplateSpec{})
	if len(r.Spec.Template.Spec.Containers) == 0 {
		r.Spec.Template.Spec.Containers = []corev1.Container{{Name: "pod"}}
	}
	answer := Reservation(r, nil, kinds)
	for _, f := range answer.Refusals {
		a.refuse(f.Code, field+f.Field, "%s", f.Text)
	}
	for _, text := range answer.Warnings {
		a.Warnings = append(a.Warnings, field+text)
	}
	if once := r.Spec.AllocateOnce; once != nil && !*once {
		a.refuse(why.InvalidField, field+"spec.allocateOnce", "must be true: the room is for one pod")
	}
}

// sameJob refuses that a job becomes one for another pod, or in another way.
func (a *Answer) sameJob(s, old *v1alpha1.PodMigrationJobSpec) {
	if old.Mode != "" && s.Mode != old.Mode {
		a.refuse(why.InvalidField, "spec.mode", "field is immutable once it is set")
	}
	if s.PodRef == nil || old.PodRef == nil {
		return
	}
	if s.PodRef.Namespace != old.PodRef.Namespace || s.PodRef.Name != old.PodRef.Name ||
		old.PodRef.UID != "" && s.PodRef.UID != old.PodRef.UID {
		a.refuse(why.InvalidField, "spec.podRef", "field is immutable: create another job")
	}
}

// oneOf refuses a value other than the empty one and those that are allowed.
func (a *Answer) oneOf(field, value string, allowed ...string) {
	if value != "" && !slices.Contains(allowed, value) {
		a.refuse(why.InvalidField, field, "%s", annotation.Unsupported(value, allowed...))
	}
}
