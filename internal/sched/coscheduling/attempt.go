package coscheduling

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/sched/upstream/claims"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/sched/upstream/snapshot"
)

// attempt places members on the snapshot and on a copy of the accounts, each beside those before it. Each step pushes
// what undoes it; rollback pops and runs these, so that in the end snapshot and accounts are as before.
type attempt struct {
	*members
	cluster *Cluster
	planner *planner
	// ctx is that of the scheduling cycle in which the attempt is made.
	ctx context.Context
	// places are the domains in which members are tried that may not be anywhere, by UID.
	places map[string]*place
	// planned has the node that is tried first for a member, by UID, and the result once it is placed.
	planned map[string]loop.Result
	// trial is the copy of the nodes' accounts on which members are reserved.
	trial Trial
	// admits is set where the caller decides about quotas, and not the cycles of the members.
	admits bool
	// departed are the pods with claims that have left their nodes.
	departed []*corev1.Pod
	// session is the changes of the snapshot.
	session *snapshot.Session
	// placed are the members that are reserved now, by UID. reserved is how many ever were.
	placed   map[string]*placed
	reserved int
	// changed has the nodes that have changed, in the order of their changes. It only grows.
	changed []string
	// undo has what reverts each step, the first step first.
	undo []func()
	// broken is set when something that was undone could not be done again: the result of the attempt does not count.
	broken bool
}

// placed is a member that is reserved in an attempt.
type placed struct {
	// f is the member's profile, and state the state of its cycle, which Unreserve needs again.
	f     framework.Framework
	state fwk.CycleState
	// pod is a copy of the member that names its node.
	pod *framework.PodInfo
	// at is how many were reserved before it.
	at int
}

// attempt begins an attempt on members in their places, anywhere without. planned has the nodes to try first.
func (pl *planner) attempt(ctx context.Context, m *members, places map[string]*place,
	planned map[string]loop.Result,
) *attempt {
	for _, chosen := range places {
		chosen.at = 0
	}
	a := &attempt{
		cluster: pl.cluster, planner: pl, members: m, ctx: ctx, places: places,
		planned: map[string]loop.Result{}, trial: pl.cluster.Plugins.Trial(), placed: map[string]*placed{},
		session: snapshot.Begin(pl.profileOf(m.first())),
	}
	maps.Copy(a.planned, planned)
	return a
}

// on returns nodes of members as what an attempt tries first.
func on(nodes map[string]string) map[string]loop.Result {
	planned := map[string]loop.Result{}
	for uid, node := range nodes {
		planned[uid] = loop.Result{SuggestedHost: node}
	}
	return planned
}

// profile returns the profile of a member. Members of one gang may have different ones.
func (a *attempt) profile(uid string) framework.Framework {
	return a.cluster.Core.Profile(a.pods[uid].Pod.Spec.SchedulerName)
}

// state returns the state of a cycle that works on the copies.
func (a *attempt) state() fwk.CycleState {
	state := framework.NewCycleState()
	state.Write(framework.PodsToActivateKey, framework.NewPodsToActivate())
	a.trial.Mark(state)
	a.cluster.Plugins.Planned(state)
	claims.Depart(state, a.departed)
	if a.laterFirst {
		claims.LaterFirst(state)
	}
	if a.admits {
		a.cluster.Plugins.Admitted(state)
	}
	return state
}

// findNode chooses a node for a member.
func (a *attempt) findNode(uid string, state fwk.CycleState) (loop.Result, error) {
	a.planner.attempting = a
	defer func() { a.planner.attempting = nil }()
	return a.planner.schedule(a.ctx, a.profile(uid), state, anywhere(a.pods[uid]))
}

// try chooses a node for a member, the planned one where that takes it, and reserves it there. The state holds what
// plugins know of the pod, also after an error.
func (a *attempt) try(uid string) (fwk.CycleState, error) {
	state := a.state()
	if err := a.confine(uid, state); err != nil {
		return state, err
	}
	result, err := a.findNode(uid, state)
	// A domain may have several parts of which the member may be in any: the next ones are tried when one is full.
	chosen, in := a.places[uid], err
	for left := chosen.others(); in != nil && left > 0; left-- {
		chosen.at = (chosen.at + 1) % len(chosen.parts)
		if state = a.state(); a.confine(uid, state) == nil {
			result, in = a.findNode(uid, state)
			addNodes(err, in)
		}
	}
	if in != nil {
		return state, err
	}
	return state, a.reserveResult(uid, state, result)
}

