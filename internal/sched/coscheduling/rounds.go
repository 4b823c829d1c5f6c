package coscheduling

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/upstream/claims"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/sched/upstream/preempt"
)

// Rounds places the members of a gang, and of those that start with it, as one: the first that leaves the queue pulls
// the others out of it; all are tried on one snapshot, each beside those before it; and where enough fit they are
// reserved one after the other, with no other pod between them. Where not, nothing is reserved.
//
//	Next ──► the queue's pod, then its siblings ──► Schedule ──► plan on the snapshot, and back
//	                                                    │ fits                  │ does not fit
//	                                        the planned node, Reserve, Permit   all members fail
//
// The scheduling loop alone calls it, apart from the handler of failures.
type Rounds struct {
	cluster   *Cluster
	planner   *planner
	Evictions *Evictions

	deadlocks    deadlocks
	reservations reservations
	answers      answers

	fail   loop.Fail // what Fail wraps
	pulled int       // pods that were ever taken out of the queue with a sibling
	// share bounds the part of the loop's time that failed rounds take.
	share gang.LoopShare
	// failed is what the members of the last plan learn that failed; nil from the begin of the next cycle on.
	// PostFilter and the refusals of its members read it.
	failed *report

	mu sync.Mutex // guards the rest: failures of bindings are reported from goroutines of their own
	// current is the round under way; nil between rounds.
	current *groupRound
	// single is the UID of the pod that is tried alone; empty while a round is under way.
	single types.UID
}

// NewRounds returns what places the members of gangs in a cluster. No round is under way, and nothing is kept.
func NewRounds(c Cluster) *Rounds {
	e := NewEvictions(c)
	r := &Rounds{
		cluster: e.cluster, planner: e.planner, Evictions: e,
		deadlocks: deadlocks{cluster: e.cluster, planner: e.planner, evictions: e},
		reservations: reservations{
			cluster: e.cluster, planner: e.planner, evictions: e, kept: map[string]*reservation{},
		},
	}
	r.answers = answers{cluster: e.cluster, planner: e.planner, evictions: e, reservations: &r.reservations}
	return r
}

// Cluster is what gangs are placed in. It does not change.
type Cluster struct {
	// Gangs has the state of all gangs, Core is kube-scheduler's with its queue and profiles, Quotas the account of
	// quotas.
	Gangs  *kube.Gangs
	Core   loop.Core
	Quotas *kube.Quotas
	// Clock is that of the scheduling loop; the system's if nil.
	Clock Clock
	// Wall is the clock of the ends that pods declare; Clock if nil.
	Wall Clock
	// Changes is the log of nodes that have changed.
	Changes Changes
	// Events counts what may let a pod fit that did not.
	Events Events
	// Plugins are those of other features.
	Plugins Plugins
	// Claims has the ResourceClaims that members share; nil for none.
	Claims *claims.Sharing
}

// Clock returns the time.
type Clock interface{ Now() time.Time }

// Changes logs nodes.
type Changes interface {
	// Shown logs a node that has changed in the snapshot in use.
	Shown(node string)
}

// Events counts what may let a pod fit that did not, other than that a pod was bound.
type Events interface {
	// Count returns how many there were, Others how many of these were about something else than a pod with a node.
	// Each is counted after the cache has it, and before it wakes pods.
	Count() uint64
	Others() uint64
}

// Plugins are what gangs ask the plugins of a profile for.
type Plugins interface {
	// Trial returns a copy of the accounts of nodes.
	Trial() Trial
	// Planned marks an attempt of a plan for its quotas, Admitted one about whose quotas the caller decides.
	Planned(fwk.CycleState)
	Admitted(fwk.CycleState)
	// Preemption returns what chooses victims on a node for a profile; nil for one that does not preempt.
	Preemption(framework.Framework) *preempt.Chooser
	// Joint returns how well the GPUs are linked that pods would have together on a node, more is better, and what
	// makes an attempt on one of them choose of these; nothing where they do not ask for such GPUs.
	Joint(f framework.Framework, node string, pods []*corev1.Pod) (link int64, mark func(fwk.CycleState))
	// Usable returns what reports whether a pod on a node keeps room that one of these pods may use; nil where none
	// does.
	Usable(f framework.Framework, pods []*corev1.Pod) func(on *corev1.Pod) bool
}

