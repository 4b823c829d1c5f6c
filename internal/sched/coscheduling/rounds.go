package coscheduling

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
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
	Gangs *kube.Gangs
	Core  *scheduler.Scheduler
	// Shown is called when a node has changed in the snapshot in use.
	Shown func(node string)
	// Dry marks the state of an attempt that is taken back.
	Dry func(fwk.CycleState)

	schedule schedulePod
	fail     scheduler.FailureHandlerFn
	pulled   int

	mu     sync.Mutex // guards the rest: failures of bindings are reported from goroutines of their own
	round  *round     // under way, nil between rounds
	single types.UID  // of the pod that is tried alone
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
	placed  []string
	failure gang.Failure // the first
	cause   error        // of a failed plan; nil where the member was not in the queue
}

// Next returns the siblings of a pod after it.
func (r *Rounds) Next(next nextPod) nextPod {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		if is := r.round; is != nil && len(is.next) > 0 {
			return is.take(), nil
		}
		r.conclude() // a member that is deleted meanwhile has no cycle
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
	is := &round{plan: plan, queued: map[string]*framework.QueuedPodInfo{uid: pod}, pending: map[string]bool{}}
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

// MayPreempt reports whether victims may be looked for: for one member of a gang they would be evicted in vain.
func (r *Rounds) MayPreempt(pod *corev1.Pod) bool { return r.Gangs.Alone(pod) }

// Schedule makes the plan when the first member of a round is tried. Each member of a round that fits gets its planned
// node, if that still takes it.
func (r *Rounds) Schedule(schedule schedulePod) schedulePod {
	r.schedule = schedule
	return func(ctx context.Context, f framework.Framework, state fwk.CycleState,
		pod *framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
		is, uid := r.round, string(pod.Pod.UID)
		switch {
		case is == nil || !is.pending[uid]:
			return schedule(ctx, f, state, pod)
		case is.plan == nil:
			return r.refuse(state, pod)
		case is.planned == nil && !r.makePlan(ctx, is, uid):
			r.failAll(ctx, is)
			if uid != is.failure.UID {
				return r.refuse(state, pod)
			}
			// once more, on the snapshot without its siblings: what follows reads the state of the attempt
			if _, err := schedule(ctx, f, state, pod); err != nil {
				return scheduler.ScheduleResult{}, err
			}
			return r.refuse(state, pod)
		}
		result, err := schedule(ctx, f, state, pod)
		if was := is.planned[uid]; err == nil && was.SuggestedHost == result.SuggestedHost {
			result = was
		}
		return result, err
	}
}

// refuse returns why a member may not start. No plugin is asked for victims, as none has looked at the pod.
func (r *Rounds) refuse(state fwk.CycleState, pod *framework.QueuedPodInfo) (scheduler.ScheduleResult, error) {
	if s, ok := state.(*framework.CycleState); ok {
		s.SetSkipAllPostFilterPlugins(true)
	}
	return scheduler.ScheduleResult{}, r.refusal(pod.Pod)
}

func (r *Rounds) refusal(pod *corev1.Pod) error {
	status := fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(&refusal{r.Gangs.Why(pod)})
	status.SetPlugin(Name)
	fit := &framework.FitError{Pod: pod, Diagnosis: framework.Diagnosis{
		NodeToStatus: framework.NewDefaultNodeToStatus(), UnschedulablePlugins: sets.New(Name),
		PreFilterMsg: status.Message(),
	}}
	fit.Diagnosis.NodeToStatus.SetAbsentNodesStatus(status)
	return fit
}

// snapshot is what upstream's snapshot can do besides being read.
type snapshot interface {
	AssumePod(pod *framework.PodInfo) error
	ForgetPod(logger klog.Logger, pod *corev1.Pod) error
}

// makePlan tries the members, the current one first, each on a snapshot with those before it, until the group cannot
// start any more. In the end the snapshot and all accounts are as they were.
func (r *Rounds) makePlan(ctx context.Context, is *round, current string) (fits bool) {
	is.planned = map[string]scheduler.ScheduleResult{}
	var undo []func()
	defer func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}()
	cannot := func(uid string, cause why.Finding) bool {
		have, possible := is.plan.Fail(uid)
		if !possible {
			is.failure = gang.Failure{UID: uid, Have: have, Cause: cause}
		}
		return !possible
	}
	for _, uid := range is.plan.Members {
		if is.queued[uid] == nil && cannot(uid, why.Finding{
			Reason: why.Reason{Code: why.SchedulingGate}, Detail: "it is held back by a gate, or has only just come",
		}) {
			return false
		}
	}
	for _, uid := range append([]string{current}, is.next...) {
		pod := is.queued[uid]
		f := r.Core.Profiles[pod.Pod.Spec.SchedulerName]
		result, err := r.try(ctx, f, pod, &undo)
		if err == nil {
			is.plan.Place(uid)
			is.planned[uid] = result
		} else if is.cause = err; cannot(uid, causeOf(f, pod.Pod, err)) {
			return false
		}
	}
	return true
}

