package coscheduling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
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
	Cluster

	schedule schedulePod                // kube-scheduler's own; set by Schedule
	fail     scheduler.FailureHandlerFn // what Fail wraps
	pulled   int                        // pods that were ever taken out of the queue with a sibling
	share    gang.LoopShare
	// failed is the last round whose plan failed; nil from the begin of the next cycle on. PostFilter and the refusals
	// of its members read it.
	failed *groupRound
	// preempting is the preemption under way; nil outside of one. The profiles' rules of eligibility read it.
	preempting *preemption
	// mayWhole knows whether all of a gang's group may be evicted, by UID of the pod that preempts, and gang. It is
	// cleared in each cycle; candidates are looked at in parallel.
	mayWhole sync.Map

	domains      domains
	reservations reservations
	deadlocks    deadlocks
	answers      answers

	mu sync.Mutex // guards the rest: failures of bindings are reported from goroutines of their own
	// current is the round under way; nil between rounds.
	current *groupRound
	// single is the UID of the pod that is tried alone; empty while a round is under way.
	single types.UID
	// evicting has the nodes for which victims are about to be evicted, by UID of members, until the informer has seen
	// that all victims end.
	evicting map[string]string
	// evict has what evicts victims when the failure of a pod is written, by UID of the pod whose cycle is under way.
	evict map[types.UID]func()
}

// Cluster is what gangs are placed in. The application fills it in before the first cycle; it does not change then.
type Cluster struct {
	Gangs  *kube.Gangs
	Core   *scheduler.Scheduler
	Quotas *kube.Quotas
	// Shown is called when a node has changed in the snapshot in use.
	Shown func(node string)
	// Events counts what may let a pod fit that did not, other than that a pod was bound. Each is counted after the
	// cache has it, and before it wakes pods.
	Events func() uint64
	// Trial returns a copy of the accounts of nodes.
	Trial func() Trial
	// Admitted marks an attempt about whose quotas the caller decides.
	Admitted func(fwk.CycleState)
	// Preemption returns what chooses victims on a node for a profile; nil for one that does not preempt.
	Preemption func(framework.Framework) *defaultpreemption.DefaultPreemption
	// Joint returns how well the GPUs are linked that pods would have together on a node, more is better, and what
	// makes an attempt on one of them choose of these; nothing where they do not ask for such GPUs. nil where none are
	// known.
	Joint func(f framework.Framework, node string, pods []*corev1.Pod) (link int64, mark func(fwk.CycleState))
}

// Trial is the accounts of nodes as they would be with other pods. It changes none of them.
type Trial interface {
	// Mark puts an attempt on trial.
	Mark(attempt fwk.CycleState)
	// Take removes a pod from the account of a node, Give returns it.
	Take(node, uid string)
	Give(node, uid string)
}

type (
	nextPod     = func(klog.Logger) (*framework.QueuedPodInfo, error)
	schedulePod = func(context.Context, framework.Framework, fwk.CycleState,
		*framework.QueuedPodInfo) (scheduler.ScheduleResult, error)
)

