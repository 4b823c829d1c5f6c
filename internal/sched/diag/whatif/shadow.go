package whatif

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/view"
)

// Compare returns what the scheduler of a name would have decided about a bound pod, and what both nodes are worth.
// Both are looked at in one copy of the cluster: without the pod, and without those of which before reports that they
// were bound later.
func (e *Engine) Compare(ctx context.Context, pod *corev1.Pod, scheduler string, before func(uid string) bool,
) (out view.ShadowPod, err error) {
	err = e.session(ctx, func(s *session) error {
		c := &comparison{session: s, pod: pod, lost: s.Lost()}
		out, err = c.compare(scheduler, before)
		return err
	})
	return out, err
}

type comparison struct {
	*session
	pod    *corev1.Pod
	before func(uid string) bool
	lost   func(Trial, *corev1.Node, int64) int64
}

func (c *comparison) compare(scheduler string, before func(uid string) bool) (out view.ShadowPod, err error) {
	pod := c.pod
	out = view.ShadowPod{
		Pod: pod.Namespace + "/" + pod.Name, UID: string(pod.UID), Scheduler: pod.Spec.SchedulerName,
		Bound: view.ShadowNode{Node: pod.Spec.NodeName},
	}
	c.before = before
	next, later, err := c.goBack(scheduler)
	if err != nil {
		return out, err
	}
	f, cs, fit, err := c.feasible(next, func(string) bool { return true })
	if err != nil {
		return out, err
	}
	out.Later, out.Feasible, out.Nodes = later, len(fit), len(c.nodes.list)
	scores, err := c.scores(f, cs, next, fit)
	if err != nil {
		return out, err
	}
	for _, name := range order(scores, fit) { // the first one, unless its exact answer is another than its filter's
		if out.Tenon, err = c.at(scheduler, name, scores); out.Tenon != nil || err != nil {
			break
		}
	}
	switch {
	case err != nil:
		return out, err
	case out.Tenon == nil:
		out.Outcome = view.ShadowNowhere
		explained, err := c.explain(next)
		if err != nil {
			return out, err
		}
		out.RootCause = explained.RootCause
		return out, c.refusals(scheduler, &out.Bound)
	case out.Tenon.Node == pod.Spec.NodeName:
		out.Outcome, out.Bound = view.ShadowSame, *out.Tenon
		return out, nil
	}
	there, err := c.at(scheduler, pod.Spec.NodeName, scores)
	if err != nil {
		return out, err
	}
	if there == nil {
		out.Outcome = view.ShadowRefused
		return out, c.refusals(scheduler, &out.Bound)
	}
	out.Outcome, out.Bound = view.ShadowBetter, *there
	if scores[there.Node].Total == scores[out.Tenon.Node].Total {
		out.Outcome = view.ShadowEqual
	}
	return out, nil
}

// goBack starts anew, and takes the cluster back to when the pod was bound: it removes the pods that were bound later,
// and the pod. It returns the pod as it was, with the scheduler's name, and how many others it has removed.
func (c *comparison) goBack(scheduler string) (next *corev1.Pod, later int, err error) {
	c.restart()
	all, err := c.nodes.List()
	if err != nil {
		return nil, 0, err
	}
	for _, n := range all {
		for _, info := range slices.Clone(n.GetPods()) {
			p := info.GetPod()
			if c.before(string(p.UID)) || convert.IsReservePod(p) {
				continue
			}
			if err := c.remove(p); err != nil {
				return nil, 0, err
			}
			if p.UID != c.pod.UID { // which may have ended already
				later++
			}
		}
	}
	next = c.successor(c.pod)
	next.Spec.SchedulerName = scheduler
	return next, later, nil
}

