package sim

import (
	"context"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/sched/core"
	"github.com/tenon-project/tenon/internal/sched/upstream/preempt"
	"github.com/tenon-project/tenon/internal/sched/upstream/ranking"
)

// profile is the outermost layer of a profile in a simulation or replay.
type profile struct {
	*ranking.Profile
	engine *engine
}

// RunScorePlugins ranks nodes with equal scores by name, where upstream chooses at random.
func (p *profile) RunScorePlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
	nodes []fwk.NodeInfo,
) ([]fwk.NodePluginScores, *fwk.Status) {
	scores, status := p.Profile.RunScorePlugins(ctx, state, pod, nodes)
	if p.engine.replay != nil {
		return scores, status // whose profile has drawn lots
	}
	for i := range scores {
		scores[i].Randomizer = p.engine.rank[scores[i].Name]
	}
	return scores, status
}

// RunFilterPluginsWithNominatedPods refuses the nodes that a recorded search did not look at.
func (p *profile) RunFilterPluginsWithNominatedPods(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
	node fwk.NodeInfo,
) *fwk.Status {
	if p.engine.replay.leavesOut(node.Node().Name) {
		return fwk.NewStatus(fwk.Unschedulable, "not looked at")
	}
	return p.Profile.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
}

// RunPermitPlugins runs the last step before a binding cycle, and records whether one follows.
func (p *profile) RunPermitPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
	node string,
) (map[string]time.Duration, *fwk.Status) {
	waits, status := p.Profile.RunPermitPlugins(ctx, state, pod, node)
	p.engine.binds = status.IsSuccess() || status.IsWait()
	for plugin := range waits {
		waits[plugin] = forever
	}
	return waits, status
}

// forever is how long a pod waits for its permit: timeouts do not expire in a simulation.
const forever = time.Duration(math.MaxInt64)

// WaitOnPermit is the first step of a binding cycle, in a goroutine of its own. It waits until the engine finishes the
// cycle.
func (p *profile) WaitOnPermit(ctx context.Context, pod *corev1.Pod) *fwk.Status {
	b := &bindingCycle{profile: p.Profile, pod: pod, ended: ctx.Done(), permit: make(chan *fwk.Status)}
	p.engine.began <- b
	select {
	case status := <-b.permit:
		return status
	case <-ctx.Done():
		return fwk.AsStatus(ctx.Err())
	}
}

// bindingCycle is a binding cycle that has begun. Its context ends with it.
type bindingCycle struct {
	profile framework.Framework
	pod     *corev1.Pod
	permit  chan *fwk.Status
	ended   <-chan struct{}
}

func (b *bindingCycle) finish(status *fwk.Status) {
	b.permit <- status
	<-b.ended
}

// begin finishes a binding cycle, or keeps it if its pod waits for a permit.
func (e *engine) begin(b *bindingCycle) {
	if !e.replay.leads() && b.profile.GetWaitingPod(b.pod.UID) == nil {
		b.finish(nil)
		return
	}
	e.waiting = append(e.waiting, b)
}

// finishDecided finishes the binding cycles whose permits are decided, one after the other: each may decide others.
func (e *engine) finishDecided(ctx context.Context) {
	for again := true; again; {
		again = false
		for i, b := range e.waiting {
			if status, decided := b.decided(ctx); decided {
				e.waiting = slices.Delete(e.waiting, i, i+1)
				b.finish(status)
				again = true
				break
			}
		}
	}
}

func (e *engine) end() {
	for _, b := range e.waiting {
		b.finish(fwk.AsStatus(context.Canceled))
	}
}

// undecided is the name of the plugin in the status of decided's own rejection.
const undecided = "simulate"

// decided returns what the permit plugins have decided about a pod that waits, and false while they have not. The
// framework has no function for that: decided rejects the pod, which has no effect after a decision. Otherwise it adds
// the pod to those that wait again.
func (b *bindingCycle) decided(ctx context.Context) (*fwk.Status, bool) {
	w := b.profile.GetWaitingPod(b.pod.UID)
	pending := map[string]time.Duration{}
	for _, plugin := range w.GetPendingPlugins() {
		pending[plugin] = forever
	}
	w.Reject(undecided, "")
	status := b.profile.WaitOnPermit(ctx, b.pod)
	if status.IsSuccess() || status.Plugin() != undecided {
		return status, true
	}
	b.profile.AddWaitingPod(b.pod, pending)
	return nil, false
}

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
	p := core.PreemptionOf(f)
	if p == nil {
		return // a profile that does not preempt
	}
	core.OrderVictims(p, e.rankOf, true)
	p.EvictBy(func(inner preempt.Evictor) preempt.Evictor { return noting{inner, e} })
}

// noting evicts victims, and notes for whom.
type noting struct {
	preempt.Evictor
	engine *engine
}

func (n noting) Evict(ctx context.Context, e preempt.Eviction) (rejected bool, err error) {
	for _, n.engine.preemptor = range e.By.Pods() { // one, or one of a gang
	}
	defer func() { n.engine.preemptor = nil }()
	return n.Evictor.Evict(ctx, e)
}

// rankOf lets the first of equal nodes by name win.
func (e *engine) rankOf(node string) int64 { return int64(e.rank[node]) }