// groupRound is the members of one group on their way through the scheduling cycle.
type groupRound struct {
	// plan is what the gangs' state says may be tried together; nil if no member may be tried.
	plan *gang.Plan
	// queued has the members that were taken out of the queue, by UID. The value is nil for a member of the plan that
	// was not in the queue.
	queued map[string]*framework.QueuedPodInfo
	// next has the UIDs of the queued members whose cycles have not begun, in the order in which they will.
	next []string
	// pending has the UIDs of the queued members whose cycles have not ended.
	pending map[string]bool
	// placed has the UIDs of the members that are reserved and wait for a permit.
	placed []string
	// events is how many events were counted before the snapshot of the plan was taken.
	events uint64

	// planned has the node of each member that fits, by UID; nil before the plan is made. Before a member is tried it
	// has the node that is tried first.
	planned map[string]scheduler.ScheduleResult
	// places are the domains in which members are tried that may not be anywhere, by UID.
	places map[string]*place
	// packing has what the members ask for, and the nodes that may take them. nil before the plan is made, and if all
	// members ask for the same.
	packing *gang.Packing
	// unfit has why members do not fit that the plan does without, by UID.
	unfit map[string]error
	// failure is the member for which the plan failed, or the first that did not fit in its cycle; of these a planned
	// one, if one fails. Its UID is empty while all goes well.
	failure gang.Failure
	// cause is why that member does not fit. nil if no member was tried on the nodes.
	cause error

	// order is how members are tried first: the key of what is known of groups of equal shape.
	order []string
	// recalled is set where no plan was made, as one for a group of equal shape has failed.
	recalled bool

	// asked has the plugins whose events concern a member that did not fail itself, by UID, after a failed plan.
	asked map[string]sets.Set[string]
	// nominated has the nodes that members of a failed plan are nominated to, by UID: victims are evicted there, or the
	// nodes are kept for the group.
	nominated map[string]string
	// kept is set where these are the nominations from before: victims have yet to end.
	kept bool
	// awaits is set where terminating pods leave enough room on these nodes, so that no pod is evicted.
	awaits bool
}

// Next returns the siblings of a pod after it.
func (r *Rounds) Next(next nextPod) nextPod {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		if round := r.current; round != nil && len(round.next) > 0 {
			return round.take(), nil
		}
		r.conclude() // a member that is deleted meanwhile has no cycle
		r.resumeReservations(logger)
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
	plan, members, refused := r.Gangs.Begin(pod.Pod)
	uid := string(pod.Pod.UID)
	r.failed = nil
	round := &groupRound{plan: plan, queued: map[string]*framework.QueuedPodInfo{uid: pod}, pending: map[string]bool{}}
	round.events = r.Events()
	switch {
	case refused.Code != why.None:
		members = []*corev1.Pod{pod.Pod}
	case plan == nil:
		return nil
	}
	for _, m := range members {
		uid := string(m.UID)
		if round.queued[uid] == nil {
			if round.queued[uid] = r.Core.SchedulingQueue.PopSpecificPod(logger, m); round.queued[uid] == nil {
				continue
			}
			r.pulled++
		}
		round.next, round.pending[uid] = append(round.next, uid), true
	}
	r.share.Begin(time.Now())
	return round
}

// Pulled returns how many pods were ever taken out of the queue with a sibling, and of how many the cycles have yet to
// begin.
func (r *Rounds) Pulled() (all, left int) {
	if r.current != nil {
		left = len(r.current.next)
	}
	return r.pulled, left
}

func (round *groupRound) take() *framework.QueuedPodInfo {
	uid := round.next[0]
	round.next = round.next[1:]
	return round.queued[uid]
}

// Planned returns the node that the plan under way has for a pod, "" without one.
func (r *Rounds) Planned(pod *corev1.Pod) string {
	if round := r.current; round != nil {
		return round.planned[string(pod.UID)].SuggestedHost
	}
	return ""
}

// Alone reports whether a pod starts without others: for one member of a gang victims would be evicted in vain.
func (r *Rounds) Alone(pod *corev1.Pod) bool { return r.Gangs.Alone(pod) }

// IsMember reports whether a pod is of a gang, started or not.
func (r *Rounds) IsMember(pod *corev1.Pod) bool { return r.Gangs.GangOf(pod) != "" }