// tryOn tries a member on one node alone, and reserves it there.
func (a *attempt) tryOn(uid, node string) error {
	state, err := a.findOn(uid, node)
	if err != nil {
		return err
	}
	return a.reserveResult(uid, state, a.planned[uid])
}

// findOn asks one node alone whether a member fits.
func (a *attempt) findOn(uid, node string) (fwk.CycleState, error) {
	state := a.state()
	if chosen := a.places[uid]; chosen != nil && chosen.mark != nil {
		chosen.mark(state)
	}
	alone := &part{name: "node " + node, nodes: sets.New(node)}
	if err := a.planner.domains.confine(a.profile(uid), alone); err != nil {
		return nil, err
	}
	a.planned[uid] = loop.Result{SuggestedHost: node}
	result, err := a.findNode(uid, state)
	if err == nil {
		a.planned[uid] = result
	}
	return state, err
}

// reserveResult reserves a member on the node that was chosen for it, until rollback.
func (a *attempt) reserveResult(uid string, state fwk.CycleState, result loop.Result) error {
	assumed := anywhere(a.pods[uid]).DeepCopy()
	assumed.Pod.Spec.NodeName = result.SuggestedHost
	if err := a.reserveOn(uid, &placed{f: a.profile(uid), state: state, pod: assumed.PodInfo}); err != nil {
		return err
	}
	// The result proposes the node in the member's own cycle.
	a.planned[uid] = result
	a.undo = append(a.undo, func() { a.unreserve(uid) })
	return nil
}

// confine confines the attempt on a member to where it may be placed beside those that are.
func (a *attempt) confine(uid string, state fwk.CycleState) error {
	chosen := a.places[uid]
	if chosen == nil {
		return a.planner.domains.confine(a.profile(uid), nil)
	}
	if chosen.mark != nil {
		chosen.mark(state)
	}
	for i := range chosen.parts[chosen.at:] {
		if p := &chosen.parts[chosen.at+i]; p.members == 0 || a.count(p, chosen) < p.members {
			return a.planner.domains.confine(a.profile(uid), p)
		}
	}
	return errors.New("the other members of its gang are as many as their domains may have: " +
		"the gang asks for multiples of a number in each")
}

// count returns how many members are placed in a part.
func (a *attempt) count(p *part, chosen *place) (n int) {
	for uid, m := range a.placed {
		if a.places[uid] == chosen && p.nodes.Has(m.pod.Pod.Spec.NodeName) {
			n++
		}
	}
	return n
}

// addNodes adds the nodes of one part of a domain that refuse a pod to those of another part, so that the report is of
// the whole domain.
func addNodes(to, from error) {
	var all, more *framework.FitError
	if !errors.As(to, &all) || !errors.As(from, &more) {
		return
	}
	all.NumAllNodes += more.NumAllNodes
	more.Diagnosis.NodeToStatus.ForEachExplicitNode(all.Diagnosis.NodeToStatus.Set)
	all.Diagnosis.UnschedulablePlugins = all.Diagnosis.UnschedulablePlugins.Union(more.Diagnosis.UnschedulablePlugins)
}

// nameMembers adds to the refusals of nodes which members are placed there: the nodes lack room beside these, and their
// free amounts, which are reported without the members, would seem to suffice.
func (a *attempt) nameMembers(cause error) {
	var fit *framework.FitError
	if !errors.As(cause, &fit) {
		return
	}
	members := map[string][]string{}
	for _, p := range a.placed {
		node := p.pod.Pod.Spec.NodeName
		members[node] = append(members[node], p.pod.Pod.Namespace+"/"+p.pod.Pod.Name)
	}
	for node, all := range members {
		status := fit.Diagnosis.NodeToStatus.Get(node)
		if status.IsSuccess() || status.AsError() == nil || status.Plugin() != names.NodeResourcesFit {
			continue
		}
		slices.Sort(all)
		named := fwk.NewStatus(status.Code()).WithError(&refusals.Beside{Status: status, Members: all})
		named.SetPlugin(status.Plugin())
		fit.Diagnosis.NodeToStatus.Set(node, named)
	}
}

