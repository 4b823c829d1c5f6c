package app

import (
	"cmp"
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

// OrderVictims makes a function decide where upstream's preemption leaves the choice between nodes to chance, the node
// with the highest rank wins, and names decide between pods. With all, every node is looked at, whatever it costs.
func OrderVictims(p *defaultpreemption.DefaultPreemption, rank func(node string) int64, all bool) {
	p.MoreImportantPod = moreImportant
	p.Evaluator.Interface = victims{p.Evaluator.Interface, rank, all}
}

// moreImportant reports whether a is spared before b: a higher priority, an earlier start, then the name.
func moreImportant(a, b *corev1.Pod) bool {
	return cmp.Or(
		cmp.Compare(corev1helpers.PodPriority(b), corev1helpers.PodPriority(a)), started(a).Compare(started(b)),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
	) < 0
}

// started is the time from which a pod runs; one that is not bound yet starts after all others.
func started(p *corev1.Pod) time.Time {
	if p.Status.StartTime == nil {
		return time.Unix(1<<40, 0)
	}
	return p.Status.StartTime.Time
}

// victims is upstream's choice of the node to preempt on, with one more rule at its end.
type victims struct {
	preemption.Interface
	rank func(node string) int64
	all  bool
}

// GetOffsetAndNumCandidates begins with the first node.
func (v victims) GetOffsetAndNumCandidates(nodes int32) (offset, candidates int32) {
	if v.all {
		return 0, nodes
	}
	_, candidates = v.Interface.GetOffsetAndNumCandidates(nodes)
	return 0, candidates
}

// OrderedScoreFuncs returns the scheduler's rules, and then the rank.
func (v victims) OrderedScoreFuncs(
	ctx context.Context,
	victimsByNode map[string]*extenderv1.Victims,
) []func(node string) int64 {
	return append(v.Interface.OrderedScoreFuncs(ctx, victimsByNode), v.rank)
}
