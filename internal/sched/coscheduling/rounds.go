package coscheduling

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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
	"github.com/tenon-project/tenon/internal/sched/diag/verdict"
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

	schedule   schedulePod
	fail       scheduler.FailureHandlerFn
	pulled     int
	share      gang.LoopShare
	failed     *round      // the last one, while the cycle of its last member is under way
	preempting *preemption // under way
	confined   *part       // to which the snapshot is; nil for all nodes
	known      map[string]*knownSites
	mayWhole   sync.Map // by UID of who preempts in this cycle, and gang: whether all of the gang's group may go

	held    map[string]*reservation // by the name of the group's rank; some have ended
	yielded []*reservation          // in the cycle under way
	answers answers
	follow  *place // where the last member that was tried alone chose devices for the others as well

	stirred  atomic.Bool   // deadlocks are looked at in the next cycle
	stuck    []gang.Holder // of the last look, which helped none
	looked   time.Time
	releases int

	mu       sync.Mutex           // guards the rest: failures of bindings are reported from goroutines of their own
	round    *round               // under way, nil between rounds
	single   types.UID            // of the pod that is tried alone
	evicting map[string]string    // by UID of members: the nodes for which victims are about to be evicted
	evict    map[types.UID]func() // by UID of a pod whose cycle is under way: evicts victims when its failure is written
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

// round is the members of one group on their way through the scheduling cycle.
type round struct {
	plan    *gang.Plan                          // nil where none of them may be tried
	queued  map[string]*framework.QueuedPodInfo // by UID: members that were taken out of the queue
	next    []string                            // of these, those whose cycles have not begun
	pending map[string]bool                     // and those whose cycles have not ended
	planned map[string]scheduler.ScheduleResult // nil before the plan is made
	places  map[string]*place                   // by UID: where members are tried that may not be anywhere
	unfit   map[string]error                    // by UID: members that the plan does without
	placed  []string
	failure gang.Failure // the first; of a planned member, where one fails
	cause   error        // of a failed plan; nil where no member was tried on the nodes

	events   uint64   // that were counted before the snapshot was taken
	order    []string // in which members are tried first
	recalled bool     // the plan was not made: one for a group of equal shape has failed

	// After a failed plan: what becomes of the nominations of its members.
	asked     map[string]sets.Set[string] // by UID: the plugins whose events concern a member that did not fail itself
	kept      bool                        // as they are: victims have yet to end
	nominated map[string]string           // by UID: nodes on which victims are evicted
}

// Next returns the siblings of a pod after it.
func (r *Rounds) Next(next nextPod) nextPod {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		if is := r.round; is != nil && len(is.next) > 0 {
			return is.take(), nil
		}
		r.conclude() // a member that is deleted meanwhile has no cycle
		r.restore(logger)
		pod, err := next(logger)
		if err != nil || pod == nil {
			return pod, err
		}
		is := r.begin(logger, pod)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.round, r.single = is, pod.Pod.UID; is == nil {
			return pod, nil
		}
		r.single = ""
		return is.take(), nil
	}
}

// begin pulls the siblings of a pod; nil for a pod that is tried alone.
func (r *Rounds) begin(logger klog.Logger, pod *framework.QueuedPodInfo) *round {
	plan, members, refused := r.Gangs.Begin(pod.Pod)
	uid := string(pod.Pod.UID)
	r.failed = nil
	is := &round{plan: plan, queued: map[string]*framework.QueuedPodInfo{uid: pod}, pending: map[string]bool{}}
	is.events = r.Events()
	switch {
	case refused.Code != why.None:
		members = []*corev1.Pod{pod.Pod}
	case plan == nil:
		return nil
	}
	for _, m := range members {
		uid := string(m.UID)
		if is.queued[uid] == nil {
			if is.queued[uid] = r.Core.SchedulingQueue.PopSpecificPod(logger, m); is.queued[uid] == nil {
				continue
			}
			r.pulled++
		}
		is.next, is.pending[uid] = append(is.next, uid), true
	}
	r.share.Begin(time.Now())
	return is
}

// Pulled returns how many pods were ever taken out of the queue with a sibling, and of how many the cycles have yet to
// begin.
func (r *Rounds) Pulled() (all, left int) {
	if r.round != nil {
		left = len(r.round.next)
	}
	return r.pulled, left
}

func (is *round) take() *framework.QueuedPodInfo {
	uid := is.next[0]
	is.next = is.next[1:]
	return is.queued[uid]
}

// Planned returns the node that the plan under way has for a pod, "" without one.
func (r *Rounds) Planned(pod *corev1.Pod) string {
	if is := r.round; is != nil {
		return is.planned[string(pod.UID)].SuggestedHost
	}
	return ""
}

// Alone reports whether a pod starts without others: for one member of a gang victims would be evicted in vain.
func (r *Rounds) Alone(pod *corev1.Pod) bool { return r.Gangs.Alone(pod) }

// IsMember reports whether a pod is of a gang, started or not.
func (r *Rounds) IsMember(pod *corev1.Pod) bool { return r.Gangs.GangOf(pod) != "" }