// rollback undoes all steps but the first n.
func (a *attempt) rollback(n int) {
	for len(a.undo) > n {
		last := len(a.undo) - 1
		f := a.undo[last]
		a.undo = a.undo[:last]
		f()
	}
}

// reserveOn puts a member on its node in the snapshot, and lets the plugins reserve it there.
func (a *attempt) reserveOn(uid string, p *placed) error {
	node := p.pod.Pod.Spec.NodeName
	if err := a.session.Assume(p.pod); err != nil {
		return err
	}
	a.placed[uid], p.at = p, a.reserved
	a.reserved++
	a.markChanged(node)
	// The plugins reserve on the trial, because the state is marked.
	status := p.f.RunReservePluginsReserve(a.ctx, p.state, p.pod.Pod, node)
	if status.IsSuccess() {
		return nil
	}
	a.unreserve(uid)
	if !status.IsRejected() {
		return status.AsError() // a plugin failed
	}
	fit := &framework.FitError{Pod: p.pod.Pod, NumAllNodes: 1, Diagnosis: framework.Diagnosis{
		NodeToStatus: framework.NewDefaultNodeToStatus(),
	}}
	fit.Diagnosis.NodeToStatus.Set(node, status)
	fit.Diagnosis.AddPluginStatus(status)
	return fit
}

// unreserve ends what reserveOn does.
func (a *attempt) unreserve(uid string) {
	p := a.placed[uid]
	if p == nil {
		return // rollback could not reserve it once more
	}
	node := p.pod.Pod.Spec.NodeName
	delete(a.placed, uid)
	p.f.RunReservePluginsUnreserve(a.ctx, p.state, p.pod.Pod, node)
	if err := a.session.Forget(klog.FromContext(a.ctx), p.pod.Pod); err != nil {
		a.broken = true
		utilruntime.HandleErrorWithContext(a.ctx, err, "Failed to take a planned pod off the snapshot")
	}
	a.markChanged(node)
}

// displace takes members off their nodes, until rollback, which reserves them there once more. As all that came after
// was undone before, that succeeds; if it does not, the attempt is broken.
func (a *attempt) displace(uids []string) {
	// The member that was reserved last comes first: the snapshot forgets it at the least cost.
	uids = slices.Clone(uids)
	slices.SortFunc(uids, func(x, y string) int { return cmp.Compare(a.placed[y].at, a.placed[x].at) })
	for _, uid := range uids {
		p := a.placed[uid]
		a.unreserve(uid)
		delete(a.planned, uid)
		a.undo = append(a.undo, func() { a.broken = a.reserveAgain(uid, p) != nil || a.broken })
	}
}

// reserveAgain reserves a member on the node that it was displaced from. The devices of its claims are chosen anew:
// others may have got different cards now.
func (a *attempt) reserveAgain(uid string, p *placed) error {
	if len(p.pod.Pod.Spec.ResourceClaims) == 0 {
		return a.reserveOn(uid, p)
	}
	state, err := a.findOn(uid, p.pod.Pod.Spec.NodeName)
	delete(a.planned, uid)
	if err != nil {
		return err
	}
	return a.reserveOn(uid, &placed{f: p.f, state: state, pod: p.pod})
}

// markChanged records that a node has changed in the snapshot, for rankings and classes.
func (a *attempt) markChanged(node string) {
	a.changed = append(a.changed, node)
	a.cluster.Changes.Shown(node)
}

// anywhere returns a member without its nomination, which the framework would try before the planned node.
func anywhere(pod *framework.QueuedPodInfo) *framework.QueuedPodInfo {
	if pod.Pod.Status.NominatedNodeName == "" {
		return pod
	}
	pod = pod.DeepCopy()
	pod.Pod.Status.NominatedNodeName = ""
	return pod
}
