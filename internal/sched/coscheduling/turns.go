package coscheduling

import (
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
)

// backAtOnce is how many members of a failed round go back to the queue between two newcomers.
const backAtOnce = 8

// Interleave returns the queue's pods, but newcomers of no gang between two rounds, if their priority is not lower.
func (r *Rounds) Interleave(next nextPod) nextPod {
	return func(logger klog.Logger) (pod *framework.QueuedPodInfo, err error) {
		now := time.Now()
		r.interval.End(r.failed != nil && !r.failed.failure.Preempts, now)
		for r.returning != nil {
			if pod = r.Newcomers.Newcomer(logger, r.returning(), r.IsMember); pod != nil {
				return pod, nil
			}
		}
		if pod = r.aside; pod == nil {
			pod, err = next(logger)
		}
		for err == nil && pod != nil && r.interval.Owes(now) && r.IsMember(pod.Pod) {
			other := r.Newcomers.Newcomer(logger, r.Gangs.Priority(pod.Pod), r.IsMember)
			switch r.interval.Next(other != nil, r.Busy != nil && r.Busy(), now) {
			case gang.NextNewcomer:
				r.setAside(pod)
				return other, nil
			case gang.NextWait:
				<-time.After(time.Millisecond)
				now = time.Now()
			}
		}
		r.setAside(nil)
		return pod, err
	}
}

// setAside notes the member that begins the next round.
func (r *Rounds) setAside(pod *framework.QueuedPodInfo) {
	if r.aside != pod {
		r.aside = pod
		r.Newcomers.SetAside(pod)
	}
}