// scores returns the scores of feasible nodes by name; none for fewer than two, as the scheduler does not score them.
func (c *comparison) scores(f framework.Framework, cs fwk.CycleState, pod *corev1.Pod, fit []fwk.NodeInfo,
) (map[string]view.Score, error) {
	out := map[string]view.Score{}
	if len(fit) < 2 {
		return out, nil
	}
	scores, err := c.score(f, cs, pod, fit)
	for i := range scores {
		s := view.Score{Node: scores[i].Name, Total: scores[i].TotalScore}
		for _, p := range scores[i].Scores {
			s.Plugins = append(s.Plugins, view.PluginScore{Name: p.Name, Score: p.Score})
		}
		slices.SortFunc(s.Plugins, func(a, b view.PluginScore) int { return cmp.Compare(a.Name, b.Name) })
		out[s.Node] = s
	}
	return out, err
}

// order returns the names of feasible nodes, the best first.
func order(scores map[string]view.Score, fit []fwk.NodeInfo) (names []string) {
	if len(scores) == 0 {
		for _, n := range fit {
			names = append(names, n.Node().Name)
		}
		return names
	}
	for _, s := range slices.SortedFunc(maps.Values(scores), view.CompareScores) {
		names = append(names, s.Node)
	}
	return names
}

// at describes the pod on a node; nil where the node refuses it.
func (c *comparison) at(scheduler, node string, scores map[string]view.Score) (*view.ShadowNode, error) {
	pod, _, err := c.goBack(scheduler)
	if err != nil {
		return nil, err
	}
	f, cs, fit, err := c.feasible(pod, func(name string) bool { return name == node })
	if err != nil || len(fit) == 0 {
		return nil, err
	}
	free := func() (int64, error) {
		info, err := c.nodes.Get(node)
		if err != nil {
			return 0, err
		}
		left := info.GetAllocatable().GetMilliCPU() - info.GetRequested().GetMilliCPU()
		return c.lost(c.trial, info.Node(), left), nil
	}
	before, err := free()
	if err != nil {
		return nil, err
	}
	p, err := c.reserve(f, cs, pod, node)
	if p == nil || err != nil {
		return nil, err
	}
	after, err := free()
	if err != nil {
		return nil, err
	}
	out := &view.ShadowNode{Node: node, Lost: after - before}
	if s, scored := scores[node]; scored {
		out.Score = &s
	}
	if p.pod.Annotations == nil {
		p.pod.Annotations = map[string]string{}
	}
	maps.Copy(p.pod.Annotations, p.record)
	fill(out, c.Describe(cs, c.trial, p.pod))
	return out, nil
}

// fill adds what a pod has in a placement.
func fill(out *view.ShadowNode, p *view.Placement) {
	out.Devices, out.CPUSet = p.Devices, p.CPUSet
	if p.CPUSet != "" {
		out.NUMA = len(p.NUMA)
	}
	masks := map[int]bool{}
	for _, container := range p.Predicted {
		for _, id := range container.Mask {
			masks[id] = true
		}
	}
	out.NUMA = max(out.NUMA, len(masks))
	if p.Choice == nil {
		return
	}
	for _, set := range p.Choice.Sets {
		for _, key := range set.Keys {
			if set.Held && key.Name == "links" {
				out.Links = key.Value
			}
		}
	}
}

// refusals adds why a node refuses the pod.
func (c *comparison) refusals(scheduler string, out *view.ShadowNode) error {
	pod, _, err := c.goBack(scheduler)
	if err != nil {
		return err
	}
	f, err := c.profile(pod)
	if err != nil {
		return err
	}
	info, err := c.nodes.Get(out.Node)
	if err != nil {
		return fmt.Errorf("node %s: %w", out.Node, err)
	}
	cs, phase := c.state(pod), why.PreFilter
	narrowed, status, _ := f.RunPreFilterPlugins(c.ctx, cs, pod)
	if status.IsSuccess() && (narrowed.AllNodes() || narrowed.NodeNames.Has(out.Node)) {
		status, phase = f.RunFilterPluginsWithNominatedPods(c.ctx, cs, pod, info), why.Filter
	}
	for _, o := range why.RootFirst(refusals.Findings(pod, info, phase, status, "")) {
		out.Refusals = append(out.Refusals, view.Refusal{Wire: o.Wire(), HaveNeed: o.HaveNeed()})
	}
	return nil
}
