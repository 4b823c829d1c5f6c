package whatif

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/defrag"
	"github.com/tenon-project/tenon/internal/view"
)

const (
	// defaultMoves is how many moves are tried if the question does not say; mostMoves is the most that it may ask for.
	defaultMoves = 2
	mostMoves    = 8
	// setsLooked and targetsTried bound a search for sets of more than two moves.
	setsLooked   = 20_000
	targetsTried = 64
)

// room is a search for moves that make room for pods. It is the defrag.Cluster of the search.
//
// It answers the search at three prices: Capacity filters one node, Targets ranks the nodes for one pod, and Works runs
// whole cycles for a set. Only a set that Works accepted is answered, so that the first two need not be exact.
type room struct {
	*session
	// demand are the pods that need room. All ask for the same.
	demand []*corev1.Pod
	// f is the profile of the pods that need room.
	f framework.Framework
	// cs is the state of a cycle of the first pod after its PreFilter. Each evaluation of a node copies it.
	cs      fwk.CycleState
	allowed func(node string) bool // by PreFilter
	movable map[string]*corev1.Pod // by UID
	rules   map[string]*ruledPod   // by UID, those that were asked about
	// moved and placed are the successors and the pods of the last set that was tried.
	moved, placed []*placed
}

// makeRoom answers which pods to move so that all pods of the demand fit.
func (s *session) makeRoom(q *view.WhatIf, demand []*corev1.Pod, out *view.WhatIfAnswer) error {
	r := &room{session: s, demand: demand, movable: map[string]*corev1.Pod{}, rules: map[string]*ruledPod{}}
	moves, err := r.check(q)
	if err != nil {
		return err
	}
	if r.f, err = s.profile(demand[0]); err != nil {
		return err
	}
	r.cs = s.state(demand[0])
	narrowed, status, _ := r.f.RunPreFilterPlugins(s.ctx, r.cs, demand[0])
	out.Room = &view.RoomPlan{Moves: []view.RoomMove{}, MaxMoves: moves, Proven: true}
	if !status.IsSuccess() {
		return r.hopeless(out)
	}
	r.allowed = func(node string) bool { return narrowed.AllNodes() || narrowed.NodeNames.Has(node) }
	all, err := s.nodes.List()
	if err != nil {
		return err
	}
	cost := costsOf(&q.Ask)
	var nodes []string
	var pods []defrag.Pod
	for _, n := range all {
		here := r.collectMovable(n, cost)
		if r.allowed(n.Node().Name) {
			nodes = append(nodes, n.Node().Name)
		} else { // the demand cannot get what such a pod leaves, but a rule can count the pod
			here = slices.DeleteFunc(here, func(p defrag.Pod) bool { return !r.Linked("", p.UID) })
		}
		pods = append(pods, here...)
	}
	limits := defrag.Limits{Moves: moves, Sets: setsLooked, Targets: targetsTried}
	var found defrag.Result
	late, err := s.within(s.searchTime(), func() (err error) {
		found, err = defrag.Search(r, nodes, pods, len(demand), limits)
		return err
	})
	if err != nil {
		return err
	}
	out.Room.Found, out.Room.Proven, out.Room.Looked = found.Found, found.Proven, found.Sets
	switch {
	case late:
		out.Room.Bound = r.searchTime().String()
	case found.Bounded:
		out.Room.Bound = fmt.Sprintf("%d sets of more than 2 moves", setsLooked)
	}
	if !found.Found {
		return r.hopeless(out)
	}
	for i, m := range found.Moves {
		p := r.moved[i].describe()
		out.Room.Moves = append(out.Room.Moves, view.RoomMove{
			Pod: p.Pod, UID: m.UID, Node: m.Node, Target: m.Target, Cost: m.Cost, Priority: m.Priority,
			ResourceStatus: p.ResourceStatus, Devices: p.Devices,
		})
	}
	for _, p := range r.placed {
		out.Placements = append(out.Placements, p.describe())
	}
	return nil
}

// costsOf returns what moving each pod costs that the question allows to move, by UID.
func costsOf(ask *view.Ask) map[string]int64 {
	cost := map[string]int64{}
	for _, m := range ask.Movable {
		cost[m.UID] = m.Cost
	}
	return cost
}

// collectMovable returns the pods of a node that may move, with their costs, and keeps them in r.movable. A pod of
// another scheduler does not move: this one cannot say where its successor would go.
func (r *room) collectMovable(n fwk.NodeInfo, cost map[string]int64) (pods []defrag.Pod) {
	for _, info := range n.GetPods() {
		pod := info.GetPod()
		if c, may := cost[string(pod.UID)]; may && r.profiles[pod.Spec.SchedulerName] != nil {
			r.movable[string(pod.UID)] = pod
			pods = append(pods, defrag.Pod{
				UID: string(pod.UID), Node: n.Node().Name, Cost: c, Priority: corev1helpers.PodPriority(pod),
			})
		}
	}
	return pods
}

