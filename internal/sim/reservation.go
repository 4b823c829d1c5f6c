package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

// Reservation is one of the input.
type Reservation struct {
	view.Reservation
	// Reasons are why it has no node.
	Reasons []Reason `json:"reasons"`
}

// addReservation adds a Reservation as the API server would store it.
func (w *world) addReservation(at origin, r *v1alpha1.Reservation, p *problems) {
	if r.UID == "" {
		r.UID = types.UID("reservation-" + r.Name)
	}
	if !at.stored {
		answer := admission.Reservation(r, nil, nil)
		for _, refusal := range answer.Refusals {
			p.add(at, "%s", refusal.String())
		}
	}
	r.Status.Phase = cmp.Or(r.Status.Phase, v1alpha1.ReservationPending)
	w.reservations = append(w.reservations, r)
}

// patchReservation answers a merge patch of a Reservation or of its status.
func (s *apiServer) patchReservation(name string, patch []byte) (runtime.Object, error) {
	old, known, _ := s.reservations.GetByKey(name)
	if !known {
		return nil, apierrors.NewNotFound(v1alpha1.Resource().GroupResource(), name)
	}
	var was, change map[string]any
	text, err := json.Marshal(old)
	if err = errors.Join(err, json.Unmarshal(text, &was), json.Unmarshal(patch, &change)); err != nil {
		return nil, fmt.Errorf("read the patch of reservation %s: %w", name, err)
	}
	merge(was, change)
	if text, err = json.Marshal(was); err != nil {
		return nil, fmt.Errorf("encode reservation %s: %w", name, err)
	}
	r, err := kube.ReadReservation(text)
	if err != nil {
		return nil, fmt.Errorf("patch reservation %s: %w", name, err)
	}
	s.changes++
	s.putReservation(r)
	return r, nil
}

func (s *apiServer) putReservation(r *v1alpha1.Reservation) {
	s.stamp(r)
	r.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind("Reservation"))
	utilruntime.Must(s.reservations.Add(r))
	s.table.Put(r)
}

// merge is a JSON merge patch (RFC 7396).
func merge(into, change map[string]any) {
	for key, value := range change {
		object, ok := value.(map[string]any)
		below, has := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case ok && has:
			merge(below, object)
		case ok:
			below = map[string]any{}
			merge(below, object)
			into[key] = below
		default:
			into[key] = value
		}
	}
}

func (e *engine) loadReservations(w *world) {
	for _, r := range w.reservations {
		e.api.putReservation(r)
	}
}

// reconcileReservations writes the status of every Reservation.
func (e *engine) reconcileReservations(ctx context.Context) {
	for _, uid := range e.api.reserved.UIDs() {
		_, err := e.api.reserved.Reconcile(ctx, uid, 0, func(node string) bool {
			_, known, _ := e.api.nodes.GetStore().Get(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
			return !known
		})
		utilruntime.Must(err) // the API server is in memory
	}
}

// reservationsNow returns the Reservations by name, in their current state.
func (e *engine) reservationsNow() []Reservation {
	out := []Reservation{}
	for _, object := range e.api.reservations.List() {
		r := object.(*v1alpha1.Reservation)
		one := Reservation{describe.Reservation(r, e.api.reserved, e.store.View(r.Status.NodeName)), []Reason{}}
		if failed, ok := e.failed[r.UID]; ok && one.Node == "" {
			one.Reasons = append(one.Reasons, reasons(failed.findings)...)
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b Reservation) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