// PostFilter returns what becomes of the nomination of a member that did not fit.
func (r *Rounds) PostFilter(pod *corev1.Pod) (*fwk.PostFilterResult, *fwk.Status) {
	round, text := r.failed, "the pod starts with others"
	if round == nil || round.queued[string(pod.UID)] == nil {
		status := fwk.NewStatus(fwk.Unschedulable, notEligible+text)
		if name := r.Gangs.RankOf(pod).Name; pod.Status.NominatedNodeName == "" || r.reserves(name) {
			return nil, status
		}
		// the pod's group starts another way now
		r.Quotas.Update(pod.UID, func(a *quota.Account) { a.Withdraw(string(pod.UID)) })
		return framework.NewPostFilterResultWithNominatedNode(""), status
	}
	node := round.nominated[string(pod.UID)]
	if node == "" {
		r.Quotas.Update(pod.UID, func(a *quota.Account) { a.Withdraw(string(pod.UID)) })
	} else {
		r.Quotas.Update(pod.UID, func(a *quota.Account) { a.Nominate(string(pod.UID)) })
	}
	result := framework.NewPostFilterResultWithNominatedNode(node)
	switch {
	case round.kept, round.awaits && node != "":
		return result, fwk.NewStatus(fwk.Unschedulable, awaitsTerminating)
	case node != "":
		return result, nil
	}
	return result, fwk.NewStatus(fwk.Unschedulable, notEligible+text)
}

const notEligible = "preemption: not eligible: "

// Schedule is the cycle of one pod:
//
//   - a pod that starts alone is placed, see scheduleAlone;
//   - a member whose gang may not be tried is refused;
//   - for the first member of a round the plan is made; if it fails, the round ends in this cycle;
//   - each member of a round that fits gets its planned node, if that still takes it, else another one. A member that
//     the plan does without has its cycle behind all planned ones: before them it would take their room.
func (r *Rounds) Schedule(schedule schedulePod) schedulePod {
	r.schedule = schedule
	return func(ctx context.Context, f framework.Framework, state fwk.CycleState,
		pod *framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
		round, uid := r.current, string(pod.Pod.UID)
		r.mayWhole.Clear()
		defer r.release(f)
		if len(r.reservations.suspended) == 0 { // for another member of the round
			r.suspendReservations(pod.Pod)
		}
		switch {
		case round == nil || !round.pending[uid]:
			if r.deadlocks.requested.Swap(false) {
				r.resolve(ctx)
			}
			result, err := r.scheduleAlone(ctx, f, state, pod)
			if err != nil {
				r.preemptRest(ctx, pod, err)
			} else {
				r.Gangs.Overtake(pod.Pod)
			}
			return result, err
		case round.plan == nil:
			return r.refuse(state, pod)
		case round.planned == nil && !r.makePlan(ctx, round, uid):
			return r.concludeFailedPlan(ctx, f, state, pod, round)
		case round.unfit[uid] != nil && slices.ContainsFunc(round.next, round.isPlanned):
			return unplaced(state, round.unfit[uid])
		}
		if err := r.reserve(f, state, round, uid); err != nil {
			return unplaced(state, err)
		}
		result, err := schedule(ctx, f, state, anywhere(pod))
		if err != nil && r.widen(f, round, uid) {
			result, err = schedule(ctx, f, state, anywhere(pod))
		}
		if was := round.planned[uid]; err == nil && was.SuggestedHost == result.SuggestedHost {
			result = was
		}
		return result, err
	}
}

// concludeFailedPlan ends the round of a failed plan in the cycle of its first member: it looks for pods to evict, else
// for nodes to keep, and sends the other members back to the queue. It returns why the member itself does not fit.
func (r *Rounds) concludeFailedPlan(ctx context.Context, f framework.Framework, state fwk.CycleState,
	pod *framework.QueuedPodInfo, round *groupRound,
) (scheduler.ScheduleResult, error) {
	uid := string(pod.Pod.UID)
	r.evictAfter(pod.Pod, r.preempt(ctx, round, uid))
	r.keepNodes(ctx, round, uid)
	r.learn(ctx, round, uid)
	r.failRound(ctx, round, uid)
	switch {
	case uid != round.failure.UID || round.cause == nil || round.failure.Tried != (gang.Tried{}):
		return r.refuse(state, pod)
	case round.recalled:
		return unplaced(state, round.cause)
	}
	// The member is tried once more, on the snapshot without its siblings: PostFilter and the report of the failure
	// read the state of the attempt. If it fits by now, an event says so, and concerns the plugins that refused it.
	if _, err := r.schedule(ctx, f, state, pod); err != nil {
		return scheduler.ScheduleResult{}, err
	}
	return unplaced(state, round.cause)
}

