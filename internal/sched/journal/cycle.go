package journal

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/sched/upstream/claims"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
	"github.com/tenon-project/tenon/internal/view"
)

// Cycle sees what the scheduling cycle of a pod comes to, where a scheduler runs and where its journal is replayed. The
// scheduling loop alone uses it, apart from isCurrent.
//
// Begin comes first and End last; what comes between depends on how far the cycle gets. It is also called for trials of
// other pods in the cycle, such as members of a gang, and leaves these out.
type Cycle struct {
	// current is the UID of the pod in the cycle; nil between cycles.
	current  atomic.Pointer[types.UID]
	decision *Decision // nil between cycles
	pulled   []string  // UIDs of pods that were taken out of the queue since the last cycle
	popped   string    // UID of the pod that the queue gave out for the cycle, whose sibling may come first
	searches int       // for a node, in the cycle
	scores   []view.Score
}

// Begin begins the cycle of a pod.
func (c *Cycle) Begin(pod *corev1.Pod, seed uint32) {
	if c.popped != "" && c.popped != string(pod.UID) {
		c.pulled = append(c.pulled, c.popped)
	}
	c.decision = &Decision{
		Pod: pod.Namespace + "/" + pod.Name, UID: string(pod.UID), Profile: pod.Spec.SchedulerName, Seed: seed,
		Pulled: c.pulled,
	}
	c.pulled, c.popped, c.searches, c.scores = nil, "", 0, nil
	c.current.Store(&pod.UID)
}

// End ends the cycle. It returns nil where none has run, or where its pod was skipped: it is deleted or bound already.
func (c *Cycle) End() *Decision {
	d := c.decision
	if d == nil {
		return nil
	}
	d.Pulled = append(d.Pulled, c.pulled...)
	c.decision, c.pulled = nil, nil
	c.current.Store(nil)
	if d.Node == "" && d.Refused == "" {
		return nil
	}
	for i := range c.scores {
		if d.Best = max(d.Best, c.scores[i].Total); c.scores[i].Node != d.Node {
			continue
		}
		for _, p := range c.scores[i].Plugins {
			if p.Score != 0 {
				d.Scores = append(d.Scores, Score{p.Name, p.Score})
			}
		}
	}
	return d
}

// isCurrent reports whether a pod is in the cycle. A goroutine that ends another cycle never asks about that pod.
func (c *Cycle) isCurrent(uid types.UID) bool {
	current := c.current.Load()
	return current != nil && *current == uid
}

// Seed returns the number that decides between equal nodes in the cycle.
func (c *Cycle) Seed() uint32 {
	if c.decision == nil {
		return 0
	}
	return c.decision.Seed
}

// Begun counts a search for a node.
func (c *Cycle) Begun() { c.searches++ }

// Search returns the number of the search under way.
func (c *Cycle) Search() int { return c.searches }

// Sampled sees the nodes that a search was confined to.
func (c *Cycle) Sampled(nodes func() []string) {
	if d := c.decision; d != nil {
		if d.Samples == nil {
			d.Samples = map[int][]string{}
		}
		d.Samples[c.searches] = nodes()
	}
}

// Unranked is false: rankings choose nodes as they do where nothing is recorded.
func (c *Cycle) Unranked() bool { return false }

// Unreserving sees nothing: a cycle ends before its reservation is taken back.
func (c *Cycle) Unreserving(fwk.CycleState, *corev1.Pod) {}

// Schedule sees what inner decides about the pod of the cycle.
func (c *Cycle) Schedule(inner loop.Schedule) loop.Schedule {
	return func(ctx context.Context, f framework.Framework, state fwk.CycleState, pod *framework.QueuedPodInfo,
	) (loop.Result, error) {
		result, err := inner(ctx, f, state, pod)
		if d := c.decision; d != nil && err != nil {
			d.Refused = err.Error()
		} else if d != nil {
			d.Node = result.SuggestedHost
		}
		return result, err
	}
}

// Scored adds the scores to the decision.
func (c *Cycle) Scored(v view.Decision) {
	if d := c.decision; d != nil && d.UID == v.UID {
		c.scores, d.Feasible, d.Of = v.Scores, v.Feasible, v.Of
	}
}

// Reserved sees what was reserved for the pod of the cycle.
func (c *Cycle) Reserved(state fwk.CycleState, pod *corev1.Pod, status *fwk.Status) {
	d := c.decision
	switch {
	case d == nil || d.UID != string(pod.UID) || d.Node == "": // a trial
	case status.IsSuccess():
		d.Patch, d.Claims = placement.Read(state).Record(), promises(claims.Promised(state))
	default:
		d.Refused = status.Message()
	}
}

// Fail sees why the pod of the cycle has no node, and to which it is nominated.
func (c *Cycle) Fail(inner loop.Fail) loop.Fail {
	return func(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
		nominating *fwk.NominatingInfo, start time.Time,
	) {
		if c.isCurrent(pod.Pod.UID) {
			if c.decision.Refused == "" {
				c.decision.Refused = status.Message()
			}
			if nominating != nil {
				c.decision.Nominated = nominating.NominatedNodeName
			}
		}
		inner(ctx, f, pod, status, nominating, start)
	}
}

// Queue returns the queue that notes which pods are taken out of it beside the first.
func (c *Cycle) Queue(q podqueue.Queue) podqueue.Queue { return &pulls{q, c} }

// pulls is a queue that notes which pods are taken out of it by name.
type pulls struct {
	podqueue.Queue
	cycle *Cycle
}

// Take notes a pod that was in the queue.
func (p *pulls) Take(logger klog.Logger, pod *corev1.Pod) *framework.QueuedPodInfo {
	info := p.Queue.Take(logger, pod)
	if info != nil {
		p.cycle.pulled = append(p.cycle.pulled, string(pod.UID))
	}
	return info
}
