package coscheduling

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/sched/upstream/preempt"
)

// awaitsTerminating is the message of a preemptor that needs no other victims. Refusals are read from it.
const awaitsTerminating = notEligible + "a terminating pod on the nominated node."

// terminates reports whether a pod is being deleted.
func terminates(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil }

// removeTerminating removes the terminating pods from a dry run. They release what they hold whatever is decided, so
// they are the first victims of every dry run, of whatever priority and quota.
func removeTerminating(ctx context.Context, run *preempt.DryRun) (removed []*corev1.Pod, failed *fwk.Status) {
	for _, info := range slices.Clone(run.Node.GetPods()) {
		if !terminates(info.GetPod()) {
			continue
		}
		if s := run.Remove(ctx, info); !s.IsSuccess() {
			return nil, s
		}
		removed = append(removed, info.GetPod())
	}
	return removed, nil
}

// Await returns a node that will take a pod when its terminating pods are gone, so that no pod needs to be evicted; nil
// status for none, and for a pod without a nomination that would evict none anyway. The nominated node comes first,
// then the one whose terminating pods end first. Without every it looks at the nodes that have terminating pods
// alone. The cost is one filtering of each such node.
func (ev *Evictions) Await(ctx context.Context, h fwk.Handle, state fwk.CycleState, pod *corev1.Pod,
	nodes fwk.NodeToStatusReader, every bool,
) (node string, status *fwk.Status) {
	lister := h.SnapshotSharedLister().NodeInfos()
	// Only nodes that refuse the pod for something that pods release are candidates.
	refusing, err := nodes.NodesForStatusCode(lister, fwk.Unschedulable)
	if err != nil || ptr.Deref(pod.Spec.PreemptionPolicy, "") == corev1.PreemptNever {
		return "", nil
	}
	type candidate struct {
		fwk.NodeInfo
		ends time.Time
	}
	var candidates []candidate
	for _, n := range refusing {
		c := candidate{NodeInfo: n}
		for _, info := range n.GetPods() {
			if at := info.GetPod().DeletionTimestamp; at != nil && at.After(c.ends) {
				c.ends = at.Time
			}
		}
		if every || !c.ends.IsZero() {
			candidates = append(candidates, c)
		}
	}
	if len(candidates) == 0 ||
		pod.Status.NominatedNodeName == "" && !mayEvict(lister, corev1helpers.PodPriority(pod)) {
		return "", nil
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		nominated := pod.Status.NominatedNodeName
		return cmp.Or(trueFirst(a.Node().Name == nominated, b.Node().Name == nominated), a.ends.Compare(b.ends),
			cmp.Compare(a.Node().Name, b.Node().Name))
	})
	for _, c := range candidates {
		run := preempt.NewDryRun(h, state, pod, c.NodeInfo)
		if _, failed := removeTerminating(ctx, run); failed == nil && run.Fits(ctx) {
			return c.Node().Name, fwk.NewStatus(fwk.Unschedulable, awaitsTerminating)
		}
	}
	return "", nil
}

// mayEvict reports whether a pod of a lower priority is on a node and does not terminate.
func mayEvict(nodes fwk.NodeInfoLister, priority int32) bool {
	all, err := nodes.List()
	return err == nil && slices.ContainsFunc(all, func(n fwk.NodeInfo) bool {
		return slices.ContainsFunc(n.GetPods(), func(i fwk.PodInfo) bool {
			return !terminates(i.GetPod()) && corev1helpers.PodPriority(i.GetPod()) < priority
		})
	})
}

// Ranks returns upstream's rules for the choice of a node, behind a first one: a node on which no pod is
// evicted that does not terminate. Upstream's are, in their order: the fewest budgets violated, the lowest of the
// highest priorities, the lowest sum of priorities, the fewest pods, the latest start. The first victim of a node is
// its most important one.
func (whole) Ranks(_ context.Context, victims map[string]*extenderv1.Victims) []func(node string) int64 {
	return []func(string) int64{
		func(node string) int64 {
			if slices.ContainsFunc(victims[node].Pods, func(p *corev1.Pod) bool { return !terminates(p) }) {
				return 0
			}
			return 1
		},
		func(node string) int64 { return -victims[node].NumPDBViolations },
		func(node string) int64 { return -int64(corev1helpers.PodPriority(victims[node].Pods[0])) },
		func(node string) (sum int64) {
			for _, p := range victims[node].Pods {
				sum -= int64(corev1helpers.PodPriority(p)) + 1<<31 // each pod counts, whatever its priority
			}
			return sum
		},
		func(node string) int64 { return -int64(len(victims[node].Pods)) },
		func(node string) int64 {
			if start := victims[node].Pods[0].Status.StartTime; start != nil {
				return start.UnixMilli()
			}
			return math.MaxInt64 // it has not started
		},
	}
}
