package coscheduling

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
)

// reservation is the nodes that are kept for the members of a group. They are nominated to them, as if victims had to
// end there: pods of lower or equal priority get neither the room nor the quota. It yields to all that is before the
// group in the queue's order, so that of two groups never each waits for the other.
type reservation struct {
	rank    gang.Rank
	highest int32 // of the members' priorities
	pods    map[string]*corev1.Pod
	nodes   map[string]string // by UID of pods
}

// keepNodes keeps nodes for a group whose plan has failed, if it was overtaken too often and would fit without the pods
// behind it. Those that run are not evicted.
func (r *Rounds) keepNodes(ctx context.Context, is *round, current string) {
	if is.cause == nil || is.recalled || is.failure.Preempts {
		return
	}
	is.failure.Outlook = gang.Short
	order, member := append([]string{current}, is.next...), is.queued[current].Pod
	preferred, nominated := map[string]string{}, false
	rank := r.Gangs.RankOf(member)
	for _, uid := range order {
		preferred[uid] = is.queued[uid].Pod.Status.NominatedNodeName
		nominated = nominated || preferred[uid] != ""
		if h := r.held[rank.Name]; h != nil {
			preferred[uid] = h.nodes[uid]
		}
	}
	if !kube.Ask(r.Gangs, func(s *gang.State) bool { return s.Overtaken(string(member.UID), nominated) }) {
		return
	}
	if is.failure.Skip.Choices > 0 { // the rest of the plan may find room; what is kept remains
		is.nominated = preferred
		return
	}
	is.failure.Outlook = gang.Hopeless
	own := r.group(member)
	goes := func(p *corev1.Pod) bool {
		return rank.Before(r.Gangs.RankOf(p)) && !slices.Contains(own, r.Gangs.GangOf(p))
	}
	var nodes map[string]string
	for is.places = range r.placesWithout(is, current, goes) {
		nodes = r.planWithout(ctx, is, order, preferred, goes)
		if r.release(r.Core.Profiles[member.Spec.SchedulerName]); nodes != nil {
			break
		}
	}
	is.places = nil
	delete(r.held, rank.Name)
	if nodes == nil {
		return
	}
	is.nominated, is.failure.Outlook = nodes, gang.Reserved
	h := &reservation{rank: rank, pods: map[string]*corev1.Pod{}, nodes: nodes}
	for uid := range nodes {
		pod := is.queued[uid].Pod
		h.pods[uid] = pod
		h.highest = max(h.highest, corev1helpers.PodPriority(pod))
	}
	if r.held == nil {
		r.held = map[string]*reservation{}
	}
	r.held[rank.Name] = h
	klog.FromContext(ctx).V(2).Info("Nodes are kept for a gang that was overtaken", "gang", rank.Name,
		"pods", len(nodes))
}

// crowded is a node with pods behind a group.
type crowded struct {
	node string
	pods []fwk.PodInfo
}

// planWithout returns a node for each member as if pods that go were gone: those of as few nodes as do, else all of
// them; nil where the group does not fit even then.
func (r *Rounds) planWithout(ctx context.Context, is *round, order []string, preferred map[string]string,
	goes func(*corev1.Pod) bool,
) map[string]string {
	nodes, err := r.Core.Profiles[is.queued[order[0]].Pod.Spec.SchedulerName].SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil
	}
	members := &domain.Request{Members: order}
	names, least := is.dimensions(members), is.demand(members).Each
	kept, all, behind := map[string]bool{}, []crowded{}, map[*corev1.Pod]bool{}
	for _, node := range preferred {
		kept[node] = true
	}
	for _, n := range nodes {
		c := crowded{node: n.Node().Name}
		for _, info := range n.GetPods() {
			if goes(info.GetPod()) {
				c.pods, behind[info.GetPod()] = append(c.pods, info), true
			}
		}
		if len(c.pods) > 0 && hasWithout(n, behind, names, least) &&
			slices.ContainsFunc(order, func(uid string) bool { return is.places[uid].has(c.node) }) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b crowded) int {
		return cmp.Or(trueFirst(kept[a.node], kept[b.node]), cmp.Compare(len(a.pods), len(b.pods)),
			cmp.Compare(a.node, b.node))
	})
	smallest := slices.Clone(order)
	slices.SortStableFunc(smallest, func(a, b string) int { return compareSizes(is.queued[a], is.queued[b]) })
	for _, try := range []struct {
		order []string
		first int // nodes without the pods behind the group, before more are needed
	}{{order, 0}, {smallest, len(all)}} {
		is.planned = map[string]scheduler.ScheduleResult{}
		for uid, node := range preferred {
			is.planned[uid] = scheduler.ScheduleResult{SuggestedHost: node}
		}
		p := r.newPreemption(ctx, is)
		p.read(order)
		placed := p.placeWithout(try.order, all, try.first)
		whole := is.isWhole()
		p.back(0)
		if placed != nil && whole && !p.broken {
			return placed
		}
	}
	return nil
}