// Trial is the accounts of nodes as they would be with other pods. It changes none of them.
type Trial interface {
	// Mark puts an attempt on trial.
	Mark(attempt fwk.CycleState)
	// Leave removes a pod from the account of a node, with the claims that end with it; Return takes it back.
	Leave(node, uid string)
	Return(node, uid string)
}

type (
	nextPod     = func(klog.Logger) (*framework.QueuedPodInfo, error)
	schedulePod = loop.Schedule
)

// groupRound is the members of one group on their way through the scheduling cycle.
type groupRound struct {
	*members
	// next has the UIDs of the members whose cycles have not begun, in the order in which they will.
	next []string
	// pending has the UIDs of the members whose cycles have not ended.
	pending map[string]bool
	// placed has the UIDs of the members that are reserved and wait for a permit.
	placed []string
	// events is how many events were counted before the snapshot of the plan was taken.
	events uint64
	// outcome is what the plan came to. Its planned is nil before the plan is made. In the cycles of the members its
	// failure becomes that of the first member that does not fit; of these a planned one, if one fails.
	outcome
	// recalled is set where no plan was made, as one for a group of equal shape has failed.
	recalled bool
	// lacksResources is set where no plan was made, as the cluster lacks what a PodGroup says must be free before.
	lacksResources bool
}

// Next returns the siblings of a pod after it.
func (r *Rounds) Next(next nextPod) nextPod {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		if round := r.current; round != nil && len(round.next) > 0 {
			return round.take(), nil
		}
		// The last round has ended, or its remaining members were deleted.
		r.conclude() // a member that is deleted meanwhile has no cycle
		r.reservations.resume(logger)
		r.reservations.publish(logger)
		pod, err := next(logger)
		if err != nil || pod == nil {
			return pod, err
		}
		round := r.begin(logger, pod)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.current, r.single = round, pod.Pod.UID; round == nil {
			return pod, nil
		}
		r.single = ""
		return round.take(), nil
	}
}

// begin pulls the siblings of a pod; nil for a pod that is tried alone.
func (r *Rounds) begin(logger klog.Logger, pod *framework.QueuedPodInfo) *groupRound {
	plan, all, refused := r.cluster.Gangs.Begin(pod.Pod)
	uid := string(pod.Pod.UID)
	r.failed = nil
	m := &members{plan: plan, pods: map[string]*framework.QueuedPodInfo{uid: pod}}
	round := &groupRound{members: m, pending: map[string]bool{}, events: r.cluster.Events.Count()}
	switch {
	case refused.Code != why.None:
		all = []*corev1.Pod{pod.Pod}
	case plan == nil:
		return nil
	}
	for _, sibling := range all {
		uid := string(sibling.UID)
		if m.pods[uid] == nil {
			if m.pods[uid] = r.cluster.Core.Queue().Take(logger, sibling); m.pods[uid] == nil {
				continue
			}
			r.pulled++
		}
		round.next, round.pending[uid] = append(round.next, uid), true
	}
	r.share.Begin(r.cluster.Clock.Now())
	return round
}

// Share returns the queue's pods in its order. But where failed rounds have used up their share of the scheduling loop,
// see gang.LoopShare, the first pod that starts alone comes first, if its priority is not lower than that of all
// members that wait.
func (r *Rounds) Share(next nextPod) nextPod {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		now := r.cluster.Clock.Now()
		r.share.End(r.failed != nil && !r.failed.preempts, now)
		if r.share.IsSpent(now) {
			if pod := r.popAlone(logger); pod != nil {
				return pod, nil
			}
		}
		return next(logger)
	}
}

