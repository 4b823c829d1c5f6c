package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/view"
)

// session is one question. It ends with the engine's next one.
//
// What it changes is its own: a node is copied before it is changed, the trial and the quotas come before those of the
// scheduler, and added pods are nowhere else. Nodes are as they were when the session began, whatever the scheduler
// does meanwhile.
type session struct {
	*Engine
	// ctx ends with the deadline of the answer, during a search with that of the search.
	ctx context.Context
	// trial has the accounts of nodes with all changes of the session.
	trial Trial
	// quotas are those of the session; nil while they are the cluster's.
	quotas Quotas
	// used are the Reservations that pods of the session use, by UID. Each counts as used up.
	used map[string]bool
	// pods are those that changes added, and the successors of those that they removed, by namespace/name.
	pods map[string]*corev1.Pod
	// successors are the UIDs of pods that others come in place of, by the UIDs of these: quotas count them already.
	successors map[string]string
	// created are the pods of changes that the API server has yet to admit, by UID. leaving are those that leave their
	// nodes and have no successor in the question. limits are those of namespaces with created pods, without leaving.
	created map[types.UID]bool
	leaving []*corev1.Pod
	limits  map[string]Limits
	// asked are the pods that the question names, by namespace/name.
	asked sets.Set[string]
	// admitted: pods are not compared with their quotas.
	admitted bool
}

// placed is a pod with its node. Nothing of it is written: a caller that moves the pod for real asks again.
type placed struct {
	// pod has the node in its spec. record has the annotations that its Binding would write.
	pod    *corev1.Pod
	node   string
	record map[string]string
}

// restart drops all that was changed.
func (s *session) restart() {
	s.nodes.reset()
	s.trial, s.used, s.quotas = s.Trial(), map[string]bool{}, nil
	s.pods, s.successors = map[string]*corev1.Pod{}, map[string]string{}
	s.created, s.leaving, s.limits = map[types.UID]bool{}, nil, map[string]Limits{}
}

