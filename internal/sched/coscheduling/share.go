package coscheduling

import (
	"cmp"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Share returns the queue's pods in its order. But where failed rounds have used up their share of the scheduling loop,
// see gang.LoopShare, the first pod that starts alone comes first, if its priority is not lower than that of all
// members that wait.
func (r *Rounds) Share(next nextPod) nextPod {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		now := time.Now()
		r.share.End(r.failed != nil && !r.failed.preempts, now)
		if r.share.IsSpent(now) {
			if pod := r.popAlone(logger); pod != nil {
				return pod, nil
			}
		}
		return next(logger)
	}
}

// popAlone takes the first pod that starts alone out of the queue. It returns nil where there is none, or where the
// queue's first pod is not of a gang, or is of one with a higher priority.
func (r *Rounds) popAlone(logger klog.Logger) *framework.QueuedPodInfo {
	var first *corev1.Pod
	highest := int32(math.MinInt32) // priority of the members
	for _, pod := range r.Core.SchedulingQueue.PodsInActiveQ() {
		switch {
		case !r.Gangs.Alone(pod):
			highest = max(highest, r.Gangs.Priority(pod))
		case first == nil || cmp.Or(cmp.Compare(r.Gangs.Priority(first), r.Gangs.Priority(pod)),
			r.Gangs.Compare(pod, first)) < 0:
			first = pod
		}
	}
	if first == nil || corev1helpers.PodPriority(first) < highest {
		return nil
	}
	return r.Core.SchedulingQueue.PopSpecificPod(logger, first)
}
