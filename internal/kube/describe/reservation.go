package describe

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// Reservation returns a Reservation of an account. v is the account of its node, nil where none is known.
func Reservation(r *v1alpha1.Reservation, all *kube.Reservations, v *ledger.View) view.Reservation {
	s := &r.Status
	out := view.Reservation{
		Name: r.Name, Phase: cmp.Or(string(s.Phase), string(v1alpha1.ReservationPending)), Node: s.NodeName,
		Devices: map[string][]view.Device{}, Allocatable: texts(s.Allocatable), Allocated: texts(s.Allocated),
		Left:   map[string]string{},
		Policy: cmp.Or(string(r.Spec.AllocatePolicy), string(v1alpha1.ReservationAligned)),
		Once:   convert.Reservation(r, "").Once, Unschedulable: r.Spec.Unschedulable,
		Owners: []string{}, Users: []string{},
	}
	if t := r.CreationTimestamp; !t.IsZero() {
		out.CreateTime = &t.Time
	}
	if r.Spec.TTL != nil && r.Spec.Expires == nil { // beside spec.expires, it is the default and has no effect
		out.TTL = strings.NewReplacer("m0s", "m", "h0m0s", "h").Replace(r.Spec.TTL.Duration.String())
	}
	if r.Spec.Expires != nil {
		out.Expires = r.Spec.Expires.UTC().Format(time.RFC3339)
	}
	for i := range r.Spec.Owners {
		out.Owners = append(out.Owners, ownerText(&r.Spec.Owners[i]))
	}
	for _, o := range s.CurrentOwners {
		out.Users = append(out.Users, o.Namespace+"/"+o.Name)
	}
	for _, c := range s.Conditions {
		if c.Status == metav1.ConditionFalse {
			out.Message = c.Message
		}
	}
	if s.NodeName != "" && !s.Phase.IsFinal() {
		out.Left = texts(convert.ResourceList(all.Available(string(r.UID))))
		out.SetHeld(v, string(r.UID))
	}
	return out
}

// ownerText names the pods that an owner matches: "pods app=web of ReplicaSet default/web-98d4".
func ownerText(o *v1alpha1.ReservationOwner) (text string) {
	named := func(kind, namespace, name, uid string) string {
		return kind + " " + joined(namespace, "/", cmp.Or(name, uid))
	}
	if r := o.Object; r != nil {
		text = named("pod", r.Namespace, r.Name, string(r.UID))
	}
	if s := o.LabelSelector; s != nil {
		text = joined(text, " and ", "pods "+metav1.FormatLabelSelector(s))
	}
	if c := o.Controller; c != nil {
		text = joined(cmp.Or(text, "pods"), " of ", named(c.Kind, c.Namespace, c.Name, string(c.UID)))
	}
	return text
}

func texts(list corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, q := range list {
		out[string(name)] = q.String()
	}
	return out
}
