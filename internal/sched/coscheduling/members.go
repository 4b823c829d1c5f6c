package coscheduling

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
)

// members are the pods of one group that are tried together.
type members struct {
	// plan is what the gangs' state says may be tried together. nil if no member may be tried, and for a pod that is
	// tried alone.
	plan *gang.Plan
	// pods are the members by UID, as the queue has them. The value is nil for a member of the plan that cannot be
	// tried, as it is not in the queue.
	pods map[string]*framework.QueuedPodInfo
	// order has the UIDs of those that can be tried, in the order in which they are tried first.
	order []string
	// packing has what the members ask for, and the nodes that may take them. nil if all ask for the same, and before
	// planning asks.
	packing *gang.Packing
	// laterFirst: the requests of the members' claims get later alternatives before earlier ones.
	laterFirst bool
	// isAffine says that domains were added to the plan by the pod affinity of members.
	isAffine bool
}

// first returns the pod that is tried first. Its profile is that of the whole attempt.
func (m *members) first() *corev1.Pod { return m.pods[m.order[0]].Pod }

// nominated returns the nodes that the members are nominated to, by UID; empty for one without.
func (m *members) nominated() map[string]string {
	nodes := map[string]string{}
	for _, uid := range m.order {
		nodes[uid] = m.pods[uid].Pod.Status.NominatedNodeName
	}
	return nodes
}

// nominatedOf is nominated for some members alone.
func (m *members) nominatedOf(some map[string]string) map[string]string {
	nodes := m.nominated()
	maps.DeleteFunc(nodes, func(uid, _ string) bool { return some[uid] == "" })
	return nodes
}

// isKnownHeld reports whether a scheduler before this one has held nodes for the members, as the API shows: they are
// nominated to these nodes, or, where the nominations are concealed from autoscalers, a condition says so.
func (m *members) isKnownHeld(nodes map[string]string) bool {
	if maps.Equal(nodes, m.nominatedOf(nodes)) {
		return true
	}
	for uid := range nodes {
		_, c := podutil.GetPodCondition(&m.pods[uid].Pod.Status, corev1.PodScheduled)
		if c == nil {
			continue
		}
		if said, ok := why.ParseMessage(c.Message); ok && said.Code == why.GangReserved {
			return true
		}
	}
	return false
}

// usableBy returns what reports whether a pod on a node keeps room that a member may use; nil where none does.
func (c *Cluster) usableBy(m *members) func(*corev1.Pod) bool {
	return c.Plugins.Usable(c.Core.Profile(m.first().Spec.SchedulerName), m.tried())
}

// tried returns the members that can be tried, in their order.
func (m *members) tried() []*corev1.Pod {
	pods := make([]*corev1.Pod, len(m.order))
	for i, uid := range m.order {
		pods[i] = m.pods[uid].Pod
	}
	return pods
}

// either returns what reports whether one of two functions holds for a pod. One that is nil holds for none, and so does
// nil, which is returned for two of them.
func either(a, b func(*corev1.Pod) bool) func(*corev1.Pod) bool {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(p *corev1.Pod) bool { return a(p) || b(p) }
}

// orders returns the orders in which members are tried.
func (m *members) orders() [][]string {
	if m.packing == nil {
		return [][]string{m.order}
	}
	return m.packing.Orders(m.plan)
}

// podsOf returns the pods of a request's members that are known here.
func (m *members) podsOf(g *domain.Request) (pods []*corev1.Pod) {
	for _, uid := range g.Members {
		if p := m.pods[uid]; p != nil {
			pods = append(pods, p.Pod)
		}
	}
	return pods
}

// dimensions are the resources that members ask for.
func (m *members) dimensions(uids []string) []corev1.ResourceName {
	known := sets.New[corev1.ResourceName]()
	for _, uid := range uids {
		if p := m.pods[uid]; p != nil {
			for name := range p.CalculateResource().Resource.GetScalarResources() {
				known.Insert(name)
			}
		}
	}
	return append([]corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods,
	}, sets.List(known)...)
}