// try chooses a node for a member and reserves it, until the functions that it adds to undo are called from behind.
func (r *Rounds) try(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, undo *[]func(),
) (scheduler.ScheduleResult, error) {
	state := framework.NewCycleState()
	state.Write(framework.PodsToActivateKey, framework.NewPodsToActivate())
	r.Dry(state)
	result, err := r.schedule(ctx, f, state, pod)
	if err != nil {
		return result, err
	}
	node, assumed := result.SuggestedHost, pod.DeepCopy()
	assumed.Pod.Spec.NodeName = node
	shot := f.SnapshotSharedLister().(snapshot)
	if err := shot.AssumePod(assumed.PodInfo); err != nil {
		return result, err
	}
	r.Shown(node)
	back := func() {
		f.RunReservePluginsUnreserve(ctx, state, assumed.Pod, node)
		if err := shot.ForgetPod(klog.FromContext(ctx), assumed.Pod); err != nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Failed to take a planned pod off the snapshot")
		}
		r.Shown(node)
	}
	if status := f.RunReservePluginsReserve(ctx, state, assumed.Pod, node); !status.IsSuccess() {
		fit := &framework.FitError{Pod: pod.Pod, NumAllNodes: 1, Diagnosis: framework.Diagnosis{
			NodeToStatus: framework.NewDefaultNodeToStatus(),
		}}
		fit.Diagnosis.NodeToStatus.Set(node, status)
		fit.Diagnosis.AddPluginStatus(status)
		back()
		return result, fit
	}
	*undo = append(*undo, back)
	return result, nil
}

func causeOf(f framework.Framework, pod *corev1.Pod, err error) why.Finding {
	findings, nodes := verdict.Attempt(f, pod, fwk.NewStatus(fwk.Unschedulable).WithError(err))
	if len(findings) == 0 {
		return why.Finding{Detail: err.Error()}
	}
	return why.Finding{Reason: why.Reason{Code: why.Root(findings).Code}, Detail: why.Text(findings, nodes)}
}

// failAll reports that a plan has failed, and sends its members back to the queue, apart from the one whose cycle is
// under way: none of the others gets a cycle.
func (r *Rounds) failAll(ctx context.Context, is *round) {
	r.conclude()
	for _, uid := range is.next {
		pod := is.queued[uid]
		err := r.refusal(pod.Pod)
		if uid == is.failure.UID && is.cause != nil {
			err = is.cause
		}
		f := r.Core.Profiles[pod.Pod.Spec.SchedulerName]
		r.fail(ctx, f, pod, fwk.NewStatus(fwk.Unschedulable).WithError(err),
			&fwk.NominatingInfo{NominatingMode: fwk.ModeOverride}, time.Now())
	}
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
		if mine && is.failure.UID == "" {
			is.failure = gang.Failure{UID: uid, Cause: causeOf(f, pod.Pod, status.AsError())}
		}
		r.mu.Unlock()
		fail(ctx, f, pod, status, nominating, start)
		switch {
		case mine:
			r.end(uid)
		case single:
			r.Gangs.Fail(pod.Pod)
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
	r.Gangs.Conclude([]string{uid}, []string{uid}, gang.Failure{}, time.Now())
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
		r.Gangs.Conclude(is.plan.Members, is.placed, is.failure, time.Now())
	}
}
