package reserving

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/reservation"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/placement"
)

// preallocation is the state of a cycle for a Reservation that may be placed on the room of running pods.
type preallocation struct {
	// spec is the Reservation that looks for a node.
	spec *reservation.Spec
	// required refuses nodes where the Reservation would take over no pod's room. multiple lets it take over several
	// pods'.
	required, multiple bool

	mu sync.Mutex // guards occupants
	// occupants has the pods of each node whose room the Reservation would take over; none if enough is free.
	occupants map[string][]*corev1.Pod
}

// choose records the pods for a node. Filters of several nodes run at once.
func (p *preallocation) choose(node string, pods []*corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.occupants[node] = pods
}

// on returns the pods that choose recorded for a node.
func (p *preallocation) on(node string) []*corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.occupants[node]
}

// preallocationOf returns the state for the reserve pod of a Reservation with preAllocation; nil for any other pod.
func (p *Plugin) preallocationOf(pod *corev1.Pod) *preallocation {
	if !convert.IsReservePod(pod) {
		return nil
	}
	r, _ := p.reservations.Find(pod.UID)
	if r == nil || !r.Spec.PreAllocation {
		return nil
	}
	policy := r.Spec.PreAllocationPolicy
	return &preallocation{
		spec: convert.Reservation(r, ""), required: convert.RequiresPreAllocation(r),
		multiple: policy != nil && policy.EnableMultiple, occupants: map[string][]*corev1.Pod{},
	}
}

// filterOver runs the filters on a node for a Reservation. If they refuse, or if the Reservation requires it, they run
// once more without the first eligible pod, then without the second, and so on; if several are allowed, without the
// first, the first two, and so on. The pods with which the filters pass are recorded.
func (r *Rooms) filterOver(ctx context.Context, f framework.Framework, cs fwk.CycleState, pod *corev1.Pod,
	node fwk.NodeInfo, pre *preallocation,
) *fwk.Status {
	status := f.RunFilterPluginsWithNominatedPods(ctx, cs, pod, node)
	if pre.choose(node.Node().Name, nil); status.IsSuccess() && !pre.required ||
		status.Code() == fwk.UnschedulableAndUnresolvable {
		return status
	}
	var pods []*corev1.Pod
	view := r.Store.View(node.Node().Name)
	for _, info := range node.GetPods() {
		if pod := info.GetPod(); !view.HasOwn(string(pod.UID)) {
			pods = append(pods, pod)
		}
	}
	occupants := r.Reservations.Occupants(pre.spec, pods)
	switch {
	case len(occupants) == 0 && pre.required:
		return (&placement.Refusal{Reason: why.Reason{Code: why.PreAllocationRequired}}).Status().WithPlugin(Name)
	case len(occupants) == 0:
		return status
	}
	// Eligible pods are in the order in which they are to give way, so the first success is the best.
	without := map[string]bool{}
	for i, o := range occupants {
		first := i
		if pre.multiple {
			first = 0
		} else {
			clear(without)
		}
		without[string(o.UID)] = true
		dry, left, failed := leave(ctx, f, cs, pod, node, without)
		if failed != nil {
			return failed
		}
		if f.RunFilterPluginsWithNominatedPods(ctx, dry, pod, left).IsSuccess() {
			pre.choose(node.Node().Name, occupants[first:i+1])
			return nil
		}
	}
	return (&placement.Refusal{Reason: why.Reason{Code: why.PreAllocationUnmet}}).Status().WithPlugin(Name)
}
