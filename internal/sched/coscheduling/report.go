package coscheduling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
)

// report is what the members of a failed plan learn of it.
type report struct {
	*groupRound
	nomination
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
	uid, failed := string(pod.UID), r.failed
	ineligible := fwk.NewStatus(fwk.Unschedulable, notEligible+"the pod starts with others")
	// A member that is not of the plan that failed last keeps its nomination only while nodes are kept for its group.
	if failed == nil || failed.pods[uid] == nil {
		if pod.Status.NominatedNodeName == "" || r.reservations.reserves(r.cluster.Gangs.RankOf(pod).Name) {
			return nil, ineligible
		}
		failed = &report{}
	}
	node, count := failed.nodes[uid], (*quota.Account).Nominate
	if node == "" {
		count = (*quota.Account).Withdraw
		r.cluster.Gangs.Reveal(func(concealed string) bool { return concealed == uid })
	}
	r.cluster.Quotas.Update(pod.UID, func(a *quota.Account) { count(a, uid) })
	result := framework.NewPostFilterResultWithNominatedNode(node)
	switch {
	case failed.unchanged, failed.awaits && node != "":
		return result, fwk.NewStatus(fwk.Unschedulable, awaitsTerminating)
	case node != "":
		return result, nil
	}
	return result, ineligible
}

// notEligible begins every message of a PostFilter that did not look for victims. refusals reads it.
const notEligible = "preemption: not eligible: "

// concludeFailedPlan ends the round of a failed plan in the cycle of its first member: it looks for pods to evict, else
// for nodes to keep, and sends the other members back to the queue. It returns why the member itself does not fit.
func (r *Rounds) concludeFailedPlan(ctx context.Context, f framework.Framework, state fwk.CycleState,
	pod *framework.QueuedPodInfo, round *groupRound,
) (loop.Result, error) {
	uid, failed := string(pod.Pod.UID), &report{groupRound: round}
	switch {
	case round.lacksResources:
		failed.nodes, round.failure.Outlook = r.reservations.keepNodes(ctx, round.members, false)
	case round.cause != nil && !round.recalled && r.cluster.Claims.Free(ctx, f, round.tried()...) > 0:
		// They are tried again when the scheduler has read the claims, before any pod is evicted.
	case round.cause != nil && !round.recalled:
		if round.failure.Skip.Choices == 0 {
			var evict func()
			failed.nomination, evict = r.Evictions.preempt(ctx, round.members, &round.outcome)
			r.Evictions.evictAfter(pod.Pod, evict)
		}
		if round.failure.Preempts = failed.preempts; !failed.preempts {
			failed.nodes, round.failure.Outlook = r.reservations.keepNodes(ctx, round.members,
				round.failure.Skip.Choices > 0)
		}
	}
	if h := r.reservations.kept[r.cluster.Gangs.RankOf(round.first()).Name]; h != nil {
		round.failure.Start = h.Start
	}
	// The answer is remembered before the members are back in the queue.
	r.answers.learn(ctx, round)
	r.failRound(ctx, failed)
	switch {
	case uid != round.failure.UID || round.cause == nil || round.failure.Tried != (gang.Tried{}):
		return unplaced(state, r.refusal(pod.Pod))
	case round.recalled:
		return unplaced(state, round.cause)
	}
	// The member is tried once more, on the snapshot without its siblings: PostFilter and the report of the failure
	// read the state of the attempt. If it fits by now, an event says so, and concerns the plugins that refused it.
	if _, err := r.planner.schedule(ctx, f, state, pod); err != nil {
		return loop.Result{}, err
	}
	return unplaced(state, round.cause)
}

// unplaced returns an error. No plugin is asked for victims, as none has looked at the pod.
func unplaced(state fwk.CycleState, err error) (loop.Result, error) {
	if s, ok := state.(*framework.CycleState); ok {
		s.SetSkipAllPostFilterPlugins(true)
	}
	return loop.Result{}, err
}

// refusal returns why a member does not start, as the gangs' state has it, as an error of its cycle.
func (r *Rounds) refusal(pod *corev1.Pod) error {
	because := kube.Ask(r.cluster.Gangs, func(s *gang.State) gang.Refusal { return s.Why(string(pod.UID)) })
	return r.refusalOf(pod, because)
}

// refusalOf returns a refusal as an error of a pod's cycle. It names the plugins whose events may let the pod be tried
// again: this one, and for members that are asked the ones that refused another member.
func (r *Rounds) refusalOf(pod *corev1.Pod, because gang.Refusal) error {
	status := fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(&refusal{because})
	status.SetPlugin(Name)
	fit := &framework.FitError{Pod: pod, Diagnosis: framework.Diagnosis{
		NodeToStatus: framework.NewDefaultNodeToStatus(), UnschedulablePlugins: sets.New(Name),
		PreFilterMsg: status.Message(),
	}}
	fit.Diagnosis.NodeToStatus.SetAbsentNodesStatus(status) // no node was looked at
	if r.failed != nil {
		fit.Diagnosis.UnschedulablePlugins.Insert(r.failed.asked[string(pod.UID)].UnsortedList()...)
	}
	return fit
}

// failRound reports a failed plan to its members, and sends them back to the queue, apart from the first one, whose
// cycle is under way: none of the others gets a cycle. The nominated nodes of members are written meanwhile, several at
// a time: no pod may be tried before.
func (r *Rounds) failRound(ctx context.Context, failed *report) {
	r.conclude()
	failed.chooseAsked()
	r.failed = failed
	f := r.cluster.Core.Profile(failed.first().Spec.SchedulerName)
	f.Parallelizer().Until(ctx, len(failed.order)-1, func(i int) {
		uid := failed.order[i+1]
		err := r.refusal(failed.pods[uid].Pod)
		if uid == failed.failure.UID && failed.cause != nil {
			err = failed.cause
		}
		r.requeue(ctx, failed.pods[uid], err)
	}, Name)
}

// requeue sends a member of the plan that failed last back to the queue, with its nomination.
func (r *Rounds) requeue(ctx context.Context, pod *framework.QueuedPodInfo, err error) {
	f := r.cluster.Core.Profile(pod.Pod.Spec.SchedulerName)
	var nominating *fwk.NominatingInfo
	if result, _ := r.PostFilter(pod.Pod); result != nil {
		nominating = result.NominatingInfo
	}
	r.fail(ctx, f, pod, fwk.NewStatus(fwk.Unschedulable).WithError(err), nominating, r.cluster.Clock.Now())
}

// chooseAsked chooses one member of each kind, beside the one that failed, to be asked about events by the plugins that
// refused that one: what helps another kind may make room for it.
func (round *groupRound) chooseAsked() {
	var cause *framework.FitError
	if !errors.As(round.cause, &cause) {
		return
	}
	round.asked = map[string]sets.Set[string]{}
	if round.failure.Tried != (gang.Tried{}) { // who failed is refused for its gang
		round.asked[round.failure.UID] = cause.Diagnosis.UnschedulablePlugins
	}
	kinds := map[string]bool{demands(round.pods[round.failure.UID].Pod): true}
	for _, uid := range round.order {
		if kind := demands(round.pods[uid].Pod); !kinds[kind] {
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
	return encode(needs)
}

// encode returns what identifies a value of the API as JSON.
func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("coscheduling: objects always encode: %v", err))
	}
	return string(text)
}
