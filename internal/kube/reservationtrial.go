package kube

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/core/reservation"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// ReservationTrial is the Reservations as they would be with other users. It changes none of them. Not safe for
// concurrent use, apart from readers.
type ReservationTrial struct {
	reservations *Reservations
	account      *reservation.Account
}

// Try returns the Reservations as they are.
func (s *Reservations) Try() *ReservationTrial {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return &ReservationTrial{s, s.account.Clone()}
}

// Clone returns a copy.
func (t *ReservationTrial) Clone() *ReservationTrial {
	return &ReservationTrial{t.reservations, t.account.Clone()}
}

// Matching is that of Reservations.
func (t *ReservationTrial) Matching(p *reservation.Pod) map[string][]*reservation.Spec {
	return t.account.Matching(p)
}

// Left is that of Reservations.
func (t *ReservationTrial) Left(uid string) reservation.Amounts { return t.account.Left(uid) }

// Use is that of Reservations.
func (t *ReservationTrial) Use(p *corev1.Pod, uid string) error {
	return t.account.Use(string(p.UID), uid, convert.PodAmounts(p))
}

// Release ends what a pod uses, and reports whether it used anything.
func (t *ReservationTrial) Release(p *corev1.Pod) bool { return t.account.Release(string(p.UID)) != "" }

// ReservePod returns the reserve pod of a Reservation, nil for one that holds nothing.
func (t *ReservationTrial) ReservePod(uid types.UID) *corev1.Pod {
	t.reservations.mu.RLock()
	defer t.reservations.mu.RUnlock()
	return t.reservations.reservePod(t.account, uid)
}
