package sim

import (
	"cmp"
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/sched/app"
)

// stepClock moves on by a millisecond with each look at it: what happens later has a later time, and no waiting time
// passes. Its timers are never used. Not safe for concurrent use.
type stepClock struct {
	clock.RealClock
	now time.Time
}

func (c *stepClock) Now() time.Time {
	c.now = c.now.Add(time.Millisecond)
	return c.now
}

func (c *stepClock) Since(t time.Time) time.Duration { return c.now.Sub(t) }

// orderVictims lets names decide where upstream's preemption leaves the choice to chance, looks at all nodes, and notes
// for whom pods are deleted.
func (e *engine) orderVictims(f framework.Framework) {
	p := app.PreemptionOf(f)
	p.MoreImportantPod = moreImportant
	p.Evaluator.Interface = victims{p.Evaluator.Interface, e.rank}
	preempt := p.Executor.PreemptPod
	p.Executor.PreemptPod = func(ctx context.Context, c preemption.Candidate, preemptor preemption.ExecutorPreemptor,
		victim *corev1.Pod, plugin string,
	) error {
		for _, e.preemptor = range preemptor.Pods() { // one, or one of a gang
		}
		defer func() { e.preemptor = nil }()
		return preempt(ctx, c, preemptor, victim, plugin)
	}
}

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
	rank map[string]int // of the nodes, the first by name highest
}

// GetOffsetAndNumCandidates asks for all nodes, from the first on.
func (victims) GetOffsetAndNumCandidates(nodes int32) (offset, candidates int32) { return 0, nodes }

// OrderedScoreFuncs returns the scheduler's rules, and then the first name.
func (v victims) OrderedScoreFuncs(
	ctx context.Context,
	victimsByNode map[string]*extenderv1.Victims,
) []func(node string) int64 {
	return append(
		v.Interface.OrderedScoreFuncs(ctx, victimsByNode),
		func(node string) int64 { return int64(v.rank[node]) },
	)
}
