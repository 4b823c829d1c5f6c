package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/reservation"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// A Reservation for one pod names the pod in its status before the pod is bound: the pod is announced. So that the
// Reservation is used once even if the pod is deleted while no scheduler runs, an announcement of a pod that is gone
// counts as use. One of a pod that exists without a node is void: its Binding failed, or never began. It is withdrawn
// before any pod may use the Reservation.

// Announces reports whether a pod that is reserved uses a Reservation for one pod.
func (s *Reservations) Announces(p *corev1.Pod) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	spec := s.account.Find(s.account.UsedBy(string(p.UID)))
	return spec != nil && spec.Once && spec.Node != ""
}

// Announce writes which pod uses its Reservation for one pod, before the pod is bound. It fails where the Reservation
// has changed since it was read.
func (s *Reservations) Announce(ctx context.Context, p *corev1.Pod) error {
	s.mu.RLock()
	r := s.objects[types.UID(s.account.UsedBy(string(p.UID)))]
	s.mu.RUnlock()
	if r == nil || !s.Announces(p) {
		return nil
	}
	if all := r.Status.CurrentOwners; len(all) > 0 {
		if all[0].UID == p.UID {
			return nil
		}
		return reservation.ErrUsed
	}
	owners := []corev1.ObjectReference{{Namespace: p.Namespace, Name: p.Name, UID: p.UID}}
	err := s.patch(ctx, r, "status", map[string]any{"status": map[string]any{"currentOwners": owners}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("announce the owner of reservation %s: %w", r.Name, err)
	}
	return nil
}

// spec is what the account has of a Reservation. s.mu is held.
func (s *Reservations) spec(r *v1alpha1.Reservation) *reservation.Spec {
	node := r.Status.NodeName
	if s.ended[r.UID] || s.isSpent(r) {
		node = ""
	}
	spec := convert.Reservation(r, node)
	spec.Announced = s.isVoid(r)
	return spec
}

// isVoid reports whether the announced pod of a Reservation exists without a node and was not reserved for. s.mu is
// held.
func (s *Reservations) isVoid(r *v1alpha1.Reservation) bool {
	return s.isUnused(r) && slices.ContainsFunc(r.Status.CurrentOwners,
		func(o corev1.ObjectReference) bool { return s.unbound[o.UID] })
}

// isSpent reports whether the announced pod of a Reservation is gone. s.mu is held.
func (s *Reservations) isSpent(r *v1alpha1.Reservation) bool { return s.isUnused(r) && !s.isVoid(r) }

// isUnused reports whether a pod was announced for a Reservation, and no pod uses it. s.mu is held.
func (s *Reservations) isUnused(r *v1alpha1.Reservation) bool {
	return r.Status.NodeName != "" && len(r.Status.CurrentOwners) > 0 && convert.IsOnce(r) &&
		len(s.account.Users(string(r.UID))) == 0
}

// setUnbound records whether a pod exists without a node.
func (s *Reservations) setUnbound(p *corev1.Pod, unbound bool) {
	s.mu.RLock()
	known, announced := s.unbound[p.UID] == unbound, types.UID("")
	if !known {
		for uid, r := range s.objects {
			if all := r.Status.CurrentOwners; len(all) > 0 && all[0].UID == p.UID {
				announced = uid
			}
		}
	}
	s.mu.RUnlock()
	if known || convert.IsReservePod(p) {
		return
	}
	s.change(announced, func() {
		if delete(s.unbound, p.UID); unbound {
			s.unbound[p.UID] = true
		}
	})
}
