package coscheduling

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
)

// mostKinds bounds how many kinds of members are looked at on the nodes before a plan.
const mostKinds = 16

// sortConstrained puts the members of a round in the order in which they are tried, see gang.SortConstrained. The
// nodes are those of the last snapshot, which may be old: the order decides how soon a plan is found and nothing else.
// Members that ask for the same remain in the order of the plan.
func (r *Rounds) sortConstrained(round *groupRound) {
	var kinds []*framework.QueuedPodInfo // the first member of each kind
	kindOf := map[string]int{}
	for _, uid := range round.next {
		pod := round.queued[uid]
		kind := slices.IndexFunc(kinds, func(other *framework.QueuedPodInfo) bool { return asksAlike(pod, other) })
		if kind < 0 {
			if len(kinds) == mostKinds {
				return
			}
			kind, kinds = len(kinds), append(kinds, pod)
		}
		kindOf[uid] = kind
	}
	if len(kinds) < 2 {
		return
	}
	constraints := make([]gang.Constraint, len(kinds))
	for i, pod := range kinds {
		nodes, err := r.Core.Profiles[pod.Pod.Spec.SchedulerName].SnapshotSharedLister().NodeInfos().List()
		if err != nil {
			return
		}
		constraints[i] = constraintOf(pod, nodes)
	}
	gang.SortConstrained(round.next,
		func(uid string) int32 { return corev1helpers.PodPriority(round.queued[uid].Pod) },
		func(uid string) gang.Constraint { return constraints[kindOf[uid]] })
}

// asksAlike reports whether two members ask for the same amounts on the same nodes.
func asksAlike(a, b *framework.QueuedPodInfo) bool {
	x, y := a.CalculateResource().Resource, b.CalculateResource().Resource
	return x.GetMilliCPU() == y.GetMilliCPU() && x.GetMemory() == y.GetMemory() &&
		maps.Equal(x.GetScalarResources(), y.GetScalarResources()) &&
		maps.Equal(a.Pod.Spec.NodeSelector, b.Pod.Spec.NodeSelector) &&
		equality.Semantic.DeepEqual(a.Pod.Spec.Affinity, b.Pod.Spec.Affinity)
}

// constraintOf looks at what the nodes have in all, whatever is free of it.
func constraintOf(pod *framework.QueuedPodInfo, nodes []fwk.NodeInfo) (c gang.Constraint) {
	required, asked := nodeaffinity.GetRequiredNodeAffinity(pod.Pod), pod.CalculateResource().Resource
	if len(nodes) == 0 { // before the first snapshot
		return gang.Constraint{Share: float64(asked.GetMilliCPU())}
	}
	for _, node := range nodes {
		if matches, err := required.Match(node.Node()); err != nil || !matches {
			continue
		}
		share := shareOf(asked, node.GetAllocatable(), nothing)
		if share > 1 {
			continue
		}
		if c.Nodes++; c.Nodes == 1 || share < c.Share {
			c.Share = share
		}
	}
	return c
}

var nothing = &framework.Resource{}

// shareOf returns the largest part that is asked for of what a node has and does not use, of any resource that the node
// reports; above 1 where it has less.
func shareOf(asked, has, used fwk.Resource) (share float64) {
	part := func(asked, free int64) {
		if asked > 0 {
			share = max(share, float64(asked)/max(float64(free), 0.5))
		}
	}
	part(asked.GetMilliCPU(), has.GetMilliCPU()-used.GetMilliCPU())
	part(asked.GetMemory(), has.GetMemory()-used.GetMemory())
	for name, amount := range asked.GetScalarResources() {
		if n, reported := has.GetScalarResources()[name]; reported {
			part(amount, n-used.GetScalarResources()[name])
		}
	}
	return share
}

// searchNodes returns nodes for the members of a small group that trying one after the other has not found; nil where
// there are none, or where the group is too large, see gang.Search. Members that may not be on all nodes are left to
// the choice of their domains.
func (r *Rounds) searchNodes(ctx context.Context, round *groupRound, order []string) map[string]string {
	if len(order) > gang.MostSearched || len(round.places) > 0 {
		return nil
	}
	a := r.attempt(ctx, round)
	defer a.rollback(0)
	search := &gang.Search{
		Kinds: map[string]string{}, Nodes: map[string][]string{}, Steps: gang.MostSearchSteps, Place: a.placeOn,
		Remove: func() { a.rollback(len(a.undo) - 1) },
	}
	candidates := map[string]bool{}
	for _, uid := range order {
		kind := kindOf(round.queued[uid].Pod)
		if search.Kinds[uid] = kind; search.Nodes[kind] != nil {
			continue
		}
		nodes := a.nodesFor(uid, gang.MostSearchedNodes+1)
		search.Nodes[kind] = nodes
		for _, node := range nodes {
			candidates[node] = true
		}
		if len(candidates) > gang.MostSearchedNodes {
			return nil
		}
	}
	if len(search.Nodes) < 2 { // members of one kind need no other order
		return nil
	}
	nodes, ok := round.plan.Nodes(order, search)
	if !ok {
		return nil
	}
	return nodes
}

// nodesFor returns the nodes that take a member beside those that are placed, at most so many; first those of which the
// member takes most.
func (a *attempt) nodesFor(uid string, most int) (names []string) {
	f, asked := a.profile(uid), a.round.queued[uid].CalculateResource().Resource
	nodes, err := f.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil
	}
	accepts, share := a.filter(uid, f, a.state()), map[string]float64{}
	for _, node := range nodes {
		if name := node.Node().Name; len(names) < most && accepts(node) {
			names, share[name] = append(names, name), shareOf(asked, node.GetAllocatable(), node.GetRequested())
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(share[b], share[a]) })
	return names
}

// placeOn reserves a member on a node, until rollback. It reports whether the node takes it.
func (a *attempt) placeOn(uid, node string) bool {
	f, state := a.profile(uid), a.state()
	info, err := f.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil || !a.filter(uid, f, state)(info) {
		return false
	}
	assumed := anywhere(a.round.queued[uid]).DeepCopy()
	assumed.Pod.Spec.NodeName = node
	if a.reserveOn(uid, &placed{f, state, assumed.PodInfo}) != nil {
		return false
	}
	a.undo = append(a.undo, func() { a.unreserve(uid) })
	return true
}

// filter returns what asks the filters of a profile about a member on a node.
func (a *attempt) filter(uid string, f framework.Framework, state fwk.CycleState) func(fwk.NodeInfo) bool {
	pod := anywhere(a.round.queued[uid]).Pod
	within, status, _ := f.RunPreFilterPlugins(a.ctx, state, pod)
	return func(node fwk.NodeInfo) bool {
		return status.IsSuccess() && (within.AllNodes() || within.NodeNames.Has(node.Node().Name)) &&
			f.RunFilterPluginsWithNominatedPods(a.ctx, state, pod, node).IsSuccess()
	}
}