func (round *groupRound) isPlanned(uid string) bool { return round.unfit[uid] == nil }

// refuse returns why a member may not start.
func (r *Rounds) refuse(state fwk.CycleState, pod *framework.QueuedPodInfo) (scheduler.ScheduleResult, error) {
	return unplaced(state, r.refusal(pod.Pod))
}

// unplaced returns an error. No plugin is asked for victims, as none has looked at the pod.
func unplaced(state fwk.CycleState, err error) (scheduler.ScheduleResult, error) {
	if s, ok := state.(*framework.CycleState); ok {
		s.SetSkipAllPostFilterPlugins(true)
	}
	return scheduler.ScheduleResult{}, err
}

func (r *Rounds) refusal(pod *corev1.Pod) error {
	return r.refusalOf(pod, kube.Ask(r.Gangs, func(s *gang.State) gang.Refusal { return s.Why(string(pod.UID)) }))
}

func (r *Rounds) refusalOf(pod *corev1.Pod, because gang.Refusal) error {
	fit := refused(pod, because)
	if r.failed != nil {
		fit.Diagnosis.UnschedulablePlugins = sets.New(Name).Union(r.failed.asked[string(pod.UID)])
	}
	return fit
}

func refused(pod *corev1.Pod, because gang.Refusal) *framework.FitError {
	status := fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(&refusal{because})
	status.SetPlugin(Name)
	fit := &framework.FitError{Pod: pod, Diagnosis: framework.Diagnosis{
		NodeToStatus: framework.NewDefaultNodeToStatus(), UnschedulablePlugins: sets.New(Name),
		PreFilterMsg: status.Message(),
	}}
	fit.Diagnosis.NodeToStatus.SetAbsentNodesStatus(status)
	return fit
}

// makePlan tries the members, each on a snapshot with those before it, until the group cannot start any more. If the
// members differ, they are tried in several orders, and then on all nodes that a search finds for them. Members that
// the plan does without come last. In the end the snapshot is as it was.
func (r *Rounds) makePlan(ctx context.Context, round *groupRound, current string) (fits bool) {
	round.planned = map[string]scheduler.ScheduleResult{}
	if r.lacks(round, current) || r.recall(ctx, round, current) {
		return false
	}
	round.packing = r.packing(ctx, round, append([]string{current}, round.next...))
	if len(round.plan.DomainRequests) > 0 {
		return r.planInDomains(round, current, func() bool { return r.planMembers(ctx, round, current) })
	}
	return r.planMembers(ctx, round, current)
}

// planMembers is makePlan in the domains that are chosen. The members of a plan have their cycles in the order in which
// they fit, but for the current one, whose cycle is under way. If none is found, the round has the failure of the
// members in their own order.
func (r *Rounds) planMembers(ctx context.Context, round *groupRound, current string) (fits bool) {
	own := append([]string{current}, round.next...)
	var failed groupRound
	for _, order := range round.orders(own) {
		if r.tryAll(ctx, round, order, nil) && r.followOrder(ctx, round, current, order) {
			return true
		}
		if round.cause == nil && round.failure.UID != "" { // a member cannot be tried anywhere
			return false
		}
		if slices.Equal(order, own) {
			failed = *round
		}
	}
	if r.searchNodes(ctx, round, current, failed.cause) {
		return true
	}
	round.failure, round.cause, round.unfit = failed.failure, failed.cause, failed.unfit
	return false
}

