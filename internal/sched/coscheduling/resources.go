package coscheduling

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
)

// shortage returns the failure of a group if the cluster has not what its PodGroups say that must be free before their
// gangs are tried; else its UID is empty. What pods of lower priority have is free where the gang may evict them, and
// what pods behind it have where it was overtaken by too many.
func (r *Rounds) shortage(m *members) (failure gang.Failure) {
	member := m.first()
	f := r.Core.Profiles[member.Spec.SchedulerName]
	evicts, priority := r.chooser(member) != nil, r.Gangs.Priority(member)
	rank := r.Gangs.RankOf(member)
	overtaken := kube.Ask(r.Gangs, func(s *gang.State) bool { return s.Overtaken(string(member.UID), false) })
	goes := r.goingFor(m, func(p *corev1.Pod) bool {
		return evicts && corev1helpers.PodPriority(p) < priority || overtaken && rank.Before(r.Gangs.RankOf(p))
	})
	for _, id := range r.group(member) {
		o := r.Gangs.Object(id)
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
			if failure.Outlook = gang.Short; overtaken {
				failure.Outlook = gang.Hopeless
			}
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
