package reserving

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/reservation"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/placement"
)

// Rooms runs the filters of a profile inside Reservations. It is the same for all profiles.
type Rooms struct {
	Reservations *kube.Reservations
	// Store has what the pods of each node hold.
	Store *kube.Store
}

// Wrap returns the profile f with filters that look inside Reservations.
func (r *Rooms) Wrap(f framework.Framework) framework.Framework { return &inside{f, r} }

// inside is a profile whose filters and explanations go through Rooms.
type inside struct {
	framework.Framework
	rooms *Rooms
}

// RunFilterPluginsWithNominatedPods runs the filters inside Reservations.
func (i *inside) RunFilterPluginsWithNominatedPods(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod,
	node fwk.NodeInfo,
) *fwk.Status {
	return i.rooms.Filter(ctx, i.Framework, cs, pod, node)
}

// Concern reports whether the pod of a cycle may use a Reservation, or is one.
func (*Rooms) Concern(cs fwk.CycleState) bool { return read(cs) != nil }

// Filter runs the filters of f on a node. For each Reservation of the node that the pod may use, in order, it runs them
// without the reserve pod, and records the first with which they pass. If none does, it runs them on the node as it is,
// unless the pod must use a Reservation.
func (r *Rooms) Filter(ctx context.Context, f framework.Framework, cs fwk.CycleState, pod *corev1.Pod,
	node fwk.NodeInfo,
) *fwk.Status {
	c, name := read(cs), node.Node().Name
	if c != nil && c.pre != nil {
		return r.filterOver(ctx, f, cs, pod, node, c.pre)
	}
	if c == nil || len(c.byNode[name]) == 0 {
		return f.RunFilterPluginsWithNominatedPods(ctx, cs, pod, node)
	}
	var refused *fwk.Status
	for _, s := range c.byNode[name] {
		status := r.filterInside(ctx, f, cs, pod, node, s)
		if status.IsSuccess() {
			c.choose(name, s)
			return nil
		}
		if refused == nil {
			refused = status
		}
	}
	c.choose(name, nil)
	if c.pod.Affinity.Required {
		return refused
	}
	return f.RunFilterPluginsWithNominatedPods(ctx, cs, pod, node)
}

// leave returns a copy of a cycle's state and of a node without the reserve pods of the Reservations in keeping, by
// UID.
func leave(ctx context.Context, f framework.Framework, cs fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
	keeping map[string]bool,
) (fwk.CycleState, fwk.NodeInfo, *fwk.Status) {
	dry, without := cs.Clone(), node.Snapshot()
	for _, info := range node.GetPods() {
		if !keeping[string(info.GetPod().UID)] {
			continue
		}
		if err := without.RemovePod(klog.FromContext(ctx), info.GetPod()); err != nil {
			return nil, nil, fwk.AsStatus(fmt.Errorf("look inside a reservation: %w", err))
		}
		if status := f.RunPreFilterExtensionRemovePod(ctx, dry, pod, info, without); !status.IsSuccess() {
			return nil, nil, status
		}
	}
	return dry, without, nil
}

// filterInside runs the filters on a node for a pod that uses the Reservation s: without its reserve pod, and with what
// it holds alone if it is restricted. It refuses a pod that asks for more than the Reservation has left.
func (r *Rooms) filterInside(ctx context.Context, f framework.Framework, cs fwk.CycleState, pod *corev1.Pod,
	node fwk.NodeInfo, s *reservation.Spec,
) *fwk.Status {
	if refused := r.shortage(cs, pod, []*reservation.Spec{s}); refused != nil {
		return refused.Status().WithPlugin(Name)
	}
	dry, without, failed := enter(ctx, f, cs, pod, node, s)
	if failed != nil {
		return failed
	}
	return f.RunFilterPluginsWithNominatedPods(ctx, dry, pod, without)
}

// enter returns a copy of a cycle's state and of a node as they are inside the Reservation s.
func enter(ctx context.Context, f framework.Framework, cs fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
	s *reservation.Spec,
) (fwk.CycleState, fwk.NodeInfo, *fwk.Status) {
	dry, without, failed := leave(ctx, f, cs, pod, node, map[string]bool{s.UID: true})
	if failed != nil {
		return nil, nil, failed
	}
	switch placed := placement.Read(dry); {
	case placed == nil:
	case s.Restricted:
		placed.Enter(node.Node().Name, s.UID)
	default:
		placed.Use(s.UID)
	}
	return dry, without, nil
}

// shortage refuses a pod for the first Reservation that is Restricted and has too little left for it; nil for none.
func (r *Rooms) shortage(cs fwk.CycleState, pod *corev1.Pod, all []*reservation.Spec) *placement.Refusal {
	request := convert.PodAmounts(pod)
	for _, s := range all {
		if resource, free := s.Shortage(request, accountOf(cs, r.Reservations).Left(s.UID)); resource != "" {
			return &placement.Refusal{Reason: why.Reason{
				Code: why.ReservationRestricted, Resource: why.Resource(resource), Unit: convert.UnitOf(resource),
				Asked: request[resource], Free: free,
			}}
		}
	}
	return nil
}
