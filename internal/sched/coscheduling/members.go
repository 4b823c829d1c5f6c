package coscheduling

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
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
}

// first returns the pod that is tried first. Its profile is that of the whole attempt.
func (m *members) first() *corev1.Pod { return m.pods[m.order[0]].Pod }

// goingFor adds to the pods on nodes that go for the members those that keep room which a member may use. The result is
// nil where none goes.
func (c *Cluster) goingFor(m *members, goes func(*corev1.Pod) bool) func(*corev1.Pod) bool {
	if c.Usable == nil {
		return goes
	}
	pods := make([]*corev1.Pod, len(m.order))
	for i, uid := range m.order {
		pods[i] = m.pods[uid].Pod
	}
	usable := c.Usable(c.Core.Profiles[m.first().Spec.SchedulerName], pods)
	switch {
	case usable == nil:
		return goes
	case goes == nil:
		return usable
	}
	return func(p *corev1.Pod) bool { return usable(p) || goes(p) }
}

// orders returns the orders in which members are tried.
func (m *members) orders() [][]string {
	if m.packing == nil {
		return [][]string{m.order}
	}
	return m.packing.Orders(m.plan)
}

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
		slices.Sort(asked)
		all := int64(0)
		for _, n := range asked[:min(g.Min, len(asked))] {
			all += n
		}
		d.Each, d.All = append(d.Each, append(asked, 0)[0]), append(d.All, all)
	}
	return d
}
