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

	"github.com/tenon-project/tenon/internal/core/comparison"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/view"
)

// Past is the cluster as it was when another scheduler bound a pod. Not safe for concurrent use.
type Past struct {
	// Scheduler is the name of the scheduler that is asked.
	Scheduler string
	// Before reports whether a pod was bound before the one that is compared.
	Before func(uid string) bool
	// Devices has the entries of pods, by UID, whose devices another program chose: with those that the scheduler would
	// have given them on their nodes, or Unallocated where it would have given none. Comparisons add to it.
	Devices map[string]ledger.Entry
}

// Compare returns what a scheduler would have decided about a bound pod, and what both nodes are worth. Both are looked
// at in one copy of the cluster: without the pod, and without those that were bound later.
func (e *Engine) Compare(ctx context.Context, pod *corev1.Pod, past Past) (out view.ShadowPod, err error) {
	err = e.session(ctx, func(s *session) error {
		c := &pastSession{session: s, Past: past, pod: pod, lost: s.Lost()}
		out, err = c.compare()
		return err
	})
	return out, err
}

// pastSession is a session about the cluster as it was when another scheduler bound a pod.
type pastSession struct {
	*session
	Past
	pod  *corev1.Pod
	lost func(Trial, *corev1.Node, int64) int64
}

func (c *pastSession) compare() (out view.ShadowPod, err error) {
	pod := c.pod
	out = view.ShadowPod{
		Pod: pod.Namespace + "/" + pod.Name, UID: string(pod.UID), Scheduler: pod.Spec.SchedulerName,
		Bound: view.ShadowNode{Node: pod.Spec.NodeName},
	}
	next, later, err := c.goBack()
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
		if out.Tenon, err = c.at(name, scores); out.Tenon != nil || err != nil {
			break
		}
	}
	there := out.Tenon
	if err == nil && (there == nil || there.Node != pod.Spec.NodeName) {
		there, err = c.at(pod.Spec.NodeName, scores)
	}
	if err != nil {
		return out, err
	}
	out.Outcome = comparison.Of(candidate(there), candidate(out.Tenon))
	if out.Outcome == comparison.Nowhere {
		explained, err := c.explain(next)
		if err != nil {
			return out, err
		}
		out.RootCause = explained.RootCause
	}
	if there == nil {
		return out, c.refusals(&out.Bound)
	}
	out.Bound = *there
	return out, nil
}

// candidate is a node for a comparison; nil for none.
func candidate(n *view.ShadowNode) *comparison.Candidate {
	if n == nil {
		return nil
	}
	c := &comparison.Candidate{Node: n.Node}
	if n.Score != nil {
		c.Score = n.Score.Total
	}
	return c
}

// goBack starts anew, and takes the cluster back to when the pod was bound: it removes the pods that were bound later,
// and the pod, and gives devices to pods that have others' on nodes where Tenon gives them. It returns the pod as it
// was, with the scheduler's name, and how many others it has removed.
//
// It is called before each look at the cluster, since a look reserves. What is gone is gone for good: pods that ended
// meanwhile are not brought back, so the cluster of then may have had less room than this one.
func (c *pastSession) goBack() (next *corev1.Pod, later int, err error) {
	c.restart()
	all, err := c.nodes.List()
	if err != nil {
		return nil, 0, err
	}
	for _, n := range all {
		name, known := n.Node().Name, map[string]bool{}
		for _, info := range slices.Clone(n.GetPods()) {
			p := info.GetPod()
			known[string(p.UID)] = true
			if c.Before(string(p.UID)) || convert.IsReservePod(p) {
				continue
			}
			if err := c.remove(p); err != nil {
				return nil, 0, err
			}
			if p.UID != c.pod.UID { // which may have ended already
				later++
			}
		}
		for e := range c.trial.Account(name).Entries() { // the account may be ahead of the node
			if !known[e.UID] && !e.IsClaim() {
				c.trial.Take(name, e.UID)
			}
		}
		if err := c.allocate(name); err != nil {
			return nil, 0, err
		}
	}
	next, err = c.asked(c.pod)
	return next, later, err
}

// asked returns a pod as the scheduler would have been asked to place it.
func (c *pastSession) asked(pod *corev1.Pod) (*corev1.Pod, error) {
	next, err := c.successor(pod)
	if err != nil {
		return nil, err
	}
	next.Spec.SchedulerName = c.Scheduler
	return next, nil
}