// PostFilter returns what becomes of the nomination of a member that did not fit.
func (r *Rounds) PostFilter(pod *corev1.Pod) (*fwk.PostFilterResult, *fwk.Status) {
	is, text := r.failed, "the pod starts with others"
	if is == nil || is.queued[string(pod.UID)] == nil {
		status := fwk.NewStatus(fwk.Unschedulable, notEligible+text)
		if name := r.Gangs.RankOf(pod).Name; pod.Status.NominatedNodeName == "" || r.reserves(name) {
			return nil, status
		}
		// the pod's group starts another way now
		r.Quotas.Update(pod.UID, func(a *quota.Account) { a.Withdraw(string(pod.UID)) })
		return framework.NewPostFilterResultWithNominatedNode(""), status
	}
	node := is.nominated[string(pod.UID)]
	if node == "" {
		r.Quotas.Update(pod.UID, func(a *quota.Account) { a.Withdraw(string(pod.UID)) })
	} else {
		r.Quotas.Update(pod.UID, func(a *quota.Account) { a.Nominate(string(pod.UID)) })
	}
	result := framework.NewPostFilterResultWithNominatedNode(node)
	switch {
	case is.kept:
		text = "a terminating pod on the nominated node."
	case node != "":
		return result, nil
	}
	return result, fwk.NewStatus(fwk.Unschedulable, notEligible+text)
}

const notEligible = "preemption: not eligible: "

// Schedule makes the plan when the first member of a round is tried. Each member of a round that fits gets its planned
// node, if that still takes it.
func (r *Rounds) Schedule(schedule schedulePod) schedulePod {
	r.schedule = schedule
	return func(ctx context.Context, f framework.Framework, state fwk.CycleState,
		pod *framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
		is, uid := r.round, string(pod.Pod.UID)
		r.mayWhole.Clear()
		defer r.release(f)
		if len(r.yielded) == 0 { // for another member of the round
			r.yield(pod.Pod)
		}
		switch {
		case is == nil || !is.pending[uid]:
			if r.stirred.Swap(false) {
				r.resolve(ctx)
			}
			result, err := r.scheduleAlone(ctx, f, state, pod)
			if err != nil {
				r.preemptRest(ctx, pod, err)
			} else {
				r.Gangs.Overtake(pod.Pod)
			}
			return result, err
		case is.plan == nil:
			return r.refuse(state, pod)
		case is.planned == nil && !r.makePlan(ctx, is, uid):
			r.evictAfter(pod.Pod, r.preempt(ctx, is, uid))
			r.keepNodes(ctx, is, uid)
			r.learn(ctx, is, uid)
			r.failAll(ctx, is, uid)
			switch {
			case uid != is.failure.UID || is.cause == nil || is.failure.Tried != (gang.Tried{}):
				return r.refuse(state, pod)
			case is.recalled:
				return unplaced(state, is.cause)
			}
			// once more, on the snapshot without its siblings: what follows reads the state of the attempt
			if _, err := schedule(ctx, f, state, pod); err != nil {
				return scheduler.ScheduleResult{}, err
			}
			return unplaced(state, is.cause) // an event says that it fits by now, and concerns who refused it
		case is.unfit[uid] != nil && slices.ContainsFunc(is.next, is.isPlanned):
			return unplaced(state, is.unfit[uid]) // before the others it would take their room
		}
		if err := r.reserve(f, state, is, uid); err != nil {
			return unplaced(state, err)
		}
		result, err := schedule(ctx, f, state, anywhere(pod))
		if err != nil && r.widen(f, is, uid) {
			result, err = schedule(ctx, f, state, anywhere(pod))
		}
		if was := is.planned[uid]; err == nil && was.SuggestedHost == result.SuggestedHost {
			result = was
		}
		return result, err
	}
}

func (is *round) isPlanned(uid string) bool { return is.unfit[uid] == nil }

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

// makePlan tries the members, the current one first, each on a snapshot with those before it, until the group cannot
// start any more. Where a gang may do without some of its members, they are then tried once more, the smallest first.
// Members that the plan does without come last. In the end the snapshot is as it was.
func (r *Rounds) makePlan(ctx context.Context, is *round, current string) (fits bool) {
	is.planned = map[string]scheduler.ScheduleResult{}
	if r.lacks(is, current) || r.recall(ctx, is, current) {
		return false
	}
	if len(is.plan.DomainRequests) > 0 {
		return r.inDomains(is, current, func() bool { return r.planMembers(ctx, is, current) })
	}
	return r.planMembers(ctx, is, current)
}

