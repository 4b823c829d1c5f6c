package coscheduling

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube"
)

// PreemptsAgain returns when a gang that has failed now is to be tried again to evict pods; zero where it may at once.
func PreemptsAgain(gangs *kube.Gangs, p *corev1.Pod, now time.Time) time.Time {
	round := &groupRound{queued: map[string]*framework.QueuedPodInfo{
		string(p.UID): {PodInfo: &framework.PodInfo{Pod: p}},
	}}
	(&Rounds{Cluster: Cluster{Gangs: gangs}}).waitsToPreempt(round, string(p.UID), now)
	return round.failure.Again
}

// UntilAllGo is untilAllGo.
var UntilAllGo = untilAllGo

// FailPlan records that the plan of the round under way has failed, and whether it evicts pods.
func (r *Rounds) FailPlan(evicts bool) {
	r.failed = &groupRound{failure: gang.Failure{Preempts: evicts}}
}