// allocate gives the pods of a node whose devices another program chose those that Tenon would have given them. While
// it is not known which devices a pod has, Tenon gives none of the node.
//
// The order matters. All such pods are taken off first, as one of them closes the node for all questions. Then those
// come whose devices an earlier comparison has chosen, so that no other pod gets these; then the others, the oldest
// first, as they came; and last those for which there is none, which close the node again.
func (c *pastSession) allocate(node string) error {
	v := c.trial.Account(node)
	if !v.Facts().OwnDevices || v.UnknownHolders() == 0 {
		return nil
	}
	info, err := c.nodes.Get(node)
	if err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	var waiting []fwk.PodInfo
	var known, none []ledger.Entry
	for _, p := range info.GetPods() {
		uid := string(p.GetPod().UID)
		e, held := v.Entry(uid)
		if !held || !e.Unallocated || v.Facts().Devices.Reports(uid) {
			continue
		}
		c.trial.Take(node, uid)
		switch e, has := c.Devices[uid]; {
		case !has:
			waiting = append(waiting, p)
		case e.Unallocated:
			none = append(none, e)
		default:
			known = append(known, e)
		}
	}
	for _, e := range known {
		c.trial.Put(node, e)
	}
	slices.SortFunc(waiting, func(a, b fwk.PodInfo) int {
		p, q := a.GetPod(), b.GetPod()
		return cmp.Or(p.CreationTimestamp.Compare(q.CreationTimestamp.Time), cmp.Compare(p.UID, q.UID))
	})
	for _, p := range waiting {
		uid := string(p.GetPod().UID)
		e, _ := v.Entry(uid)
		if e, err = c.reallocate(p, e); err != nil {
			return err
		}
		if c.Devices[uid] = e; e.Unallocated {
			none = append(none, e)
			continue
		}
		c.trial.Put(node, e)
	}
	for _, e := range none { // these close the node
		c.trial.Put(node, e)
	}
	return nil
}

// reallocate returns the entry of a pod with the devices that Tenon would have given it on its node, the entry that it
// has where there are none. The pod is placed by a cycle on that node alone, then its successor is removed and the pod
// put back: the node ends as it was, and only the entry has what was found.
func (c *pastSession) reallocate(info fwk.PodInfo, was ledger.Entry) (ledger.Entry, error) {
	pod := info.GetPod()
	node := pod.Spec.NodeName
	if err := c.take(pod); err != nil {
		return was, err
	}
	next, err := c.asked(pod)
	if err != nil {
		return was, err
	}
	next.Spec.ResourceClaims = nil // the pod keeps what it has by claims
	f, cs, fit, err := c.feasible(next, func(name string) bool { return name == node })
	if err != nil {
		return was, err
	}
	if len(fit) > 0 {
		p, err := c.reserve(f, cs, next, node)
		if err != nil {
			return was, err
		}
		if p != nil {
			now, _ := c.trial.Account(node).Entry(string(next.UID))
			was.Devices, was.Unallocated = now.Devices, len(now.Devices) == 0
			if err := c.remove(p.pod); err != nil {
				return was, err
			}
		}
	}
	there, err := c.nodes.change(node)
	if err == nil {
		there.AddPodInfo(info)
	}
	return was, err
}

// scores returns the scores of feasible nodes by name; none for fewer than two, as the scheduler does not score them.
func (c *pastSession) scores(f framework.Framework, cs fwk.CycleState, pod *corev1.Pod, fit []fwk.NodeInfo,
) (map[string]view.Score, error) {
	out := map[string]view.Score{}
	if len(fit) < 2 {
		return out, nil
	}
	weights := map[string]int64{}
	for _, p := range f.ListPlugins().Score.Enabled {
		weights[p.Name] = int64(p.Weight)
	}
	scores, err := c.score(f, cs, pod, fit)
	for i := range scores {
		s := view.Score{Node: scores[i].Name, Total: scores[i].TotalScore}
		for _, p := range scores[i].Scores {
			w := weights[p.Name]
			s.Plugins = append(s.Plugins, view.PluginScore{
				Name: p.Name, Score: p.Score, Normalized: p.Score / max(w, 1), Weight: w,
			})
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

// at describes the pod on a node; nil where the node refuses it. That includes a refusal by Reserve, as in place. The
// scores are those of the whole cluster, made before.
func (c *pastSession) at(node string, scores map[string]view.Score) (*view.ShadowNode, error) {
	pod, _, err := c.goBack()
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

// refusals adds why the pod's node refuses it, and why its kubelet would.
func (c *pastSession) refusals(out *view.ShadowNode) error {
	pod, _, err := c.goBack()
	if err != nil {
		return err
	}
	if guest := convert.ReadPod(c.pod).Entry.Guest; guest != nil {
		reason := c.trial.Account(out.Node).Admits(guest.Pod)
		if !reason.OK() {
			rejects := why.Obstacle{Finding: why.Finding{Reason: reason, Object: out.Node}, Nodes: 1}.Wire()
			out.Kubelet = &rejects
		}
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
