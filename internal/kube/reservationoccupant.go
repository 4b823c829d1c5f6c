package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/reservation"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

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

// adopt returns the pods that a Waiting Reservation names and that still run, and writes on each which Reservation has
// its room. users are those that say so already.
func (s *Reservations) adopt(ctx context.Context, r *v1alpha1.Reservation, users []*corev1.Pod) (
	running []corev1.ObjectReference, err error,
) {
	for _, o := range r.Status.CurrentOwners {
		if !slices.ContainsFunc(users, func(p *corev1.Pod) bool { return p.UID == o.UID }) {
			path := []string{"/api/v1/namespaces", o.Namespace, "pods", o.Name}
			pod, err := s.readPod(ctx, path)
			switch {
			case err != nil:
				return nil, err
			case pod == nil || pod.UID != o.UID || convert.Ended(pod):
				continue
			}
			used := annotation.ReservationAllocated{Name: r.Name, UID: r.UID}
			text, err := json.Marshal(map[string]any{"metadata": map[string]any{
				"uid": o.UID, "annotations": map[string]string{annotation.ReservationAllocatedKey: used.String()},
			}})
			if err == nil {
				err = s.client.Patch(types.StrategicMergePatchType).AbsPath(path...).Body(text).Do(ctx).Error()
			}
			if err != nil {
				return nil, fmt.Errorf("record reservation %s on pod %s/%s: %w", r.Name, o.Namespace, o.Name, err)
			}
		}
		running = append(running, o)
	}
	return running, nil
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