// followOrder lets the cycles of a plan's members be in the order in which they were tried, the planned ones first. If
// the current member was not tried first, all are tried once more on their nodes, as their CPUs and devices may depend
// on the order.
func (r *Rounds) followOrder(ctx context.Context, round *groupRound, current string, order []string) (fits bool) {
	first := order[0]
	order = slices.Clone(order)
	slices.SortStableFunc(order, func(a, b string) int {
		if c := trueFirst(round.isPlanned(a), round.isPlanned(b)); c != 0 || !round.isPlanned(a) {
			return c
		}
		return trueFirst(a == current, b == current)
	})
	planned := maps.Clone(round.planned)
	if round.isPlanned(current) && order[0] != first && !r.tryAll(ctx, round, order, planned) {
		return false
	}
	for uid, was := range planned {
		if round.planned[uid].SuggestedHost == was.SuggestedHost {
			round.planned[uid] = was
		}
	}
	round.next = slices.DeleteFunc(order, func(uid string) bool { return uid == current })
	round.failure, round.cause = gang.Failure{}, nil
	return true
}

// trueFirst puts what is true before what is not.
func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// tryAll tries members in order, first on these nodes; if there are none, on those that the members are nominated to.
func (r *Rounds) tryAll(ctx context.Context, round *groupRound, order []string,
	nodes map[string]scheduler.ScheduleResult,
) (fits bool) {
	clear(round.planned)
	round.unfit, round.failure, round.cause = map[string]error{}, gang.Failure{}, nil
	for uid, pod := range round.queued {
		if pod != nil {
			round.planned[uid] = scheduler.ScheduleResult{SuggestedHost: pod.Pod.Status.NominatedNodeName}
		}
	}
	maps.Copy(round.planned, nodes)
	a := r.attempt(ctx, round)
	defer a.rollback(0)
	failed, have := round.plan.Try(order, func(uid string) bool {
		_, err := a.try(uid)
		if err != nil {
			round.cause, round.unfit[uid] = err, err
			delete(round.planned, uid)
		}
		return err == nil
	})
	if failed == "" {
		return true
	}
	round.failure = gang.Failure{UID: failed, Have: have, Cause: why.Finding{
		Reason: why.Reason{Code: why.SchedulingGate}, Detail: "it is held back by a gate, or has only just come",
	}}
	if pod := round.queued[failed]; pod != nil {
		a.nameMembers(round.cause)
		a.rollback(0) // what is free is what nodes have without the members
		round.failure.Cause = causeOf(a.profile(failed), pod.Pod, round.cause)
	}
	return false
}

func causeOf(f framework.Framework, pod *corev1.Pod, err error) why.Finding {
	findings, nodes := refusals.Attempt(f, pod, fwk.NewStatus(fwk.Unschedulable).WithError(err))
	if len(findings) == 0 {
		return why.Finding{Detail: err.Error()}
	}
	return why.Finding{Reason: why.Reason{Code: why.Root(findings).Code}, Detail: why.Text(findings, nodes)}
}

// failRound reports that a plan has failed, and sends its members back to the queue, apart from the current one, whose
// cycle is under way: none of the others gets a cycle. The nominated nodes of members are written meanwhile, several at
// a time: no pod may be tried before.
func (r *Rounds) failRound(ctx context.Context, round *groupRound, current string) {
	r.conclude()
	r.failed = round
	round.ask(current)
	f := r.Core.Profiles[round.queued[current].Pod.Spec.SchedulerName]
	f.Parallelizer().Until(ctx, len(round.next), func(i int) { r.requeue(ctx, round, round.next[i]) }, Name)
}

func (r *Rounds) requeue(ctx context.Context, round *groupRound, uid string) {
	pod := round.queued[uid]
	err := r.refusal(pod.Pod)
	if uid == round.failure.UID && round.cause != nil {
		err = round.cause
	}
	f := r.Core.Profiles[pod.Pod.Spec.SchedulerName]
	var nominating *fwk.NominatingInfo
	if result, _ := r.PostFilter(pod.Pod); result != nil {
		nominating = result.NominatingInfo
	}
	r.fail(ctx, f, pod, fwk.NewStatus(fwk.Unschedulable).WithError(err), nominating, time.Now())
}

