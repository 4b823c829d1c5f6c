package reserving

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/reservation"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// objects are Reservations as the framework names resources.
const objects fwk.EventResource = "reservations.v1alpha1." + v1alpha1.GroupName

// EventsToRegister names the events after which a pod may find a Reservation.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	on := func(r fwk.EventResource, actions fwk.ActionType) fwk.ClusterEventWithHint {
		return fwk.ClusterEventWithHint{
			Event: fwk.ClusterEvent{Resource: r, ActionType: actions}, QueueingHintFn: p.hint,
		}
	}
	return []fwk.ClusterEventWithHint{
		on(objects, fwk.Add|fwk.Update|fwk.Delete), on(fwk.Pod, fwk.Add|fwk.Update|fwk.Delete),
	}, nil
}

// Opened returns which pods may use a Reservation that has become available, or has more left or other owners than
// before; nil after any other event. Pods that other plugins have refused wake too: no plugin but this one has looked
// for Reservations, and this one has found none.
func (p *Plugin) Opened(old, object any) (mayUse func(*corev1.Pod) bool) {
	was, had := old.(*v1alpha1.Reservation)
	now, ok := object.(*v1alpha1.Reservation)
	if !ok || now.Status.Phase != v1alpha1.ReservationAvailable || had && was.Generation == now.Generation &&
		was.Status.Phase == now.Status.Phase && !hasMore(was.Status.Allocated, now.Status.Allocated) {
		return nil
	}
	return func(pod *corev1.Pod) bool {
		_, byNode, err := p.matching(nil, pod)
		return err == nil && slices.ContainsFunc(byNode[now.Status.NodeName], func(s *reservation.Spec) bool {
			return s.UID == string(now.UID)
		})
	}
}

// hasMore reports whether less of some resource is allocated than before.
func hasMore(was, now corev1.ResourceList) bool {
	for name, amount := range was {
		if amount.Cmp(now[name]) > 0 {
			return true
		}
	}
	return false
}

// hint wakes a pod that may use a Reservation now, a Reservation that has no node, and a pod whose own labels or
// annotations have changed.
func (p *Plugin) hint(_ klog.Logger, pod *corev1.Pod, old, object any) (fwk.QueueingHint, error) {
	if own, ok := object.(*corev1.Pod); ok && own.UID == pod.UID {
		was, ok := old.(*corev1.Pod)
		if ok && maps.Equal(was.Labels, own.Labels) && maps.Equal(was.Annotations, own.Annotations) {
			return fwk.QueueSkip, nil
		}
		return fwk.Queue, nil
	}
	_, byNode, err := p.matching(nil, pod)
	if len(byNode) > 0 || err == nil && convert.IsReservePod(pod) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}
