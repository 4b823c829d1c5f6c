package coscheduling

import (
	"context"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/upstream/preempt"
)

// Guard adds the rules of gangs to those by which a profile chooses victims: for a pod that starts without others too,
// what a gang cannot spare goes with all of it or not at all.
func (ev *Evictions) Guard(h fwk.Handle, p *preempt.Chooser) {
	// The inner one deletes a pod by its name.
	p.EvictBy(func(preempt.Evictor) preempt.Evictor { return ev.Evictor(h) })
	// may has the rules of quotas and Reservations, which the plugins set before.
	may := p.Rules()
	p.Restrict(func(node fwk.NodeInfo, victim fwk.PodInfo, preemptor *corev1.Pod) bool {
		if ev.preempting != nil {
			return ev.preempting.allows(victim.GetPod())
		}
		return ev.mayGo(node, victim.GetPod(), preemptor, may)
	})
	p.Choose(func(inner preempt.Choice) preempt.Choice { return whole{inner, ev, p} })
}

// Forget drops what Guard remembers about gangs.
func (ev *Evictions) Forget() { ev.mayWhole.Clear() }

// mayGo reports whether gangs allow a victim of a pod that starts without others. Where there are not enough members
// above the minimum for all those of the node, it is allowed with its whole group.
func (ev *Evictions) mayGo(node fwk.NodeInfo, victim, preemptor *corev1.Pod, may preempt.Rule) bool {
	gangUID := ev.cluster.Gangs.GangOf(victim)
	if gangUID == "" {
		return true
	}
	var here []string
	for _, info := range node.GetPods() {
		if pod := info.GetPod(); ev.cluster.Gangs.GangOf(pod) == gangUID {
			here = append(here, string(pod.UID))
		}
	}
	for _, unit := range units(ev.cluster.Gangs, here, nil) {
		if len(unit) == 1 {
			continue
		}
		// All nodes of a cycle ask about the same gang, so the answer is remembered.
		key := [2]string{string(preemptor.UID), gangUID}
		known, found := ev.mayWhole.Load(key)
		if !found {
			known = !slices.ContainsFunc(unit, func(uid string) bool {
				pod := ev.cluster.Gangs.Pod(uid)
				return pod == nil || ev.cluster.importance(pod) >= corev1helpers.PodPriority(preemptor) ||
					!may(node, &framework.PodInfo{Pod: pod}, preemptor)
			})
			ev.mayWhole.Store(key, known)
		}
		if !known.(bool) {
			return false
		}
	}
	return !slices.Contains(ev.cluster.group(preemptor), gangUID)
}

// importance is the priority below which no preemptor evicts a pod.
func (c *Cluster) importance(pod *corev1.Pod) int32 {
	return max(corev1helpers.PodPriority(pod), c.Gangs.Priority(pod))
}

// group returns the gangs that start with a pod; none for a pod without a gang.
func (c *Cluster) group(pod *corev1.Pod) (ids []string) {
	if gangUID := c.Gangs.GangOf(pod); gangUID != "" {
		c.Gangs.Read(func(s *gang.State) {
			report, _ := s.Find(gangUID)
			ids = report.Settings.Group
		})
	}
	return ids
}

// whole is upstream's choice of victims on a node, with those on other nodes that go with them.
//
// Invariant: what Victims returns for a pod that starts without others can be evicted without breaking a
// gang: of each one either all go, or enough remain for its minimum.
type whole struct {
	preempt.Choice // which chooses victims on one node, and knows nothing of gangs
	evictions      *Evictions
	chooser        *preempt.Chooser // of the profile, for its order of importance
}

// Victims returns the victims, the most important first, and how many disruption budgets do not allow. They
// are the terminating pods of the node where these are enough, and else others beside them.
func (w whole) Victims(ctx context.Context, run *preempt.DryRun) ([]*corev1.Pod, int, *fwk.Status) {
	removed, failed := removeTerminating(ctx, run)
	if failed != nil {
		return nil, 0, failed
	}
	if len(removed) > 0 && run.Fits(ctx) {
		sort.SliceStable(removed, func(i, j int) bool { return w.chooser.MoreImportant(removed[i], removed[j]) })
		return removed, 0, nil
	}
	// A preemption for a gang counts the other members itself, see preemption.option.
	victims, violating, status := w.Choice.Victims(ctx, run)
	if w.evictions.preempting != nil {
		return victims, violating, status
	}
	here := map[string]bool{}
	uids := make([]string, 0, len(victims))
	for _, v := range victims {
		here[string(v.UID)] = true
		uids = append(uids, string(v.UID))
	}
	var others []*corev1.Pod
	for _, unit := range units(w.evictions.cluster.Gangs, uids, nil) {
		for _, uid := range unit {
			if o := w.evictions.cluster.Gangs.Pod(uid); !here[uid] && o != nil && !terminates(o) {
				others = append(others, o)
			}
		}
	}
	if len(others) == 0 { // pods without a gang do not pay for the budgets
		return victims, violating, status
	}
	budgets, charges := kube.NewBudgets(run.Budgets), gang.Charges{}
	for _, v := range victims {
		charges.Add(budgets.Of(v))
	}
	for _, o := range others {
		if charges.Add(budgets.Of(o)) {
			violating++
		}
	}
	victims = append(victims, others...)
	sort.SliceStable(victims, func(i, j int) bool { return w.chooser.MoreImportant(victims[i], victims[j]) })
	return victims, violating, status
}

// units returns the victims by units of eviction, where the pods of gone do not count any more.
func units(gangs *kube.Gangs, victims []string, gone map[string]bool) [][]string {
	return kube.Ask(gangs, func(s *gang.State) [][]string {
		return s.Units(victims, func(uid string) bool { return gone[uid] })
	})
}