// ask chooses one member of each kind, beside the one that failed, to be asked about events by the plugins that refused
// that one: what helps another kind may make room for it.
func (round *groupRound) ask(current string) {
	var cause *framework.FitError
	if !errors.As(round.cause, &cause) {
		return
	}
	round.asked = map[string]sets.Set[string]{}
	if round.failure.Tried != (gang.Tried{}) { // who failed is refused for its gang
		round.asked[round.failure.UID] = cause.Diagnosis.UnschedulablePlugins
	}
	kinds := map[string]bool{demands(round.queued[round.failure.UID].Pod): true}
	for _, uid := range append([]string{current}, round.next...) {
		if kind := demands(round.queued[uid].Pod); !kinds[kind] {
			kinds[kind] = true
			round.asked[uid] = cause.Diagnosis.UnschedulablePlugins
		}
	}
}

// demands is what decides which events may help a pod. Members of one Job differ in names and variables alone.
func demands(pod *corev1.Pod) string {
	s := pod.Spec
	needs := []any{s.NodeSelector, s.Affinity, s.Tolerations, s.TopologySpreadConstraints, s.Resources}
	for _, containers := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range containers {
			needs = append(needs, containers[i].Resources, containers[i].Ports)
		}
	}
	text, err := json.Marshal(needs)
	if err != nil {
		panic(fmt.Sprintf("coscheduling: pods always encode: %v", err))
	}
	return string(text)
}

// Fail notes which members of a round do not fit after all.
func (r *Rounds) Fail(fail scheduler.FailureHandlerFn) scheduler.FailureHandlerFn {
	r.fail = fail
	return func(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
		nominating *fwk.NominatingInfo, start time.Time,
	) {
		uid := string(pod.Pod.UID)
		r.mu.Lock()
		round, single := r.current, r.single == pod.Pod.UID
		mine := round != nil && round.pending[uid]
		if mine && (round.failure.UID == "" || round.isPlanned(uid) && !round.isPlanned(round.failure.UID)) {
			round.failure = gang.Failure{UID: uid, Cause: causeOf(f, pod.Pod, status.AsError())}
		}
		evict := r.evict[pod.Pod.UID]
		delete(r.evict, pod.Pod.UID)
		r.mu.Unlock()
		fail(ctx, f, pod, status, nominating, start)
		if evict != nil {
			evict()
		}
		switch {
		case mine:
			r.end(uid)
		case single:
			r.Gangs.Update(func(s *gang.State) gang.Effects { return s.Fail(uid, why.Finding{}, time.Now()) })
		}
	}
}

// Waits is called when a reserved pod waits for a permit.
func (r *Rounds) Waits(pod *corev1.Pod) {
	uid := string(pod.UID)
	if round := r.current; round != nil && round.queued[uid] != nil {
		if round.pending[uid] {
			round.placed = append(round.placed, uid)
			r.end(uid)
		}
		return
	}
	one := []string{uid}
	r.Gangs.Update(func(s *gang.State) gang.Effects { return s.Conclude(one, one, gang.Failure{}, time.Now()) })
}

// end notes that the cycle of a member has ended.
func (r *Rounds) end(uid string) {
	r.mu.Lock()
	delete(r.current.pending, uid)
	left := len(r.current.pending)
	r.mu.Unlock()
	if left == 0 {
		r.conclude()
	}
}

// conclude ends the round under way.
func (r *Rounds) conclude() {
	r.mu.Lock()
	round := r.current
	r.current = nil
	r.mu.Unlock()
	if round != nil && round.plan != nil {
		r.Gangs.Update(func(s *gang.State) gang.Effects {
			return s.Conclude(round.plan.Members, round.placed, round.failure, time.Now())
		})
	}
}