// popAlone takes the first pod that starts alone out of the queue. It returns nil where there is none, or where the
// queue's first pod is not of a gang, or is of one with a higher priority.
func (r *Rounds) popAlone(logger klog.Logger) *framework.QueuedPodInfo {
	var first *corev1.Pod
	// A member with a higher priority than the pod comes first all the same.
	highest := int32(math.MinInt32) // priority of the members
	for _, pod := range r.cluster.Core.Queue().PodsInActiveQ() {
		switch {
		case !r.cluster.Gangs.Alone(pod):
			highest = max(highest, r.cluster.Gangs.Priority(pod))
		case first == nil || cmp.Or(cmp.Compare(r.cluster.Gangs.Priority(first), r.cluster.Gangs.Priority(pod)),
			r.cluster.Gangs.Compare(pod, first)) < 0:
			first = pod
		}
	}
	if first == nil || corev1helpers.PodPriority(first) < highest {
		return nil
	}
	return r.cluster.Core.Queue().Take(logger, first)
}

// Pulled returns how many pods were ever taken out of the queue with a sibling, and of how many the cycles have yet to
// begin.
func (r *Rounds) Pulled() (all, left int) {
	if r.current != nil {
		left = len(r.current.next)
	}
	return r.pulled, left
}

// take returns the member whose cycle begins now.
func (round *groupRound) take() *framework.QueuedPodInfo {
	uid := round.next[0]
	round.next = round.next[1:]
	return round.pods[uid]
}

// Planned returns the node that is tried first for a pod, "" without one: that of the attempt under way, else of the
// plan.
func (r *Rounds) Planned(pod *corev1.Pod) string {
	uid := string(pod.UID)
	switch {
	case r.planner.attempting != nil:
		return r.planner.attempting.planned[uid].SuggestedHost
	case r.current != nil:
		return r.current.planned[uid].SuggestedHost
	}
	return ""
}

// Alone reports whether a pod starts without others: for one member of a gang victims would be evicted in vain.
func (r *Rounds) Alone(pod *corev1.Pod) bool { return r.cluster.Gangs.Alone(pod) }

// IsMember reports whether a pod is of a gang, started or not.
func (r *Rounds) IsMember(pod *corev1.Pod) bool { return r.cluster.Gangs.GangOf(pod) != "" }

// Schedule is the cycle of one pod:
//
//   - a pod that starts alone is placed, see scheduleAlone;
//   - a member whose gang may not be tried is refused;
//   - for the first member of a round the plan is made; if it fails, the round ends in this cycle;
//   - each member of a round that fits gets its planned node, if that still takes it, else another one. A member that
//     the plan does without has its cycle behind all planned ones: before them it would take their room.
func (r *Rounds) Schedule(schedule schedulePod) schedulePod {
	r.planner.schedule = schedule
	return func(ctx context.Context, f framework.Framework, state fwk.CycleState,
		pod *framework.QueuedPodInfo,
	) (loop.Result, error) {
		round, uid := r.current, string(pod.Pod.UID)
		r.Evictions.Forget() // what is remembered about victims holds for one pod and one snapshot
		defer r.planner.domains.release(f)
		if len(r.reservations.suspended) == 0 { // for another member of the round
			r.reservations.suspend(pod.Pod, round)
		}
		switch {
		case round == nil || !round.pending[uid]:
			r.deadlocks.resolveIfRequested(ctx)
			result, err := r.scheduleAlone(ctx, f, state, pod)
			if err != nil {
				r.preemptRest(ctx, pod, err)
			} else {
				r.cluster.Gangs.Overtake(pod.Pod)
				r.reservations.noteStart(pod.Pod)
			}
			return result, err
		case round.plan == nil:
			return unplaced(state, r.refusal(pod.Pod))
		case round.planned == nil && !r.makePlan(ctx, round, uid):
			return r.concludeFailedPlan(ctx, f, state, pod, round)
		case round.unfit[uid] != nil && slices.ContainsFunc(round.next, round.isPlanned):
			return unplaced(state, round.unfit[uid])
		}
		if err := r.planner.confineToPlan(f, state, &round.outcome, uid); err != nil {
			return unplaced(state, err)
		}
		if round.laterFirst {
			claims.LaterFirst(state)
		}
		result, err := schedule(ctx, f, state, anywhere(pod))
		if err != nil && r.planner.widen(f, &round.outcome, uid) {
			result, err = schedule(ctx, f, state, anywhere(pod))
		}
		if was := round.planned[uid]; err == nil && was.SuggestedHost == result.SuggestedHost {
			result = was
		}
		return result, err
	}
}

