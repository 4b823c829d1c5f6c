package sim

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	if p == nil {
		return // a profile that does not preempt
	}
	app.OrderVictims(p, e.rankOf, true)
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

// rankOf lets the first of equal nodes by name win.
func (e *engine) rankOf(node string) int64 { return int64(e.rank[node]) }
