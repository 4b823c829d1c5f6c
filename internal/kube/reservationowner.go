package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
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
		_, err = s.patch(ctx, r, "status", map[string]any{"status": map[string]any{"currentOwners": owners}})
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

// spec is what the account has of a Reservation. s.mu is held.
func (s *Reservations) spec(r *v1alpha1.Reservation) *reservation.Spec {
	if s.ended[r.UID] {
		return convert.Reservation(r, "")
	}
	spec := convert.Reservation(r, r.Status.NodeName)
	spec.Running = s.reserving[r.UID] != nil
	return spec
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

// A Reservation with preAllocation may be placed on the room of running pods: its status names them while it is
// Waiting. They are recorded as its users, so that it keeps what they leave of it, and all of it when they have ended.

// Occupants returns the running pods of a node on whose room a Reservation may be placed, in the order in which they
// are tried.
func (s *Reservations) Occupants(spec *reservation.Spec, pods []*corev1.Pod) (ordered []*corev1.Pod) {
	byUID := map[string]*corev1.Pod{}
	var all []reservation.Occupant
	for _, pod := range pods {
		if o, ok := convert.Occupant(pod); ok {
			all, byUID[o.UID] = append(all, o), pod
		}
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, o := range s.account.Occupants(spec, all) {
		if pod := byUID[o.UID]; !s.isOccupant(pod.UID) {
			ordered = append(ordered, pod)
		}
	}
	return ordered
}

// isOccupant reports whether a Reservation was placed on the room of a pod. s.mu is held.
func (s *Reservations) isOccupant(pod types.UID) bool {
	for uid, r := range s.objects {
		reserved := slices.ContainsFunc(s.occupants[uid], func(p *corev1.Pod) bool { return p.UID == pod })
		if reserved || r.Status.Phase == v1alpha1.ReservationWaiting && slices.ContainsFunc(r.Status.CurrentOwners,
			func(o corev1.ObjectReference) bool { return o.UID == pod }) {
			return true
		}
	}
	return false
}

// Occupy records on the room of which running pods a Reservation is reserved, none to forget it.
func (s *Reservations) Occupy(uid types.UID, pods []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.occupants, uid); len(pods) > 0 {
		s.occupants[uid] = pods
	}
}

// readNamed returns the pods that a Reservation names and that exist, as the API server has them, without its users.
func (s *Reservations) readNamed(ctx context.Context, owners, users []reservation.Reference) (
	named []reservation.Named, err error,
) {
	for _, o := range owners {
		if slices.ContainsFunc(users, func(u reservation.Reference) bool { return u.UID == o.UID }) {
			continue
		}
		pod, err := s.readPod(ctx, podPath(o))
		if err != nil {
			return nil, err
		}
		if pod != nil && string(pod.UID) == o.UID {
			n := reservation.Named{Reference: o, HasNode: pod.Spec.NodeName != "", Ended: convert.Ended(pod)}
			named = append(named, n)
		}
	}
	return named, nil
}

// adopt writes on a pod which Reservation has its room.
func (s *Reservations) adopt(ctx context.Context, r *v1alpha1.Reservation, o reservation.Reference) error {
	used := annotation.Encode(annotation.ReservationAllocated{Name: r.Name, UID: r.UID})
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.UID, "annotations": map[string]string{annotation.ReservationAllocatedKey: used},
	}})
	if err != nil {
		return err
	}
	return s.client.Patch(types.StrategicMergePatchType).AbsPath(podPath(o)...).Body(text).Do(ctx).Error()
}

func podPath(o reservation.Reference) []string {
	return []string{"/api/v1/namespaces", o.Namespace, "pods", o.Name}
}

// readPod returns a pod as the API server has it, nil for one that is gone.
func (s *Reservations) readPod(ctx context.Context, path []string) (*corev1.Pod, error) {
	text, err := s.client.Get().AbsPath(path...).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	pod := &corev1.Pod{}
	if err == nil {
		err = json.Unmarshal(text, pod)
	}
	if err != nil {
		return nil, fmt.Errorf("read pod %s/%s: %w", path[1], path[3], err)
	}
	return pod, nil
}
