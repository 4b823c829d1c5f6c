package core

import (
	"cmp"
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/tenon-project/tenon/internal/kube"
)

// OrderVictims makes a function decide where upstream's preemption leaves the choice between nodes to chance, the node
// with the highest rank wins, and names decide between pods. With all, every node is looked at, whatever it costs.
func OrderVictims(p *defaultpreemption.DefaultPreemption, rank func(node string) int64, all bool) {
	p.MoreImportantPod = moreImportant
	p.Evaluator.Interface = victims{p.Evaluator.Interface, rank, all}
}

// moreImportant reports whether a is spared before b; the name decides between equals.
func moreImportant(a, b *corev1.Pod) bool {
	return cmp.Or(
		kube.VictimOf(b).Compare(kube.VictimOf(a)), strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name),
	) < 0
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
