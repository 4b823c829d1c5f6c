package elasticquota

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
)

// EventsToRegister names the events after which a quota may have more left: a pod has ended, has become smaller or
// belongs to another quota; nodes have more; a quota has changed.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	on := func(r fwk.EventResource, actions fwk.ActionType) fwk.ClusterEventWithHint {
		return fwk.ClusterEventWithHint{
			Event: fwk.ClusterEvent{Resource: r, ActionType: actions}, QueueingHintFn: p.hint,
		}
	}
	events := []fwk.ClusterEventWithHint{
		on(fwk.Pod, fwk.Delete|fwk.UpdatePodLabel|fwk.UpdatePodScaleDown),
		on(fwk.Node, fwk.Add|fwk.UpdateNodeAllocatable|fwk.UpdateNodeCondition),
	}
	for _, group := range v1alpha1.Groups() {
		r := v1alpha1.Resource(group)
		name := fwk.EventResource(r.Resource + "." + r.Version + "." + r.Group)
		events = append(events, on(name, fwk.Add|fwk.Update|fwk.Delete))
	}
	return events, nil
}

// hint wakes a pod if it has changed itself, or if a quota on its path has more left than when the pod was refused.
func (p *Plugin) hint(_ klog.Logger, pod *corev1.Pod, _, object any) (fwk.QueueingHint, error) {
	if own, ok := object.(*corev1.Pod); ok && own.UID == pod.UID || p.quotas.Grew(string(pod.UID)) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}