// Fail notes which members of a round do not fit after all.
func (r *Rounds) Fail(fail loop.Fail) loop.Fail {
	r.fail = fail
	return func(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
		nominating *fwk.NominatingInfo, start time.Time,
	) {
		uid := string(pod.Pod.UID)
		r.mu.Lock()
		round, single := r.current, r.single == pod.Pod.UID
		// The first planned member that fails is the one that the report names.
		mine := round != nil && round.pending[uid]
		if mine && (round.failure.UID == "" || round.isPlanned(uid) && !round.isPlanned(round.failure.UID)) {
			round.failure = gang.Failure{UID: uid, Cause: causeOf(f, pod.Pod, status.AsError())}
		}
		r.mu.Unlock()
		evict := r.Evictions.takeDue(pod.Pod.UID)
		fail(ctx, f, pod, status, nominating, start)
		if evict != nil {
			evict()
		}
		switch {
		case mine:
			r.end(uid)
		case single:
			now := r.cluster.Clock.Now()
			r.cluster.Gangs.Update(func(s *gang.State) gang.Effects { return s.Fail(uid, why.Finding{}, now) })
		}
	}
}

// Describe records what was reported of a pod that was refused: if the plan of a gang has failed for it, the other
// members name it with the same text.
func (r *Rounds) Describe(pod *corev1.Pod, cause why.Finding) {
	if !r.cluster.Gangs.IsMember(pod) {
		return
	}
	r.cluster.Gangs.Update(func(s *gang.State) gang.Effects { return s.Describe(string(pod.UID), cause) })
}

// Waits is called when a reserved pod waits for a permit. A pod that was tried alone concludes a round of its own.
func (r *Rounds) Waits(pod *corev1.Pod) {
	uid := string(pod.UID)
	if round := r.current; round != nil && round.pods[uid] != nil {
		if round.pending[uid] {
			round.placed = append(round.placed, uid)
			r.end(uid)
		}
		return
	}
	one, now := []string{uid}, r.cluster.Clock.Now()
	r.cluster.Gangs.Update(func(s *gang.State) gang.Effects { return s.Conclude(one, one, gang.Failure{}, now) })
}

// end notes that the cycle of a member of the round has ended: it waits for its permit, or has failed. The last one
// ends the round.
func (r *Rounds) end(uid string) {
	r.mu.Lock()
	delete(r.current.pending, uid)
	left := len(r.current.pending)
	r.mu.Unlock()
	if left == 0 {
		r.conclude()
	}
}

// conclude ends the round under way, if there is one, and lets the gangs' state decide: members that are reserved are
// bound or released. Members whose cycles have not begun have none.
func (r *Rounds) conclude() {
	r.mu.Lock()
	round := r.current
	r.current = nil
	r.mu.Unlock()
	if round != nil && round.plan != nil {
		r.cluster.Gangs.Update(func(s *gang.State) gang.Effects {
			return s.Conclude(round.plan.Members, round.placed, round.failure, r.cluster.Clock.Now())
		})
	}
}
