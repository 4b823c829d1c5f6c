package coscheduling

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// attempt places members on the snapshot and on a copy of the accounts, each beside those before it. What is done is
// undone from behind.
type attempt struct {
	*Rounds
	ctx     context.Context
	is      *round
	trial   Trial
	admits  bool               // the caller decides about quotas
	placed  map[string]*placed // by UID
	changed []string           // nodes, in the order of their changes
	undo    []func()
	broken  bool // what was undone could not be done again
}

// placed is a member that is reserved in an attempt.
type placed struct {
	f     framework.Framework
	state fwk.CycleState
	pod   *framework.PodInfo // with its node
}

func (r *Rounds) attempt(ctx context.Context, is *round) *attempt {
	for _, of := range is.places {
		of.at = 0
	}
	return &attempt{Rounds: r, ctx: ctx, is: is, trial: r.Trial(), placed: map[string]*placed{}}
}

func (a *attempt) profile(uid string) framework.Framework {
	return a.Core.Profiles[a.is.queued[uid].Pod.Spec.SchedulerName]
}

// state returns the state of a cycle that works on the copies.
func (a *attempt) state() fwk.CycleState {
	state := framework.NewCycleState()
	state.Write(framework.PodsToActivateKey, framework.NewPodsToActivate())
	a.trial.Mark(state)
	if a.admits {
		a.Admitted(state)
	}
	return state
}

// try chooses a node for a member, the planned one where that takes it, and reserves it there. The state holds what
// plugins know of the pod, also after an error.
func (a *attempt) try(uid string) (fwk.CycleState, error) {
	pod, f, state := anywhere(a.is.queued[uid]), a.profile(uid), a.state()
	if err := a.confine(uid, state); err != nil {
		return state, err
	}
	result, err := a.schedule(a.ctx, f, state, pod)
	of, in := a.is.places[uid], err
	for left := of.others(); in != nil && left > 0; left-- {
		of.at = (of.at + 1) % len(of.parts)
		if state = a.state(); a.confine(uid, state) == nil {
			result, in = a.schedule(a.ctx, f, state, pod)
			addNodes(err, in)
		}
	}
	if in != nil {
		return state, err
	}
	assumed := pod.DeepCopy()
	assumed.Pod.Spec.NodeName = result.SuggestedHost
	if err := a.put(uid, &placed{f, state, assumed.PodInfo}); err != nil {
		return state, err
	}
	a.is.planned[uid] = result
	a.undo = append(a.undo, func() { a.remove(uid) })
	return state, nil
}

// addNodes adds the nodes that refuse a pod to others that do.
func addNodes(to, from error) {
	var all, more *framework.FitError
	if !errors.As(to, &all) || !errors.As(from, &more) {
		return
	}
	all.NumAllNodes += more.NumAllNodes
	more.Diagnosis.NodeToStatus.ForEachExplicitNode(all.Diagnosis.NodeToStatus.Set)
	all.Diagnosis.UnschedulablePlugins = all.Diagnosis.UnschedulablePlugins.Union(more.Diagnosis.UnschedulablePlugins)
}

// back undoes what was done since there were so many steps.
func (a *attempt) back(to int) {
	for len(a.undo) > to {
		last := len(a.undo) - 1
		f := a.undo[last]
		a.undo = a.undo[:last]
		f()
	}
}

// snapshot is what upstream's snapshot can do besides being read.
type snapshot interface {
	fwk.SharedLister
	AssumePod(pod *framework.PodInfo) error
	ForgetPod(logger klog.Logger, pod *corev1.Pod) error
	AssumePlacement(of *fwk.Placement) error
	ForgetPlacement()
}

func (a *attempt) put(uid string, p *placed) error {
	node := p.pod.Pod.Spec.NodeName
	if err := p.f.SnapshotSharedLister().(snapshot).AssumePod(p.pod); err != nil {
		return err
	}
	a.placed[uid] = p
	a.note(node)
	status := p.f.RunReservePluginsReserve(a.ctx, p.state, p.pod.Pod, node)
	if status.IsSuccess() {
		return nil
	}
	a.remove(uid)
	fit := &framework.FitError{Pod: p.pod.Pod, NumAllNodes: 1, Diagnosis: framework.Diagnosis{
		NodeToStatus: framework.NewDefaultNodeToStatus(),
	}}
	fit.Diagnosis.NodeToStatus.Set(node, status)
	fit.Diagnosis.AddPluginStatus(status)
	return fit
}

func (a *attempt) remove(uid string) {
	p := a.placed[uid]
	node := p.pod.Pod.Spec.NodeName
	delete(a.placed, uid)
	p.f.RunReservePluginsUnreserve(a.ctx, p.state, p.pod.Pod, node)
	if err := p.f.SnapshotSharedLister().(snapshot).ForgetPod(klog.FromContext(a.ctx), p.pod.Pod); err != nil {
		utilruntime.HandleErrorWithContext(a.ctx, err, "Failed to take a planned pod off the snapshot")
	}
	a.note(node)
}

// lift takes a member off its node.
func (a *attempt) lift(uid string) {
	p := a.placed[uid]
	a.remove(uid)
	delete(a.is.planned, uid)
	a.undo = append(a.undo, func() { a.broken = a.put(uid, p) != nil || a.broken })
}

// note records that a node has changed.
func (a *attempt) note(node string) {
	a.changed = append(a.changed, node)
	a.Shown(node)
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
