package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// A pod of mode Reservation is a Reservation for one pod whose reserve pod is the pod itself. Its containers run, and
// the kubelet counts them: before the pod is bound that uses the room, the reserving pod is deleted.

// putReserving records what a pod of mode Reservation keeps.
func (s *Reservations) putReserving(p *corev1.Pod) {
	r := convert.ReservingPod(p)
	if r == nil {
		s.removeReserving(p)
		return
	}
	s.change(p.UID, func() {
		s.reserving[p.UID], s.objects[p.UID] = p, r
		s.account.Put(s.spec(r))
	})
}

func (s *Reservations) removeReserving(p *corev1.Pod) {
	s.mu.RLock()
	was := s.reserving[p.UID] != nil
	s.mu.RUnlock()
	if was {
		s.change(p.UID, func() {
			delete(s.reserving, p.UID)
			delete(s.objects, p.UID)
			s.account.Remove(string(p.UID))
		})
	}
}

// reservingPod returns the pod of mode Reservation whose room another pod uses, nil where there is none.
func (s *Reservations) reservingPod(user *corev1.Pod) *corev1.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.reserving[types.UID(s.account.UsedBy(string(user.UID)))]
}

// nameUser writes which pod uses the room of a reserving pod, nil for none. It fails if the reserving pod has changed.
func (s *Reservations) nameUser(ctx context.Context, r *v1alpha1.Reservation, user *corev1.ObjectReference) error {
	var value any
	if user != nil {
		value = annotation.Encode(annotation.CurrentOwner(*user))
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": r.UID, "resourceVersion": r.ResourceVersion,
		"annotations": map[string]any{annotation.ReservationCurrentOwnerKey: value},
	}})
	if err != nil {
		return err
	}
	text, err = s.client.Patch(types.StrategicMergePatchType).AbsPath(pathOf(r)...).Body(text).Do(ctx).Raw()
	if err != nil {
		return err
	}
	written := &corev1.Pod{}
	if json.Unmarshal(text, written) == nil && written.UID == r.UID {
		s.Apply(Written, written)
	}
	return nil
}

func pathOf(o metav1.Object) []string {
	return []string{"/api/v1/namespaces", o.GetNamespace(), "pods", o.GetName()}
}

const (
	// vacateTime is how long a reserving pod may take to end.
	vacateTime = 2 * time.Minute
	// vacatePause is how often it is looked at meanwhile.
	vacatePause = time.Second
)

// Vacate deletes the reserving pod whose room a pod uses, and returns when it is gone. The node is written on the pod
// first: if this process ends before the Binding, the next one keeps the room for the pod.
func (s *Reservations) Vacate(ctx context.Context, user *corev1.Pod) error {
	p := s.reservingPod(user)
	if p == nil {
		return nil
	}
	nominated, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": user.UID}, "status": map[string]any{"nominatedNodeName": p.Spec.NodeName},
	})
	if err != nil {
		return err
	}
	err = s.client.Patch(types.StrategicMergePatchType).AbsPath(append(pathOf(user), "status")...).Body(nominated).
		Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write the node of pod %s/%s: %w", user.Namespace, user.Name, err)
	}
	options, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: &p.UID},
	})
	if err != nil {
		return err
	}
	err = s.client.Delete().AbsPath(pathOf(p)...).Body(options).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s/%s, which keeps the room: %w", p.Namespace, p.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, vacateTime)
	defer cancel()
	for {
		now, err := s.readPod(ctx, pathOf(p))
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("pod %s/%s, which keeps the room, did not end within %v", p.Namespace, p.Name, vacateTime)
		case err != nil:
			return err
		case now == nil || now.UID != p.UID || convert.Ended(now):
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(vacatePause):
		}
	}
}
