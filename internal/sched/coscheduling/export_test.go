package coscheduling

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/kube"
)

// PreemptsAgain returns when a gang that has failed now is to be tried again to evict pods; zero where it may at once.
func PreemptsAgain(gangs *kube.Gangs, p *corev1.Pod, now time.Time) time.Time {
	return NewEvictions(Cluster{Gangs: gangs}).preemptsAt(p, now)
}

// UntilAllGo is untilAllGo.
var UntilAllGo = untilAllGo

// FailPlan records that the plan of the round under way has failed, and whether it evicts pods.
func (r *Rounds) FailPlan(evicts bool) {
	r.failed = &report{groupRound: &groupRound{members: &members{}}, nomination: nomination{preempts: evicts}}
}
