package coscheduling

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube"
)

// PreemptsAgain returns when a gang that has failed now is to be tried again to evict pods; zero where it may at once.
func PreemptsAgain(gangs *kube.Gangs, p *corev1.Pod, now time.Time) time.Time {
	is := &round{queued: map[string]*framework.QueuedPodInfo{
		string(p.UID): {PodInfo: &framework.PodInfo{Pod: p}},
	}}
	(&Rounds{Gangs: gangs}).waitsToPreempt(is, string(p.UID), now)
	return is.failure.Again
}

// FailPlan notes that the plan of the last round has failed, and whether it evicts pods.
func (r *Rounds) FailPlan(evicts bool) { r.failed = &round{failure: gang.Failure{Preempts: evicts}} }

// UntilAllGo is untilAllGo.
var UntilAllGo = untilAllGo

// FailAll sends the members of the round under way back whose plan has failed for the one behind the first. nodes says
// that one of them has a node.
func (r *Rounds) FailAll(ctx context.Context, first *corev1.Pod, nodes bool) {
	is := r.round
	if is.failure.UID = is.next[0]; nodes {
		is.nominated = map[string]string{is.next[0]: "n"}
	}
	r.failAll(ctx, is, string(first.UID))
}