// demand is what the members of a request ask for at least.
func (m *members) demand(g *domain.Request) (d domain.Demand) {
	for _, name := range m.dimensions(g.Members) {
		var asked []int64
		for _, uid := range g.Members {
			if p := m.pods[uid]; p != nil {
				asked = append(asked, asksOf(p, name))
			}
		}
		// The gang may start with its smallest members, so these decide whether a domain is worth a plan.
		slices.Sort(asked)
		all := int64(0)
		for _, n := range asked[:min(g.Min, len(asked))] {
			all += n
		}
		d.Each, d.All = append(d.Each, append(asked, 0)[0]), append(d.All, all)
	}
	return d
}

// shortage returns the failure of a group if the cluster has not what its PodGroups say that must be free before their
// gangs are tried; else its UID is empty. What pods have that leave is free.
func (ev *Evictions) shortage(m *members, leave func(*corev1.Pod) bool) (failure gang.Failure) {
	member := m.first()
	f := ev.cluster.Core.Profile(member.Spec.SchedulerName)
	goes := either(ev.cluster.usableBy(m), leave)
	for _, id := range ev.cluster.group(member) {
		o := ev.cluster.Gangs.Object(id)
		if o == nil {
			continue
		}
		least := o.Spec.MinResources
		asked := framework.NewResource(least)
		for _, name := range slices.Sorted(maps.Keys(least)) {
			has := freeOf(f, name, goes)
			if has >= amountOf(asked, name) {
				continue
			}
			code, free := why.InsufficientExtended, resource.NewQuantity(has, least.Name(name, "").Format)
			switch name {
			case corev1.ResourceCPU:
				code, free = why.InsufficientCPU, resource.NewMilliQuantity(has, resource.DecimalSI)
			case corev1.ResourceMemory:
				code = why.InsufficientMemory
			case corev1.ResourceEphemeralStorage:
				code = why.InsufficientEphemeralStorage
			}
			failure = gang.Failure{UID: string(member.UID), Cause: why.Finding{
				Reason: why.Reason{Code: code}, Detail: fmt.Sprintf(
					"minResources of PodGroup %s: %s of %s must be free in the whole cluster, and %s is",
					id, least.Name(name, ""), name, free),
			}}
			return failure
		}
	}
	return gang.Failure{}
}

// freeOf returns how much of a resource the pods on all nodes leave, milli-CPUs of CPU; those that may go are not
// counted.
func freeOf(f framework.Framework, name corev1.ResourceName, goes func(*corev1.Pod) bool) (free int64) {
	nodes, err := f.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return 0
	}
	for _, n := range nodes {
		free += freeOn(n, name, goes)
	}
	return free
}

// freeOn is freeOf of one node. goes is nil where none may go.
func freeOn(n fwk.NodeInfo, name corev1.ResourceName, goes func(*corev1.Pod) bool) int64 {
	left := amountOf(n.GetAllocatable(), name) - amountOf(n.GetRequested(), name)
	if name == corev1.ResourcePods {
		left = int64(n.GetAllocatable().GetAllowedPodNumber() - len(n.GetPods()))
	}
	if goes == nil {
		return max(left, 0)
	}
	for _, info := range n.GetPods() {
		switch {
		case !goes(info.GetPod()):
		case name == corev1.ResourcePods:
			left++
		default:
			left += amountOf(info.CalculateResource().Resource, name)
		}
	}
	return max(left, 0)
}

// amountOf returns an amount of a resource, CPU in milli-CPUs; 0 if it is not counted.
func amountOf(r fwk.Resource, name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU:
		return r.GetMilliCPU()
	case corev1.ResourceMemory:
		return r.GetMemory()
	case corev1.ResourceEphemeralStorage:
		return r.GetEphemeralStorage()
	case corev1.ResourcePods:
		return int64(r.GetAllowedPodNumber())
	}
	return r.GetScalarResources()[name]
}
