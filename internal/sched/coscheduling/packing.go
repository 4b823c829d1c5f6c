package coscheduling

import (
	"context"
	"errors"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
)

// orders returns the orders in which members are tried; own is the one in which they left the queue.
func (round *groupRound) orders(own []string) [][]string {
	if round.packing == nil {
		return [][]string{own}
	}
	return round.packing.Orders(round.plan)
}

// packing describes members and the nodes of the snapshot. nil if all members ask for the same: then no order is better
// than another.
func (r *Rounds) packing(ctx context.Context, round *groupRound, members []string) *gang.Packing {
	p := &gang.Packing{Steps: gang.MostPackSteps, Places: gang.MostPackPlaces}
	var first []*framework.QueuedPodInfo // of each class
	for _, uid := range members {
		pod, class := round.queued[uid], 0
		for class < len(first) && !r.asksTheSame(first[class], pod) {
			class++
		}
		if class == len(first) {
			first = append(first, pod)
		}
		p.Members = append(p.Members, gang.PackedMember{UID: uid, Class: class})
	}
	if len(first) == 1 {
		return nil
	}
	nodes, err := r.Core.Profiles[first[0].Pod.Spec.SchedulerName].SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil
	}
	dimensions := round.dimensions(members)
	for _, n := range nodes {
		p.Free = append(p.Free, freeInDimensions(n, dimensions, nil))
	}
	for _, pod := range first {
		class, affinity := gang.PackedClass{}, nodeaffinity.GetRequiredNodeAffinity(pod.Pod)
		for _, name := range dimensions {
			class.Asks = append(class.Asks, asksOf(pod, name))
		}
		for i, n := range nodes {
			if mayTake(ctx, n, pod.Pod, affinity) && class.FitsIn(p.Free[i]) {
				class.Nodes = append(class.Nodes, i)
			}
		}
		p.Classes = append(p.Classes, class)
	}
	return p
}

// asksTheSame reports whether two members are of one gang and may be on the same nodes.
func (r *Rounds) asksTheSame(a, b *framework.QueuedPodInfo) bool {
	x, y := a.Pod, b.Pod
	same := equality.Semantic.DeepEqual
	if len(x.Spec.Containers) != len(y.Spec.Containers) || r.Gangs.GangOf(x) != r.Gangs.GangOf(y) {
		return false
	}
	for i := range x.Spec.Containers {
		if !same(x.Spec.Containers[i].Resources, y.Spec.Containers[i].Resources) {
			return false
		}
	}
	return same(a.CalculateResource(), b.CalculateResource()) && same(x.Spec.NodeSelector, y.Spec.NodeSelector) &&
		same(x.Spec.Affinity, y.Spec.Affinity) && same(x.Spec.Tolerations, y.Spec.Tolerations) &&
		(maps.Equal(x.Annotations, y.Annotations) || maps.Equal(said(x.Annotations), said(y.Annotations)))
}

// mayTake reports whether the labels and taints of a node allow a pod.
func mayTake(ctx context.Context, n fwk.NodeInfo, pod *corev1.Pod, affinity nodeaffinity.RequiredNodeAffinity) bool {
	node := n.Node()
	_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(klog.FromContext(ctx), node.Spec.Taints,
		pod.Spec.Tolerations, helper.DoNotScheduleTaintsFilterFunc(), true)
	matches, err := affinity.Match(node)
	return !untolerated && matches && err == nil
}

// freeInDimensions is what a node has free of each resource; domain.Unlimited where it does not count it.
func freeInDimensions(n fwk.NodeInfo, dimensions []corev1.ResourceName, goes func(*corev1.Pod) bool) []int64 {
	free := make([]int64, len(dimensions))
	for i, name := range dimensions {
		if free[i] = domain.Unlimited; !leavesUnlimited(n, name) {
			free[i] = freeOn(n, name, goes)
		}
	}
	return free
}

// asksOf returns how much of a resource a pod asks for.
func asksOf(pod *framework.QueuedPodInfo, name corev1.ResourceName) int64 {
	if name == corev1.ResourcePods {
		return 1
	}
	return amountOf(pod.CalculateResource().Resource, name)
}

// searchNodes looks for nodes of the members where no order of them fits, and plans these. It does not if a member is
// refused whatever its node is, or if members must be spread over parts of a domain.
func (r *Rounds) searchNodes(ctx context.Context, round *groupRound, current string, cause error) (fits bool) {
	var unfit *framework.FitError
	p := round.packing
	if p == nil || !errors.As(cause, &unfit) || unfit.Diagnosis.PreFilterMsg != "" {
		return false
	}
	for _, chosen := range round.places {
		if chosen != nil && (len(chosen.parts) > 1 || chosen.parts[0].members > 0) {
			return false
		}
	}
	f := r.Core.Profiles[round.queued[current].Pod.Spec.SchedulerName]
	r.release(f) // the nodes of the packing are those of the whole snapshot
	nodes, err := f.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return false
	}
	a := r.attempt(ctx, round)
	var steps []int // of the attempt, before each member was placed
	name := func(node int) string { return nodes[node].Node().Name }
	order, found := p.Search(round.plan,
		func(uid string, node int) bool { return round.places[uid].has(name(node)) },
		func(uid string, node int) bool {
			before := len(a.undo)
			if a.tryOn(uid, name(node)) != nil {
				return false
			}
			steps = append(steps, before)
			return true
		},
		func() {
			a.rollback(steps[len(steps)-1])
			steps = steps[:len(steps)-1]
		})
	a.rollback(0)
	r.release(f)
	if order == nil {
		return false
	}
	planned := map[string]scheduler.ScheduleResult{}
	for uid, node := range found {
		planned[uid] = scheduler.ScheduleResult{SuggestedHost: name(node)}
	}
	for _, m := range p.Members {
		if _, has := found[m.UID]; !has {
			order = append(order, m.UID)
		}
	}
	return r.tryAll(ctx, round, order, planned) && r.followOrder(ctx, round, current, order)
}
