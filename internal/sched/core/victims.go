package core

import (
	"cmp"
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/upstream/preempt"
)

// OrderVictims makes a function decide where upstream's preemption leaves the choice between nodes to chance, the node
// with the highest rank wins, and names decide between pods. With all, every node is looked at, whatever it costs.
func OrderVictims(p *preempt.Chooser, rank func(node string) int64, all bool) {
	p.OrderBy(moreImportant)
	p.Choose(func(inner preempt.Choice) preempt.Choice { return victims{inner, rank, all} })
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
	preempt.Choice
	rank func(node string) int64
	all  bool
}

// Sample begins with the first node.
func (v victims) Sample(nodes int32) (first, enough int32) {
	if v.all {
		return 0, nodes
	}
	_, enough = v.Choice.Sample(nodes)
	return 0, enough
}

// Ranks returns the scheduler's rules, and then the rank.
func (v victims) Ranks(ctx context.Context, byNode map[string]*extenderv1.Victims) []func(node string) int64 {
	return append(v.Choice.Ranks(ctx, byNode), v.rank)
}