// answer answers a question of one mode. The modes differ in what they do with the pods that are asked about: Schedule
// places one after the other and each sees those before it, Preempt also evicts, MakeRoom moves others first.
// Defragment and CountPods read no ask.pods that way.
func (s *session) answer(q *view.WhatIf) (*view.WhatIfAnswer, error) {
	out := &view.WhatIfAnswer{
		SnapshotGeneration: s.round, Placements: []view.WhatIfPlacement{}, Unschedulable: []view.Pod{},
		Victims: []view.Victim{},
	}
	var err error
	switch q.Ask.Mode {
	case "", view.Schedule:
		err = s.scheduleAsked(q, out)
	case view.Preempt:
		err = s.preemptForAsked(q, out)
	case view.MakeRoom:
		err = s.makeRoomForAsked(q, out)
	case view.Defragment:
		err = s.defragment(q, out)
	case view.CountPods:
		err = s.countCopies(q, out)
	case view.PlayForward:
		out.Forecast, err = s.forecast(q)
	default:
		err = bad("ask.mode is %q, want %s, %s, %s, %s, %s or %s", q.Ask.Mode, view.Schedule, view.Preempt,
			view.MakeRoom, view.Defragment, view.CountPods, view.PlayForward)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// scheduleAsked places the pods that are asked about one after the other.
func (s *session) scheduleAsked(q *view.WhatIf, out *view.WhatIfAnswer) error {
	pods, err := s.changeFor(q, out)
	if err != nil {
		return err
	}
	if q.Ask.Reserve {
		if admitted, err := s.admitReservations(pods, out); err != nil || !admitted {
			return err
		}
	}
	var allowed func(node string) bool
	if len(q.Ask.Nodes) > 0 {
		allowed = sets.New(q.Ask.Nodes...).Has
	}
	for _, pod := range pods {
		if err := s.ask(pod, false, allowed, out); err != nil {
			return err
		}
	}
	return nil
}

// admitReservations reports whether quotas have room for Reservations beside the pods. If not, it explains each pod.
func (s *session) admitReservations(pods []*corev1.Pod, out *view.WhatIfAnswer) (admitted bool, err error) {
	if s.quotas != nil {
		return false, notForQuotas()
	}
	var removed []string
	for _, pod := range pods {
		if uid := s.successors[string(pod.UID)]; uid != "" {
			removed = append(removed, uid)
		}
	}
	if s.admitsAgain(removed...) {
		return true, nil
	}
	for _, pod := range pods {
		explained, err := s.explain(pod)
		if err != nil {
			return false, err
		}
		explained.Notes = []string{"the quota has no room for Reservations beside the pods"}
		out.Unschedulable = append(out.Unschedulable, explained)
	}
	return false, nil
}

// preemptForAsked places the pods that are asked about one after the other, and evicts pods for those that fit nowhere.
func (s *session) preemptForAsked(q *view.WhatIf, out *view.WhatIfAnswer) error {
	pods, err := s.changeFor(q, out)
	switch {
	case err != nil:
		return err
	case len(q.Ask.Nodes) > 0 || q.Ask.Reserve:
		return bad("ask.nodes and ask.reserve are not for mode %s", view.Preempt)
	case s.quotas != nil:
		return notForQuotas()
	}
	for _, pod := range pods {
		if err := s.ask(pod, true, nil, out); err != nil {
			return err
		}
	}
	return nil
}

// notForQuotas is the error of a question that changes quotas and asks what reads the quotas of the cluster.
func notForQuotas() error {
	return bad("setQuota, scaleGang and patchPod are not for mode %s and ask.reserve", view.Preempt)
}

// makeRoomForAsked finds pods to move so that those that are asked about fit.
func (s *session) makeRoomForAsked(q *view.WhatIf, out *view.WhatIfAnswer) error {
	pods, err := s.changeFor(q, out)
	if err != nil {
		return err
	}
	return s.makeRoom(q, pods, out)
}

// countCopies counts how many more copies of a pod fit.
func (s *session) countCopies(q *view.WhatIf, out *view.WhatIfAnswer) error {
	if err := s.change(q, out); err != nil {
		return err
	}
	return s.capacity(q, out)
}

// change makes the changes of a question in their order. A change that cannot be made ends it.
func (s *session) change(q *view.WhatIf, out *view.WhatIfAnswer) error {
	s.asked = sets.New(q.Ask.Pods...)
	for i := range q.Changes {
		p, err := s.apply(&q.Changes[i])
		if err != nil {
			return fmt.Errorf("changes[%d]: %w", i, err)
		}
		if p != nil {
			out.Placements = append(out.Placements, p.describe())
		}
	}
	return nil
}

// changeFor makes the changes of a question, and returns the pods that it asks about.
func (s *session) changeFor(q *view.WhatIf, out *view.WhatIfAnswer) (pods []*corev1.Pod, err error) {
	if err := s.change(q, out); err != nil {
		return nil, err
	}
	for i, key := range q.Ask.Pods {
		pod, err := s.pending(key)
		if err != nil {
			return nil, fmt.Errorf("ask.pods[%d]: %w", i, err)
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// ask places one pod, and adds to the answer where, or why not.
func (s *session) ask(pod *corev1.Pod, preempt bool, allowed func(node string) bool, out *view.WhatIfAnswer,
) error {
	if refused, err := s.admit(pod); refused != nil || err != nil {
		if err == nil {
			out.Unschedulable = append(out.Unschedulable, s.notAdmitted(pod, refused))
		}
		return err
	}
	p, err := s.place(pod, allowed)
	if p == nil && err == nil && preempt {
		var victims []view.Victim
		if p, victims, err = s.preempt(pod); p != nil {
			out.Victims = append(out.Victims, victims...)
		}
	}
	if err != nil {
		return err
	}
	if p != nil {
		out.Placements = append(out.Placements, p.describe())
		return nil
	}
	explained, err := s.explain(pod)
	if err == nil {
		out.Unschedulable = append(out.Unschedulable, explained)
	}
	return err
}

// limitsOf returns the limits of a namespace, with what is used in the session.
func (s *session) limitsOf(namespace string) (Limits, error) {
	l := s.limits[namespace]
	if l == nil {
		var err error
		if l, err = s.Limits(s.ctx, namespace); err != nil {
			return nil, err
		}
		for _, pod := range s.leaving {
			if pod.Namespace == namespace {
				l.Release(pod)
			}
		}
		s.limits[namespace] = l
	}
	return l, nil
}

// leave takes a pod that leaves out of the ResourceQuotas. A successor that the question names uses what it used.
func (s *session) leave(key string, pod *corev1.Pod) {
	if s.asked.Has(key) {
		return
	}
	s.leaving = append(s.leaving, pod)
	if l := s.limits[pod.Namespace]; l != nil {
		l.Release(pod)
	}
}

// admit returns why the API server refuses to create a pod; nil for one that exists, and for one that it admits. The
// latter counts for those after it.
func (s *session) admit(pod *corev1.Pod) (refused, err error) {
	if !s.created[pod.UID] {
		return nil, nil
	}
	l, err := s.limitsOf(pod.Namespace)
	if err == nil {
		refused = l.AdmitWithClaims(pod)
	}
	return refused, err
}

// notAdmitted explains a pod that the API server refuses.
func (s *session) notAdmitted(pod *corev1.Pod, refused error) view.Pod {
	return view.Explain(describe.Pod(pod), view.Verdict{
		Served: true, Generation: s.round, Findings: []why.Finding{{
			Reason: why.Reason{Code: why.AdmissionRefused}, Phase: why.Admission, Detail: refused.Error(),
		}},
	}, nil)
}

// explain returns why a pod fits on no node of the session.
func (s *session) explain(pod *corev1.Pod) (view.Pod, error) {
	f, err := s.profile(pod)
	if err != nil {
		return view.Pod{}, err
	}
	verdict, err := refusals.In(s.ctx, f, s.state(pod), pod)
	if err != nil {
		return view.Pod{}, err
	}
	verdict.Generation = s.round
	return view.Explain(describe.Pod(pod), verdict, nil), nil
}

// describe returns the placement for the answer.
func (p *placed) describe() view.WhatIfPlacement {
	return view.WhatIfPlacement{
		Pod: p.pod.Namespace + "/" + p.pod.Name, Node: p.node,
		ResourceStatus: []byte(p.record[annotation.ResourceStatusKey]),
		Devices:        []byte(p.record[annotation.DeviceAllocatedKey]),
	}
}

// state returns the state of a cycle that reads the session's accounts.
func (s *session) state(pod *corev1.Pod) fwk.CycleState {
	cs := framework.NewCycleState()
	cs.Write(framework.PodsToActivateKey, framework.NewPodsToActivate())
	s.trial.Mark(cs)
	s.Exclude(cs, s.used)
	switch {
	case s.admitted:
		s.Admit(cs)
	case s.quotas != nil:
		s.quotas.Mark(cs)
	// Its predecessor is counted in the quotas already.
	case s.successors[string(pod.UID)] != "":
		s.Admit(cs)
	}
	return cs
}

// place finds a node for a pod, one of those that allowed accepts, and reserves it there. It returns nil for a pod that
// fits on none. A nil allowed accepts all.
//
// Filters answer from a summary of the account, Reserve computes the exact CPUs and devices: it may refuse what a
// filter has let pass. Then the pod is ranked again without that node, as the queue would do at its next attempt.
func (s *session) place(pod *corev1.Pod, allowed func(node string) bool) (*placed, error) {
	for refused := map[string]bool{}; ; {
		f, cs, fit, err := s.feasible(pod, func(node string) bool {
			return !refused[node] && (allowed == nil || allowed(node))
		})
		if err != nil || len(fit) == 0 {
			return nil, err
		}
		order, err := s.rank(f, cs, pod, fit)
		if err != nil {
			return nil, err
		}
		p, err := s.reserve(f, cs, pod, order[0])
		if p != nil || err != nil {
			return p, err
		}
		refused[order[0]] = true // as the queue would find out at the next attempt
	}
}

// feasible returns the nodes whose filters a pod passes, among those that allowed accepts. The cycle's state comes with
// them, as PreFilter has written it: scores and Reserve read it. A pod that PreFilter rejects fits nowhere, which is no
// error; then the state is good for nothing more.
func (s *session) feasible(pod *corev1.Pod, allowed func(node string) bool,
) (framework.Framework, fwk.CycleState, []fwk.NodeInfo, error) {
	f, cs, fit, _, err := s.filter(pod, allowed)
	return f, cs, fit, err
}

// filter is feasible with the statuses of the other nodes that allowed accepts.
func (s *session) filter(pod *corev1.Pod, allowed func(node string) bool,
) (framework.Framework, fwk.CycleState, []fwk.NodeInfo, map[string]*fwk.Status, error) {
	f, err := s.profile(pod)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	all, err := s.nodes.List()
	if err != nil {
		return nil, nil, nil, nil, err
	}
	cs := s.state(pod)
	narrowed, status, _ := f.RunPreFilterPlugins(s.ctx, cs, pod)
	if !status.IsSuccess() {
		if status.IsRejected() {
			return f, cs, nil, nil, nil
		}
		return nil, nil, nil, nil, fmt.Errorf("prepare the filters for pod %s/%s: %w", pod.Namespace, pod.Name,
			status.AsError())
	}
	statuses, failed := make([]*fwk.Status, len(all)), make([]error, len(all))
	asked := make([]bool, len(all))
	f.Parallelizer().Until(s.ctx, len(all), func(i int) {
		name := all[i].Node().Name
		if !allowed(name) || !narrowed.AllNodes() && !narrowed.NodeNames.Has(name) {
			return
		}
		status := f.RunFilterPluginsWithNominatedPods(s.ctx, cs, pod, all[i])
		asked[i], statuses[i] = true, status
		if !status.IsSuccess() && !status.IsRejected() {
			failed[i] = fmt.Errorf("filter node %s: %w", name, status.AsError())
		}
	}, "WhatIf")
	var out []fwk.NodeInfo
	refused := map[string]*fwk.Status{}
	for i, n := range all {
		if asked[i] && statuses[i].IsSuccess() {
			out = append(out, n)
		} else if asked[i] {
			refused[n.Node().Name] = statuses[i]
		}
	}
	return f, cs, out, refused, errors.Join(append(failed, s.ctx.Err())...)
}

// rank returns the names of feasible nodes, the best first. Like the scheduler it puts the nominated node before all
// others, whatever the scores, and scores no single node.
func (s *session) rank(f framework.Framework, cs fwk.CycleState, pod *corev1.Pod, fit []fwk.NodeInfo,
) ([]string, error) {
	var names []string
	for _, n := range fit {
		names = append(names, n.Node().Name)
	}
	if i := slices.Index(names, pod.Status.NominatedNodeName); i > 0 {
		names[0], names[i] = names[i], names[0]
		return names, nil
	} else if i == 0 || len(names) == 1 {
		return names, nil
	}
	scores, err := s.score(f, cs, pod, fit)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(scores, func(a, b fwk.NodePluginScores) int {
		return cmp.Or(cmp.Compare(b.TotalScore, a.TotalScore), cmp.Compare(a.Name, b.Name))
	})
	for i := range scores {
		names[i] = scores[i].Name
	}
	return names, nil
}

// score returns the scores of feasible nodes.
func (s *session) score(f framework.Framework, cs fwk.CycleState, pod *corev1.Pod, fit []fwk.NodeInfo,
) ([]fwk.NodePluginScores, error) {
	if status := f.RunPreScorePlugins(s.ctx, cs, pod, fit); !status.IsSuccess() {
		return nil, fmt.Errorf("prepare the scores of pod %s/%s: %w", pod.Namespace, pod.Name, status.AsError())
	}
	scores, status := f.RunScorePlugins(s.ctx, cs, pod, fit)
	if !status.IsSuccess() {
		return nil, fmt.Errorf("score nodes for pod %s/%s: %w", pod.Namespace, pod.Name, status.AsError())
	}
	return scores, nil
}

// reserve puts a pod on a node of the session. It returns nil where the exact answer refuses what a filter allowed. The
// trial is asked first, since it alone can refuse. What follows makes the copy of the node and the quotas agree with
// it: the pod is on the node, without a Binding, and what it uses of a Reservation is not counted twice.
func (s *session) reserve(f framework.Framework, cs fwk.CycleState, pod *corev1.Pod, node string) (*placed, error) {
	record, within, status := s.Reserve(s.ctx, f, cs, pod, node)
	if !status.IsSuccess() {
		if err := status.AsError(); !status.IsRejected() && err == nil {
			return nil, fmt.Errorf("reserve pod %s/%s on node %s: no answer", pod.Namespace, pod.Name, node)
		}
		return nil, nil
	}
	info, err := s.nodes.change(node)
	if err != nil {
		return nil, err
	}
	// The pod takes the room of the Reservation's reserve pod.
	if within != "" {
		s.used[within] = true
		for _, held := range info.GetPods() {
			if string(held.GetPod().UID) == within {
				if err := info.RemovePod(klog.FromContext(s.ctx), held.GetPod()); err != nil {
					return nil, fmt.Errorf("use a reservation on node %s: %w", node, err)
				}
				break
			}
		}
	}
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = node
	with, err := framework.NewPodInfo(assumed)
	if err != nil {
		return nil, bad("pod %s/%s: %v", pod.Namespace, pod.Name, err)
	}
	info.AddPodInfo(with)
	s.nodes.placed[pod.UID] = true
	if s.quotas != nil {
		s.quotas.Reserve(string(pod.UID))
	}
	return &placed{assumed, node, record()}, nil
}

// preempt finds the pods that would be evicted for a pod that fits on no node, removes them and places the pod. Only
// nodes are looked at whose refusal is Unschedulable: what others refuse the pod for stays, whichever pods leave. All
// of them are looked at, from the first one on, so that the same question has the same answer.
func (s *session) preempt(pod *corev1.Pod) (*placed, []view.Victim, error) {
	f, err := s.profile(pod)
	if err != nil {
		return nil, nil, err
	}
	chooser := s.Preemption(f)
	if chooser == nil {
		return nil, nil, nil
	}
	if !chooser.MayPreempt(s.ctx, pod) {
		return nil, nil, nil
	}
	all, err := s.nodes.List()
	if err != nil {
		return nil, nil, err
	}
	cs := s.state(pod)
	narrowed, status, _ := f.RunPreFilterPlugins(s.ctx, cs, pod)
	var hopeful []fwk.NodeInfo
	for _, n := range all {
		name := n.Node().Name
		if status.IsSuccess() && (narrowed.AllNodes() || narrowed.NodeNames.Has(name)) &&
			f.RunFilterPluginsWithNominatedPods(s.ctx, cs, pod, n).Code() == fwk.Unschedulable {
			hopeful = append(hopeful, n)
		}
	}
	if len(hopeful) == 0 {
		return nil, nil, nil
	}
	budgets, err := chooser.Budgets()
	if err != nil {
		return nil, nil, fmt.Errorf("list PodDisruptionBudgets: %w", err)
	}
	chosen, evicted, err := chooser.Best(s.ctx, cs, pod, hopeful, budgets)
	if err != nil || len(evicted) == 0 {
		return nil, nil, err
	}
	var victims []view.Victim
	for _, v := range evicted {
		if err := s.remove(v); err != nil {
			return nil, nil, err
		}
		victims = append(victims, view.Victim{
			Pod: v.Namespace + "/" + v.Name, Node: v.Spec.NodeName, For: pod.Namespace + "/" + pod.Name,
		})
	}
	p, err := s.place(pod, func(node string) bool { return node == chosen })
	return p, victims, err
}

// arrive gives a pod of the question the ResourceClaims of its templates. like is a pod that has such claims, nil for
// none.
func (s *session) arrive(pod, like *corev1.Pod) (own []*resourcev1.ResourceClaim, err error) {
	if own, err = s.Arrive(s.ctx, pod, like); err != nil {
		return nil, bad("pod %s/%s: %v", pod.Namespace, pod.Name, err)
	}
	for _, c := range own {
		if s.quotas != nil {
			s.quotas.PutClaim(c)
		}
	}
	return own, nil
}

// remove takes a bound pod off its node and its ResourceClaims.
func (s *session) remove(pod *corev1.Pod) error {
	err := s.take(pod)
	if err == nil {
		s.Leave(s.trial, pod)
	}
	return err
}

// take takes a bound pod off its node.
func (s *session) take(pod *corev1.Pod) error {
	info, err := s.nodes.change(pod.Spec.NodeName)
	if err == nil {
		err = info.RemovePod(klog.FromContext(s.ctx), pod)
	}
	if err != nil {
		return fmt.Errorf("remove pod %s/%s from node %s: %w", pod.Namespace, pod.Name, pod.Spec.NodeName, err)
	}
	s.trial.Take(pod.Spec.NodeName, string(pod.UID))
	if s.quotas != nil {
		s.quotas.Remove(string(pod.UID))
	}
	return nil
}
