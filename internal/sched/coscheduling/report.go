package coscheduling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
)

// report is what the members of a failed plan learn of it.
type report struct {
	*members
	nomination
	// asked has the plugins whose events concern a member that did not fail itself, by UID.
	asked map[string]sets.Set[string]
}

// nomination is the nodes to which the members of a failed plan are nominated.
type nomination struct {
	// nodes are by UID. nil if no member is nominated. Victims are evicted there, or the nodes are kept for the group.
	nodes map[string]string
	// preempts is set where the group fits when pods have ended: victims, or pods that terminate already.
	preempts bool
	// unchanged is set where these are the nominations from before: victims have yet to end.
	unchanged bool
	// awaits is set where terminating pods leave enough room on these nodes, so that no pod is evicted.
	awaits bool
}

// PostFilter returns what becomes of the nomination of a member that did not fit.
func (r *Rounds) PostFilter(pod *corev1.Pod) (*fwk.PostFilterResult, *fwk.Status) {
	failed, text := r.failed, "the pod starts with others"
	// The member is not of the plan that failed last.
	if failed == nil || failed.pods[string(pod.UID)] == nil {
		status := fwk.NewStatus(fwk.Unschedulable, notEligible+text)
		if name := r.Gangs.RankOf(pod).Name; pod.Status.NominatedNodeName == "" || r.reserves(name) {
			return nil, status
		}
		// the pod's group starts another way now
		r.Quotas.Update(pod.UID, func(a *quota.Account) { a.Withdraw(string(pod.UID)) })
		return framework.NewPostFilterResultWithNominatedNode(""), status
	}
	node := failed.nodes[string(pod.UID)]
	if node == "" {
		r.Quotas.Update(pod.UID, func(a *quota.Account) { a.Withdraw(string(pod.UID)) })
	} else {
		r.Quotas.Update(pod.UID, func(a *quota.Account) { a.Nominate(string(pod.UID)) })
	}
	result := framework.NewPostFilterResultWithNominatedNode(node)
	switch {
	case failed.unchanged, failed.awaits && node != "":
		return result, fwk.NewStatus(fwk.Unschedulable, awaitsTerminating)
	case node != "":
		return result, nil
	}
	return result, fwk.NewStatus(fwk.Unschedulable, notEligible+text)
}

// notEligible begins every message of a PostFilter that did not look for victims. refusals reads it.
const notEligible = "preemption: not eligible: "

// concludeFailedPlan ends the round of a failed plan in the cycle of its first member: it looks for pods to evict, else
// for nodes to keep, and sends the other members back to the queue. It returns why the member itself does not fit.
func (r *Rounds) concludeFailedPlan(ctx context.Context, f framework.Framework, state fwk.CycleState,
	pod *framework.QueuedPodInfo, round *groupRound,
) (scheduler.ScheduleResult, error) {
	uid, failed := string(pod.Pod.UID), &report{members: round.members}
	if round.cause != nil && !round.recalled {
		if round.failure.Skip.Choices == 0 {
			var evict func()
			failed.nomination, evict = r.preempt(ctx, round.members, &round.outcome)
			r.evictAfter(pod.Pod, evict)
		}
		if round.failure.Preempts = failed.preempts; !failed.preempts {
			failed.nodes, round.failure.Outlook = r.keepNodes(ctx, round.members, round.failure.Skip.Choices > 0)
		}
	}
	// The answer is remembered before the members are back in the queue.
	r.learn(ctx, round)
	r.failRound(ctx, round, failed)
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

// refusal returns why a member does not start, as the gangs' state has it, as an error of its cycle.
func (r *Rounds) refusal(pod *corev1.Pod) error {
	return r.refusalOf(pod, kube.Ask(r.Gangs, func(s *gang.State) gang.Refusal { return s.Why(string(pod.UID)) }))
}

// refusalOf returns a refusal as an error of a pod's cycle. It names the plugins whose events may let the pod be tried
// again: this one, and for members that are asked the ones that refused another member.
func (r *Rounds) refusalOf(pod *corev1.Pod, because gang.Refusal) error {
	fit := refused(pod, because)
	if r.failed != nil {
		fit.Diagnosis.UnschedulablePlugins = sets.New(Name).Union(r.failed.asked[string(pod.UID)])
	}
	return fit
}

// refused returns a refusal as what keeps a pod from all nodes. No node was looked at.
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

// failRound reports a failed plan to its members, and sends them back to the queue, apart from the first one, whose
// cycle is under way: none of the others gets a cycle. The nominated nodes of members are written meanwhile, several at
// a time: no pod may be tried before.
func (r *Rounds) failRound(ctx context.Context, round *groupRound, failed *report) {
	r.conclude()
	failed.asked = round.asked
	failed.ask(&round.outcome)
	r.failed = failed
	f := r.Core.Profiles[round.first().Spec.SchedulerName]
	f.Parallelizer().Until(ctx, len(round.order)-1, func(i int) { r.requeue(ctx, round, round.order[i+1]) }, Name)
}

// requeue sends a member of a failed plan back to the queue.
func (r *Rounds) requeue(ctx context.Context, round *groupRound, uid string) {
	pod := round.pods[uid]
	err := r.refusal(pod.Pod)
	if uid == round.failure.UID && round.cause != nil {
		err = round.cause
	}
	f := r.Core.Profiles[pod.Pod.Spec.SchedulerName]
	var nominating *fwk.NominatingInfo
	if result, _ := r.PostFilter(pod.Pod); result != nil {
		nominating = result.NominatingInfo
	}
	r.fail(ctx, f, pod, fwk.NewStatus(fwk.Unschedulable).WithError(err), nominating, r.Now())
}

// ask chooses one member of each kind, beside the one that failed, to be asked about events by the plugins that refused
// that one: what helps another kind may make room for it.
func (r *report) ask(o *outcome) {
	var cause *framework.FitError
	if !errors.As(o.cause, &cause) {
		return
	}
	r.asked = map[string]sets.Set[string]{}
	if o.failure.Tried != (gang.Tried{}) { // who failed is refused for its gang
		r.asked[o.failure.UID] = cause.Diagnosis.UnschedulablePlugins
	}
	kinds := map[string]bool{demands(r.pods[o.failure.UID].Pod): true}
	for _, uid := range r.order {
		if kind := demands(r.pods[uid].Pod); !kinds[kind] {
			kinds[kind] = true
			r.asked[uid] = cause.Diagnosis.UnschedulablePlugins
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
