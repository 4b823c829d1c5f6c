package coscheduling

import (
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/upstream/schedpod"
)

// describePacking describes members and the nodes of the snapshot. nil if all members ask for the same: then no order
// is better than another. What it says is an estimate by labels, taints and amounts: nodes on which a member fits by it
// may still refuse it. The search asks the filters before it relies on one.
func (pl *planner) describePacking(ctx context.Context, m *members) *gang.Packing {
	p := &gang.Packing{Steps: gang.MostPackSteps, Places: gang.MostPackPlaces}
	var takes map[string][]int64
	if slices.ContainsFunc(m.order, func(uid string) bool { return pl.cluster.Quotas.Limits(m.pods[uid].Pod) }) {
		pl.cluster.Quotas.Read(func(a *quota.Account) { p.Left, takes = a.Left(m.order) })
	}
	var first []*framework.QueuedPodInfo // of each class
	for _, uid := range m.order {
		pod, class := m.pods[uid], 0
		for class < len(first) && !(pl.cluster.asksTheSame(first[class], pod) &&
			slices.Equal(takes[string(first[class].Pod.UID)], takes[uid])) {
			class++
		}
		if class == len(first) {
			first = append(first, pod)
		}
		p.Members = append(p.Members, gang.PackedMember{UID: uid, Class: class})
	}
	// Members of one class are interchangeable.
	if len(first) == 1 {
		return nil
	}
	nodes, err := pl.cluster.Core.Profile(first[0].Pod.Spec.SchedulerName).SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil
	}
	dimensions, goes := m.dimensions(m.order), pl.cluster.usableBy(m)
	for _, n := range nodes {
		p.Free = append(p.Free, freeInDimensions(n, dimensions, goes))
	}
	for _, pod := range first {
		class := gang.PackedClass{Takes: takes[string(pod.Pod.UID)]}
		affinity := nodeaffinity.GetRequiredNodeAffinity(pod.Pod)
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
func (c *Cluster) asksTheSame(a, b *framework.QueuedPodInfo) bool {
	x, y := a.Pod, b.Pod
	same := equality.Semantic.DeepEqual
	if len(x.Spec.Containers) != len(y.Spec.Containers) || c.Gangs.GangOf(x) != c.Gangs.GangOf(y) {
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
	matches, err := affinity.Match(node)
	return err == nil && matches && schedpod.Tolerates(ctx, pod, node)
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

// searchNodes looks for nodes of the members where no order of them fits, and plans these: what the search found is
// verified as a plan in the order in which it placed them, members without a node last. It does not if a member is
// refused whatever its node is, which failed says, or if members must be spread over parts of a domain.
func (pl *planner) searchNodes(ctx context.Context, m *members, places map[string]*place, failed *outcome,
) (o outcome, fits bool) {
	var unfit *framework.FitError
	p := m.packing
	if p == nil || !errors.As(failed.cause, &unfit) {
		return o, false
	}
	// PreFilter refuses a member on all nodes: only a quota may admit another one instead.
	ofQuota := []why.Code{why.QuotaExceeded, why.QuotaPoolUsed, why.QuotaNotFound}
	if unfit.Diagnosis.PreFilterMsg != "" && !slices.Contains(ofQuota, failed.failure.Cause.Reason.Code) {
		return o, false
	}
	for _, chosen := range places {
		if len(chosen.parts) > 1 || chosen.parts[0].members > 0 {
			return o, false
		}
	}
	f := pl.cluster.Core.Profile(m.first().Spec.SchedulerName)
	pl.domains.release(f) // the nodes of the packing are those of the whole snapshot
	nodes, err := f.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return o, false
	}
	a := pl.attempt(ctx, m, places, nil)
	// The search places members on the snapshot and takes them back in reverse order. steps has how many steps of the
	// attempt came before each member that is placed.
	var steps []int
	name := func(node int) string { return nodes[node].Node().Name }
	order, found := p.Search(m.plan,
		func(uid string, node int) bool { return places[uid].has(name(node)) },
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
	pl.domains.release(f)
	if order == nil {
		return o, false
	}
	nodesOf := map[string]string{}
	for uid, node := range found {
		nodesOf[uid] = name(node)
	}
	for _, member := range p.Members {
		if _, has := found[member.UID]; !has {
			order = append(order, member.UID)
		}
	}
	if o, fits = pl.tryAll(ctx, m, places, order, on(nodesOf)); !fits {
		return o, false
	}
	return pl.followOrder(ctx, m, o, order)
}
