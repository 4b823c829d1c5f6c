package admission

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Reservation answers about a Reservation that is created (old is nil) or changed: what it said before is not checked
// again. kinds are those of devices that Device objects list.
func Reservation(r, old *v1alpha1.Reservation, kinds device.Kinds) (a Answer) {
	for _, field := range slices.Sorted(maps.Keys(r.Unread)) {
		a.refuse(why.InvalidField, field, "%s", r.Unread[field])
	}
	parsed(&a, r.Annotations, annotation.ReservationRestrictedOptionsKey, annotation.ParseReservationRestrictedOptions)
	if text, ok := r.Labels[annotation.ReservationOrder]; ok {
		if _, _, err := annotation.ParseReservationOrder(text); err != nil {
			a.refuse(why.InvalidField, labelField(annotation.ReservationOrder), "%v", err)
		}
	}
	a.boolLabel(r.Labels, annotation.PreAllocationRequired)
	if len(r.Unread) == 0 {
		a.reservationSpec(&r.Spec, kinds)
	}
	if old == nil {
		return a
	}
	if old.Status.NodeName != "" && !reflect.DeepEqual(r.Spec.Template, old.Spec.Template) {
		a.refuse(why.InvalidField, "spec.template", "field is immutable once the reservation is on a node")
	}
	was := Reservation(old, nil, kinds)
	a.Refusals = slices.DeleteFunc(a.Refusals, func(f Refusal) bool { return slices.Contains(was.Refusals, f) })
	return a
}

func (a *Answer) reservationSpec(s *v1alpha1.ReservationSpec, kinds device.Kinds) {
	if s.TTL != nil && s.TTL.Duration < 0 {
		a.refuse(why.InvalidField, "spec.ttl", "must be 0 or more: it is %s", s.TTL.Duration)
	}
	if p := s.PreAllocationPolicy; p != nil {
		switch p.Mode {
		case "", v1alpha1.PreAllocationDefault, v1alpha1.PreAllocationCluster:
		default:
			a.refuse(why.InvalidField, "spec.preAllocationPolicy.mode", "%s", annotation.Unsupported(string(p.Mode),
				string(v1alpha1.PreAllocationDefault), string(v1alpha1.PreAllocationCluster)))
		}
	}
	if t := s.Template; s.PreAllocation && t != nil &&
		!convert.IsCounted(&corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}) {
		a.refuse(why.PreAllocationUnsupported, "spec.preAllocation", "must be false for a template that requests "+
			"exclusive CPUs or devices: node(s) reservation pre allocation is unsupported with current attributes")
	}
	if len(s.Owners) == 0 {
		a.refuse(why.InvalidField, "spec.owners", "must have at least one entry")
	}
	for i := range s.Owners {
		a.reservationOwner(indexed("spec.owners", i), &s.Owners[i])
	}
	for i, t := range s.Taints {
		field := indexed("spec.taints", i)
		for _, text := range validation.IsQualifiedName(t.Key) {
			a.refuse(why.InvalidField, field+".key", "%s", text)
		}
		effects := []corev1.TaintEffect{
			corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute,
		}
		if !slices.Contains(effects, t.Effect) {
			a.refuse(why.InvalidField, field+".effect", "%s", annotation.Unsupported(string(t.Effect),
				string(effects[0]), string(effects[1]), string(effects[2])))
		}
	}
	if s.Template == nil || len(s.Template.Spec.Containers) == 0 {
		a.refuse(why.InvalidField, "spec.template.spec.containers", "must have at least one container")
		return
	}
	a.reservationTemplate(s.Template, kinds)
}

// reservationTemplate checks the template as the pod that is scheduled in its place.
func (a *Answer) reservationTemplate(t *corev1.PodTemplateSpec, kinds device.Kinds) {
	pod := &corev1.Pod{ObjectMeta: *t.ObjectMeta.DeepCopy(), Spec: t.Spec}
	if len(t.Spec.ResourceClaims) > 0 {
		a.refuse(why.InvalidField, "spec.template.spec.resourceClaims", "must be empty: a Reservation cannot hold "+
			"devices of ResourceClaims, which Kubernetes reserves for pods alone; its users may have claims")
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		if annotation.SetByScheduler(key) {
			a.warn("spec.template."+annotationField(key), "ignored: it is set by the scheduler")
			delete(pod.Annotations, key)
		}
	}
	answer := Create(pod, kinds)
	for _, f := range answer.Refusals {
		a.refuse(f.Code, "spec.template."+f.Field, "%s", f.Text)
	}
	for _, text := range answer.Warnings {
		a.Warnings = append(a.Warnings, "spec.template."+text)
	}
}

func (a *Answer) reservationOwner(field string, o *v1alpha1.ReservationOwner) {
	if o.Object == nil && o.Controller == nil && o.LabelSelector == nil {
		a.refuse(why.InvalidField, field, "must have one of object, controller, labelSelector")
	}
	if o.Object != nil && o.Object.UID == "" && o.Object.Name == "" {
		a.refuse(why.InvalidField, field+".object", "must have a uid or a name")
	}
	if c := o.Controller; c != nil && (c.Kind == "" || c.Name == "") {
		a.refuse(why.InvalidField, field+".controller", "must have kind and name")
	}
	if s := o.LabelSelector; s != nil {
		if len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 {
			a.refuse(why.InvalidField, field+".labelSelector", "must not be empty: it would match every pod of the "+
				"cluster")
		}
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			a.refuse(why.InvalidField, field+".labelSelector", "%v", err)
		}
	}
}

// reservation checks what a pod says of the Reservations that it uses.
func (a *Answer) reservation(pod *corev1.Pod) {
	parsed(a, pod.Annotations, annotation.ReservationAffinityKey, annotation.ParseReservationAffinity)
	parsed(a, pod.Annotations, annotation.ExactMatchReservationKey, annotation.ParseExactMatchReservation)
	if _, set := pod.Annotations[annotation.ReservePodKey]; set {
		a.refuse(why.InvalidField, annotationField(annotation.ReservePodKey), "cannot set in annotations")
	}
	parsed(a, pod.Annotations, annotation.PreAllocatablePriority, annotation.ParsePreAllocatablePriority)
	a.boolLabel(pod.Labels, annotation.ReservationIgnored)
	owners, _ := parsed(a, pod.Annotations, annotation.ReservationOwnersKey, annotation.ParseReservationOwners)
	for i := range owners {
		a.reservationOwner(indexed(annotationField(annotation.ReservationOwnersKey), i), &owners[i])
	}
	switch mode := pod.Labels[annotation.OperatingMode]; mode {
	case "", annotation.OperatingRunnable:
	case annotation.OperatingReservation:
		if _, set := pod.Annotations[annotation.ReservationOwnersKey]; !set {
			a.refuse(why.InvalidField, annotationField(annotation.ReservationOwnersKey), "must be set for a pod with "+
				"the label %s=%s: it says which pod may use the room", annotation.OperatingMode, mode)
		}
	default:
		a.refuse(why.InvalidField, labelField(annotation.OperatingMode), "%s", annotation.Unsupported(mode,
			annotation.OperatingRunnable, annotation.OperatingReservation))
	}
}

func (a *Answer) boolLabel(labels map[string]string, key string) {
	if text, ok := labels[key]; ok {
		if _, ok := annotation.ParseBool(text); !ok {
			a.refuse(why.InvalidField, labelField(key), "%s", annotation.Unsupported(text, "true", "false"))
		}
	}
}