// hasWithout reports whether a node has at least so much free without some pods.
func hasWithout(n fwk.NodeInfo, gone map[*corev1.Pod]bool, names []corev1.ResourceName, least []int64) bool {
	for i, name := range names {
		if freeOn(n, name, func(p *corev1.Pod) bool { return gone[p] }) < least[i] && !leavesUnlimited(n, name) {
			return false
		}
	}
	return true
}

// placeWithout finds a node for each member, and counts them in quotas. Where one does not fit that its gang needs,
// more nodes are taken to be without the pods behind the group.
func (p *preemption) placeWithout(order []string, all []crowded, first int) (nodes map[string]string) {
	plan, _, _ := p.Gangs.Begin(p.is.queued[order[0]].Pod)
	if plan == nil {
		return nil
	}
	empty := 0
	without := func(n int) {
		for ; empty < min(n, len(all)); empty++ {
			for _, info := range all[empty].pods {
				p.take(&unit{pods: []fwk.PodInfo{info}})
			}
		}
	}
	without(first)
	failed, _ := plan.Try(order, func(uid string) bool {
		for {
			_, err := p.try(uid)
			if err == nil {
				return true
			}
			delete(p.is.planned, uid)
			if empty == len(all) || !plan.Lacks(uid) {
				return false
			}
			without(max(2*empty, len(order)))
		}
	})
	if failed != "" {
		return nil
	}
	if p.claim(); !p.admitted() {
		if without(len(all)); !p.admitted() {
			return nil
		}
	}
	nodes = map[string]string{}
	for uid, on := range p.placed {
		nodes[uid] = on.pod.Pod.Spec.NodeName
	}
	return nodes
}

// yield lets a pod have what is kept for groups behind it, until restore.
func (r *Rounds) yield(pod *corev1.Pod) {
	if len(r.held) == 0 {
		return
	}
	rank := r.Gangs.RankOf(pod)
	for key, h := range r.held {
		switch {
		case !r.reserves(key):
			delete(r.held, key)
		case corev1helpers.PodPriority(pod) <= h.highest && rank.Before(h.rank):
			for uid := range h.nodes {
				r.Core.SchedulingQueue.DeleteNominatedPodIfExists(h.pods[uid])
				r.Quotas.Read(func(a *quota.Account) { a.Withdraw(uid) }) // which wakes no pod: it is for this cycle
			}
			r.yielded = append(r.yielded, h)
		}
	}
}

// reserves reports whether nodes are kept for the group of a name.
func (r *Rounds) reserves(name string) bool {
	return kube.Ask(r.Gangs, func(s *gang.State) bool { return s.Reserves(name) })
}

// restore ends what yield does.
func (r *Rounds) restore(logger klog.Logger) {
	for _, h := range r.yielded {
		stands := r.reserves(h.rank.Name)
		for uid, node := range h.nodes {
			if pod := r.Gangs.Pod(uid); stands && pod != nil {
				nominating := &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: node}
				r.Core.SchedulingQueue.AddNominatedPod(logger, &framework.PodInfo{Pod: pod}, nominating)
				r.Quotas.Read(func(a *quota.Account) { a.Nominate(uid) })
			}
		}
	}
	r.yielded = nil
}

// Withdraw ends the nomination of a pod. Any goroutine may call it.
func (r *Rounds) Withdraw(pod *corev1.Pod) {
	r.Core.SchedulingQueue.DeleteNominatedPodIfExists(pod)
	r.Quotas.Update(pod.UID, func(a *quota.Account) { a.Withdraw(string(pod.UID)) })
}

// withdraw ends the nominations of pods that their gang's gate holds back: it has lost a member since.
func (h *Held) withdraw(ctx context.Context) {
	for _, p := range h.Gangs.Pods(func(p *corev1.Pod, s *gang.State) bool {
		return p.Status.NominatedNodeName != "" && p.Spec.NodeName == "" && s.Gate(string(p.UID)).Code != why.None
	}) {
		h.Withdraw(p)
		if !h.budget.TryAccept() {
			continue // its status says so later; until then it may be nominated again
		}
		status := p.Status.DeepCopy()
		status.NominatedNodeName = ""
		err := schedutil.PatchPodStatus(ctx, h.Client, p.Name, p.Namespace, &p.Status, status)
		if err != nil && !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "Failed to withdraw the nomination of a pod that is held back", "pod",
				klog.KObj(p))
		}
	}
}

// waitsToPreempt reports whether a group evicts no pods yet, and notes when it is to be tried again for it.
func (r *Rounds) waitsToPreempt(is *round, current string, now time.Time) bool {
	delay := r.Gangs.Rules().PreemptionDelay
	if delay == 0 {
		return false
	}
	uid := string(is.queued[current].Pod.UID)
	since := kube.Ask(r.Gangs, func(s *gang.State) time.Time { return s.FailedSince(uid, now) })
	if now.Sub(since) >= delay {
		return false
	}
	is.failure.Again = since.Add(delay)
	return true
}
