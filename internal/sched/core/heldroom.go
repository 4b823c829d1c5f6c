package core

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/sched/upstream/claims"
)

// heldRoom is a profile whose filters accept a node that is held until a declared start also for a pod that leaves the
// held pods enough at that time. Upstream asks whether it fits beside them now, with all pods that run.
type heldRoom struct {
	framework.Framework
	core *Core
}

// RunFilterPluginsWithNominatedPods runs the filters on the node as it is, and for each time at which pods start that
// hold it, as it will be then. It costs nothing on a node to which no pod is nominated, see ranking.Profile.
func (h *heldRoom) RunFilterPluginsWithNominatedPods(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod,
	node fwk.NodeInfo,
) *fwk.Status {
	moments := h.core.Rounds.Moments(pod, node, h.NominatedPodsForNode(node.Node().Name))
	if len(moments) == 0 {
		return h.Framework.RunFilterPluginsWithNominatedPods(ctx, cs, pod, node)
	}
	status := h.RunFilterPlugins(ctx, cs, pod, node)
	if !status.IsSuccess() {
		return status
	}
	ahead := cs.Clone()
	claims.LookAhead(ctx, ahead, pod, node.Node()) // which asks the account of now
	if !placement.LookAhead(ahead, pod, node.Node().Name, moments[len(moments)-1].Starts) {
		return h.Framework.RunFilterPluginsWithNominatedPods(ctx, cs, pod, node)
	}
	for _, m := range moments {
		if status = h.filterAt(ctx, ahead.Clone(), pod, node.Snapshot(), m); !status.IsSuccess() {
			break
		}
	}
	return status
}

// filterAt runs the filters on a node without the pods that have left it by a moment, and with those that start.
func (h *heldRoom) filterAt(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
	m coscheduling.Moment,
) *fwk.Status {
	for _, info := range m.Over {
		if err := node.RemovePod(klog.FromContext(ctx), info.GetPod()); err != nil {
			return fwk.AsStatus(fmt.Errorf("look at the start of held pods: %w", err))
		}
		if status := h.RunPreFilterExtensionRemovePod(ctx, cs, pod, info, node); !status.IsSuccess() {
			return status
		}
	}
	for _, info := range m.Starts {
		node.AddPodInfo(info)
		if status := h.RunPreFilterExtensionAddPod(ctx, cs, pod, info, node); !status.IsSuccess() {
			return status
		}
	}
	return h.RunFilterPlugins(ctx, cs, pod, node)
}
