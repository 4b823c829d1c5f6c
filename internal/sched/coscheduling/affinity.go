package coscheduling

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/upstream/schedpod"
)

// gatherByAffinity lets members be tried in the domains that their required pod affinity allows, where no pod matches
// it yet: the first member that is placed then decides about the domain of all, and may choose one without enough room.
// Where pods match already, their domains are known, and the filters keep the members to these.
func (pl *planner) gatherByAffinity(ctx context.Context, m *members) {
	var tried []*framework.QueuedPodInfo // one of each affinity
	for _, uid := range m.order {
		first := m.pods[uid]
		terms := first.GetRequiredAffinityTerms()
		same := func(o *framework.QueuedPodInfo) bool { return sharesAffinity(o.Pod, first.Pod) }
		if len(terms) == 0 || slices.ContainsFunc(tried, same) {
			continue
		}
		tried = append(tried, first)
		f := pl.profileOf(first.Pod)
		matches := func(pod *corev1.Pod) bool { return matchesAll(ctx, f, terms, pod) }
		nodes, err := f.SnapshotSharedLister().NodeInfos().List()
		if err != nil || slices.ContainsFunc(nodes, func(n fwk.NodeInfo) bool {
			return slices.ContainsFunc(n.GetPods(), func(p fwk.PodInfo) bool { return matches(p.GetPod()) })
		}) {
			continue
		}
		// If one member alone matches, or each that does has the affinity as well, all must be in one domain.
		var uids []string
		matching, all := 0, true
		for _, uid := range m.order {
			has, matched := same(m.pods[uid]), matches(m.pods[uid].Pod)
			if has || matched {
				uids = append(uids, uid)
			}
			if matched {
				matching, all = matching+1, all && has
			}
		}
		var keys []string
		for _, term := range terms {
			keys = append(keys, term.TopologyKey)
		}
		if matching > 0 {
			m.plan.Gather(uids, keys, all || matching == 1)
			m.isAffine = true
		}
	}
}

// profileOf returns the profile of a pod.
func (pl *planner) profileOf(pod *corev1.Pod) framework.Framework {
	return pl.cluster.Core.Profile(pod.Spec.SchedulerName)
}

// sharesAffinity reports whether two pods require the same affinity to pods.
func sharesAffinity(a, b *corev1.Pod) bool {
	x, y := a.Spec.Affinity, b.Spec.Affinity
	return x != nil && y != nil && x.PodAffinity != nil && y.PodAffinity != nil && a.Namespace == b.Namespace &&
		equality.Semantic.DeepEqual(x.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			y.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
}

// matchesAll reports whether a pod matches all terms, as InterPodAffinity reads them.
func matchesAll(ctx context.Context, f framework.Framework, terms []fwk.AffinityTerm, pod *corev1.Pod) bool {
	return !slices.ContainsFunc(terms, func(t fwk.AffinityTerm) bool {
		if t.Namespaces.Has(pod.Namespace) {
			return !t.Matches(pod, nil)
		}
		all := f.SharedInformerFactory().Core().V1().Namespaces().Lister()
		return !t.Matches(pod, schedpod.NamespaceLabels(ctx, pod.Namespace, all))
	})
}
