package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/reservation"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Announces reports whether a pod that is reserved has to be named by its Reservation before it is bound.
func (s *Reservations) Announces(p *corev1.Pod) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	uid, err := s.account.Announce(string(p.UID))
	return uid != "" || err != nil || s.reserving[types.UID(s.account.UsedBy(string(p.UID)))] != nil
}

// Announce writes which pod uses its Reservation for one pod, before the pod is bound. It fails where the Reservation
// has changed since it was read.
func (s *Reservations) Announce(ctx context.Context, p *corev1.Pod) error {
	s.mu.RLock()
	uid, err := s.account.Announce(string(p.UID))
	r := s.objects[types.UID(uid)]
	s.mu.RUnlock()
	if r == nil || err != nil {
		return err
	}
	owners := []corev1.ObjectReference{{Namespace: p.Namespace, Name: p.Name, UID: p.UID}}
	if s.reservingPod(p) != nil {
		err = s.nameUser(ctx, r, &owners[0])
	} else {
		err = s.patch(ctx, r, "status", map[string]any{"status": map[string]any{"currentOwners": owners}})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("announce the owner of reservation %s: %w", r.Name, err)
	}
	return nil
}

// LateWrite is how long a request whose answer was lost may still be carried out: etcd gives up after 7 s.
const LateWrite = 10 * time.Second

// Lead records that this process writes from now on. The first call counts.
func (s *Reservations) Lead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leading.IsZero() {
		s.leading = s.now()
	}
}

// withdraw returns the time from which a void announcement may be withdrawn; the zero time for now. The process that
// led before may have sent the Binding of the pod just before it ended, and the informers may not know of it yet: so
// the announcement remains for LateWrite, and while the API server says that the pod has a node or is gone.
func (s *Reservations) withdraw(ctx context.Context, r *v1alpha1.Reservation) (from time.Time, err error) {
	now := s.now()
	s.mu.RLock()
	from = s.leading.Add(LateWrite)
	s.mu.RUnlock()
	if now.Before(from) {
		return from, nil
	}
	for _, o := range r.Status.CurrentOwners {
		pod, err := s.readPod(ctx, []string{"/api/v1/namespaces", o.Namespace, "pods", o.Name})
		if err != nil {
			return now.Add(time.Second), fmt.Errorf("withdraw the owner of reservation %s: %w", r.Name, err)
		}
		if pod == nil || pod.UID != o.UID || pod.Spec.NodeName != "" {
			return now.Add(time.Second), nil // its event comes
		}
	}
	return time.Time{}, nil
}

// spec is what the account has of a Reservation. s.mu is held.
func (s *Reservations) spec(r *v1alpha1.Reservation) *reservation.Spec {
	if s.ended[r.UID] {
		return convert.Reservation(r, "")
	}
	return convert.Reservation(r, r.Status.NodeName)
}

// setPending records whether a pod exists without a node.
func (s *Reservations) setPending(p *corev1.Pod, pending bool) {
	if convert.IsReservePod(p) {
		return
	}
	s.mu.Lock()
	named := s.account.SetPending(string(p.UID), pending)
	s.mu.Unlock()
	for _, uid := range named {
		s.change(types.UID(uid), func() {})
	}
}