// within runs a search within its time, and reports whether that ended it. An error of the search after its time is
// taken for the end of that time; one after the answer's deadline is not.
func (s *session) within(limit time.Duration, search func() error) (late bool, err error) {
	// The deadline of the answer is later than that of the search, so that the answer can say what was found.
	whole := s.ctx
	ctx, cancel := context.WithTimeout(whole, limit)
	s.ctx = ctx
	defer func() {
		cancel()
		s.ctx = whole
	}()
	if err = search(); err != nil && ctx.Err() != nil && whole.Err() == nil {
		return true, nil
	}
	return false, err
}

// hopeless adds to the answer why the first pod fits nowhere as the cluster is.
func (r *room) hopeless(out *view.WhatIfAnswer) error {
	r.restart()
	why, err := r.explain(r.demand[0])
	if err == nil {
		out.Unschedulable = append(out.Unschedulable, why)
	}
	return err
}

// check refuses questions that this mode cannot answer, and returns how many moves are allowed.
func (r *room) check(q *view.WhatIf) (moves int, err error) {
	moves = q.Ask.MaxMoves
	if moves == 0 {
		moves = defaultMoves
	}
	switch {
	case len(q.Changes) > 0 || len(q.Ask.Nodes) > 0:
		return 0, bad("changes and ask.nodes exclude mode %s", view.MakeRoom)
	case len(r.demand) == 0:
		return 0, bad("ask.pods is empty: name the pods that need room")
	case moves < 1 || moves > mostMoves:
		return 0, bad("ask.maxMoves is %d, want 1 to %d", moves, mostMoves)
	}
	for i, pod := range r.demand[1:] {
		if !equality.Semantic.DeepEqual(wishes(r.demand[0]), wishes(pod)) {
			return 0, bad("ask.pods[%d]: pod %s/%s has other requests than pod %s/%s: make room for them one after "+
				"the other", i+1, pod.Namespace, pod.Name, r.demand[0].Namespace, r.demand[0].Name)
		}
	}
	return moves, nil
}

// wishes is what decides where a pod fits.
func wishes(pod *corev1.Pod) []any {
	var resources []corev1.ResourceRequirements
	for i := range pod.Spec.Containers {
		resources = append(resources, pod.Spec.Containers[i].Resources)
	}
	return []any{
		pod.Namespace, pod.Spec.SchedulerName, pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.Tolerations,
		pod.Spec.TopologySpreadConstraints, pod.Labels[annotation.QoSClass], corev1helpers.PodPriority(pod), resources,
		pod.Spec.ResourceClaims, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}), pod.Annotations,
	}
}

// restart drops what a set has changed.
func (r *room) restart() {
	r.session.restart()
	r.moved, r.placed = nil, nil
}

// Capacity runs the filters on a copy of the node, as a dry run of preemption does, without the pods that are gone, for
// one pod after the other.
func (r *room) Capacity(node string, gone []string, want int) (n int, ruled bool, err error) {
	if !r.allowed(node) {
		return 0, false, r.ctx.Err()
	}
	info, err := r.nodes.Get(node)
	if err != nil {
		return 0, false, err
	}
	info, cs, first := info.Snapshot(), r.cs.Clone(), r.demand[0]
	for _, uid := range gone {
		// The filters learn of each pod that is gone, as in preemption.
		leaving, err := framework.NewPodInfo(r.movable[uid])
		if err == nil {
			err = info.RemovePod(klog.FromContext(r.ctx), leaving.Pod)
		}
		if err == nil {
			err = r.f.RunPreFilterExtensionRemovePod(r.ctx, cs, first, leaving, info).AsError()
		}
		if err != nil {
			return 0, false, fmt.Errorf("leave pod %s out of node %s: %w", uid, node, err)
		}
	}
	for ; n < want; n++ {
		status := r.f.RunFilterPluginsWithNominatedPods(r.ctx, cs, first, info)
		if status.IsRejected() {
			return n, isBetweenNodes(status), r.ctx.Err()
		}
		if !status.IsSuccess() {
			return 0, false, fmt.Errorf("filter node %s: %w", node, status.AsError())
		}
		if n+1 == want {
			return want, false, r.ctx.Err()
		}
		next := r.demand[n].DeepCopy()
		next.Spec.NodeName = node
		with, err := framework.NewPodInfo(next)
		if err != nil {
			return 0, false, err
		}
		info.AddPodInfo(with)
		if status := r.f.RunPreFilterExtensionAddPod(r.ctx, cs, first, with, info); !status.IsSuccess() {
			return 0, false, fmt.Errorf("add a pod to node %s: %w", node, status.AsError())
		}
	}
	return n, false, r.ctx.Err()
}