// planMembers is makePlan in the domains that are chosen.
func (r *Rounds) planMembers(ctx context.Context, is *round, current string) (fits bool) {
	order, chooses := append([]string{current}, is.next...), is.plan.Chooses()
	defer func() {
		slices.SortStableFunc(is.next, func(a, b string) int { return trueFirst(is.isPlanned(a), is.isPlanned(b)) })
	}()
	if r.tryAll(ctx, is, order) {
		return true
	}
	if !chooses || is.cause == nil {
		return false
	}
	failure, cause, plan := is.failure, is.cause, is.plan
	if is.plan, _, _ = r.Gangs.Begin(is.queued[current].Pod); is.plan != nil {
		slices.SortStableFunc(order, func(a, b string) int { return compareSizes(is.queued[a], is.queued[b]) })
		if r.tryAll(ctx, is, order) {
			is.failure, is.cause = gang.Failure{}, nil
			return true
		}
	}
	is.failure, is.cause, is.plan = failure, cause, plan
	return false
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

// compareSizes orders pods by what they ask for: CPU, then memory.
func compareSizes(a, b *framework.QueuedPodInfo) int {
	x, y := a.CalculateResource().Resource, b.CalculateResource().Resource
	return cmp.Or(cmp.Compare(x.GetMilliCPU(), y.GetMilliCPU()), cmp.Compare(x.GetMemory(), y.GetMemory()))
}

// tryAll tries members in order.
func (r *Rounds) tryAll(ctx context.Context, is *round, order []string) (fits bool) {
	clear(is.planned)
	is.unfit = map[string]error{}
	for uid, pod := range is.queued {
		if pod != nil {
			is.planned[uid] = scheduler.ScheduleResult{SuggestedHost: pod.Pod.Status.NominatedNodeName}
		}
	}
	a := r.attempt(ctx, is)
	defer a.back(0)
	failed, have := is.plan.Try(order, func(uid string) bool {
		_, err := a.try(uid)
		if err != nil {
			is.cause, is.unfit[uid] = err, err
			delete(is.planned, uid)
		}
		return err == nil
	})
	if failed == "" {
		return true
	}
	is.failure = gang.Failure{UID: failed, Have: have, Cause: why.Finding{
		Reason: why.Reason{Code: why.SchedulingGate}, Detail: "it is held back by a gate, or has only just come",
	}}
	if pod := is.queued[failed]; pod != nil {
		is.failure.Cause = causeOf(a.profile(failed), pod.Pod, is.cause)
	}
	return false
}

func causeOf(f framework.Framework, pod *corev1.Pod, err error) why.Finding {
	findings, nodes := verdict.Attempt(f, pod, fwk.NewStatus(fwk.Unschedulable).WithError(err))
	if len(findings) == 0 {
		return why.Finding{Detail: err.Error()}
	}
	return why.Finding{Reason: why.Reason{Code: why.Root(findings).Code}, Detail: why.Text(findings, nodes)}
}

// failAll reports that a plan has failed, and sends its members back to the queue, apart from the current one, whose
// cycle is under way: none of the others gets a cycle. The nominated nodes of members are written meanwhile, several at
// a time: no pod may be tried before.
func (r *Rounds) failAll(ctx context.Context, is *round, current string) {
	r.conclude()
	r.failed = is
	is.ask(current)
	f := r.Core.Profiles[is.queued[current].Pod.Spec.SchedulerName]
	f.Parallelizer().Until(ctx, len(is.next), func(i int) { r.sendBack(ctx, is, is.next[i]) }, Name)
}

func (r *Rounds) sendBack(ctx context.Context, is *round, uid string) {
	pod := is.queued[uid]
	err := r.refusal(pod.Pod)
	if uid == is.failure.UID && is.cause != nil {
		err = is.cause
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
func (is *round) ask(current string) {
	var cause *framework.FitError
	if !errors.As(is.cause, &cause) {
		return
	}
	is.asked = map[string]sets.Set[string]{}
	if is.failure.Tried != (gang.Tried{}) { // who failed is refused for its gang
		is.asked[is.failure.UID] = cause.Diagnosis.UnschedulablePlugins
	}
	kinds := map[string]bool{demands(is.queued[is.failure.UID].Pod): true}
	for _, uid := range append([]string{current}, is.next...) {
		if kind := demands(is.queued[uid].Pod); !kinds[kind] {
			kinds[kind] = true
			is.asked[uid] = cause.Diagnosis.UnschedulablePlugins
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
		is, single := r.round, r.single == pod.Pod.UID
		mine := is != nil && is.pending[uid]
		if mine && (is.failure.UID == "" || is.isPlanned(uid) && !is.isPlanned(is.failure.UID)) {
			is.failure = gang.Failure{UID: uid, Cause: causeOf(f, pod.Pod, status.AsError())}
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
	if is := r.round; is != nil && is.queued[uid] != nil {
		if is.pending[uid] {
			is.placed = append(is.placed, uid)
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
	delete(r.round.pending, uid)
	left := len(r.round.pending)
	r.mu.Unlock()
	if left == 0 {
		r.conclude()
	}
}

// conclude ends the round under way.
func (r *Rounds) conclude() {
	r.mu.Lock()
	is := r.round
	r.round = nil
	r.mu.Unlock()
	if is != nil && is.plan != nil {
		r.Gangs.Update(func(s *gang.State) gang.Effects {
			return s.Conclude(is.plan.Members, is.placed, is.failure, time.Now())
		})
	}
}