// isBetweenNodes reports whether a node refuses a pod by a rule that pods of other nodes count for.
func isBetweenNodes(status *fwk.Status) bool {
	return slices.Contains([]string{names.InterPodAffinity, names.VolumeRestrictions}, status.Plugin()) ||
		strings.HasSuffix(status.Plugin(), names.PodTopologySpread) // Tenon's has a prefix
}

// Linked reports whether a rule between nodes of one pod counts the other one; "" is the demand.
func (r *room) Linked(a, b string) bool {
	p, q := r.ruledPod(a), r.ruledPod(b)
	return p.counts(q.pod) || q.counts(p.pod)
}

// ruledPod returns a movable pod, or one of the demand for "", with its rules.
func (r *room) ruledPod(uid string) *ruledPod {
	if known := r.rules[uid]; known != nil {
		return known
	}
	p := &ruledPod{pod: r.movable[uid]}
	if uid == "" {
		p.pod = r.demand[0]
	}
	for _, c := range p.pod.Spec.TopologySpreadConstraints {
		if s, err := metav1.LabelSelectorAsSelector(c.LabelSelector); err == nil &&
			c.WhenUnsatisfiable == corev1.DoNotSchedule {
			p.spread = append(p.spread, s)
		}
	}
	if info, err := framework.NewPodInfo(p.pod); err == nil {
		p.terms = slices.Concat(info.GetRequiredAffinityTerms(), info.GetRequiredAntiAffinityTerms())
	}
	r.rules[uid] = p
	return p
}

// ruledPod is a pod with its required rules between nodes.
type ruledPod struct {
	pod    *corev1.Pod
	spread []labels.Selector
	terms  []fwk.AffinityTerm
}

// counts reports whether a rule of the pod can count another one: its spreading, its (anti-)affinity, or a claim that
// both mount, which may be one for a single pod. Where a selector of namespaces decides, it can.
func (p *ruledPod) counts(other *corev1.Pod) bool {
	set := labels.Set(other.Labels)
	return slices.ContainsFunc(p.terms, func(t fwk.AffinityTerm) bool {
		_, selects := t.NamespaceSelector.Requirements()
		return (selects || t.Namespaces.Has(other.Namespace)) && t.Selector.Matches(set)
	}) || p.pod.Namespace == other.Namespace && (slices.ContainsFunc(p.spread, func(s labels.Selector) bool {
		return s.Matches(set)
	}) || slices.ContainsFunc(p.pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && slices.ContainsFunc(other.Spec.Volumes, func(o corev1.Volume) bool {
			return o.PersistentVolumeClaim != nil &&
				o.PersistentVolumeClaim.ClaimName == v.PersistentVolumeClaim.ClaimName
		})
	}))
}

// Targets returns the nodes for a successor of the pod, the best score first, and those that a rule between nodes
// refuses; none where the pod's quotas have no room for the Reservation beside it.
func (r *room) Targets(uid string) (ranked, ruled []string, err error) {
	if !r.admitsAgain(uid) {
		return nil, nil, nil
	}
	pod := r.movable[uid]
	next, err := r.successor(pod)
	if err != nil {
		return nil, nil, err
	}
	f, cs, fit, refused, err := r.filter(next, func(node string) bool { return node != pod.Spec.NodeName })
	if err != nil {
		return nil, nil, err
	}
	for node, status := range refused {
		if isBetweenNodes(status) {
			ruled = append(ruled, node)
		}
	}
	slices.Sort(ruled)
	if len(fit) > 0 {
		ranked, err = r.rank(f, cs, next, fit)
	}
	return ranked, ruled, err
}

// Works places the successors, removes the pods and places the demand, each by a cycle of its own. Nothing remains of a
// set that does not work. Successors come before their pods leave, as a migration reserves the new place first: for
// that time the quotas hold both, and no successor gets the room of a pod that is to move.
func (r *room) Works(moves []defrag.Move) (works bool, err error) {
	r.restart()
	defer func() {
		if !works {
			r.restart()
		}
	}()
	var uids []string
	for _, m := range moves {
		uids = append(uids, m.UID)
	}
	if !r.admitsAgain(uids...) {
		return false, nil
	}
	for _, m := range moves {
		next, err := r.successor(r.movable[m.UID])
		if err != nil {
			return false, err
		}
		p, err := r.place(next, func(node string) bool { return node == m.Target })
		if p == nil || err != nil {
			return false, err
		}
		r.moved = append(r.moved, p)
	}
	for _, m := range moves {
		if err := r.remove(r.movable[m.UID]); err != nil {
			return false, err
		}
	}
	for _, pod := range r.demand {
		p, err := r.place(pod, nil)
		if p == nil || err != nil {
			return false, err
		}
		r.placed = append(r.placed, p)
	}
	return true, nil
}
