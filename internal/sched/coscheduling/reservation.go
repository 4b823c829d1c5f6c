package coscheduling

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/upstream/schedpod"
)

// reservation is the nodes that are kept for the members of a group, or for a pod that starts alone. They are nominated
// to them, as if victims had to end there: pods of lower or equal priority get neither the room nor the quota, unless
// the hold yields to them. It yields to all that is before the group in the queue's order, so that of two groups never
// each waits for the other.
//
// The members hold no entry in the nodes' accounts, as pods of a Reservation do: the room is taken by pods that run,
// and which CPUs and devices become free is not known. What a nominated member will have is computed for each pod that
// is tried beside it, see place.Promise.
type reservation struct {
	// Hold has the rank of the group when the nodes were kept, and the promised start.
	gang.Hold
	// single is set for a pod that starts alone, started once it has a node. members is how many were planned.
	single, started bool
	members         int
	// search is the one that found the start, and asked is when it was last asked whether another one is due.
	search gang.Search
	asked  time.Time
	// highest is the highest priority of the members.
	highest int32
	// pods has the members with nodes, by UID, as they were then.
	pods map[string]*corev1.Pod
	// nodes has the node of each of them, by UID, and on has these nodes as they were then, by name.
	nodes map[string]string
	on    map[string]*corev1.Node
	// evictable reports whether the group may evict a pod by itself.
	evictable func(*corev1.Pod) bool
}

// reservations are the nodes that are kept for groups. They belong to the scheduling loop.
type reservations struct {
	cluster   *Cluster
	planner   *planner
	evictions *Evictions
	// kept has the reservation of each unit, by the name of its rank. Some have ended by the group's state; holds
	// removes these.
	kept map[string]*reservation
	// published has those of kept that others know of.
	published map[string]*reservation
	// suspended are those whose room the cycle under way may use; empty between cycles.
	suspended []*reservation
	// vain is how many units have looked for a start in vain since a time, when at events had been counted.
	vain  int
	at    uint64
	since time.Time
}

// keepNodes keeps nodes for a group whose plan has failed, and returns the nodes that the members are nominated to. A
// group that may have a promise, or that was overtaken too often, gets those on which it fits first, with the pods gone
// that have ended by then. Where it was overtaken too often, the last time is without all pods behind it, whose ends
// are not known. Pods that run are not evicted for it. What is kept remains while portion says that the plan has
// domains left to try.
func (r *reservations) keepNodes(ctx context.Context, m *members, portion bool) (map[string]string, gang.Outlook) {
	member := m.first()
	preferred, rank := m.nominated(), r.cluster.Gangs.RankOf(member)
	nominated := slices.ContainsFunc(m.order, func(uid string) bool { return preferred[uid] != "" })
	h, now := r.kept[rank.Name], r.cluster.Wall.Now()
	if h != nil {
		preferred = h.nodes
	}
	f := r.cluster.Core.Profile(member.Spec.SchedulerName)
	overtaken := r.isOvertaken(member, nominated)
	switch {
	case !overtaken && !r.mayHold(rank):
		delete(r.kept, rank.Name)
		return nil, gang.Short
	case portion: // the rest of the plan may find room
		return preferred, gang.Short
	}
	nodes, err := f.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, gang.Short
	}
	fresh := r.stands(h, m, f, now)
	if fresh && now.Sub(h.asked) < searchEvery {
		return h.nodes, gang.Promised
	}
	search := gang.Search{Others: r.cluster.Events.Others()}
	if r.rules().Most > 0 {
		search.Ends = r.cluster.endsOf(nodes, now)
	}
	if fresh && !h.search.IsDue(search.Ends, search.Others, slices.Collect(maps.Keys(h.on)), h.Start, now) &&
		r.admits(h, m, nodes, search.Ends) {
		h.asked = now
		return h.nodes, gang.Promised
	}
	delete(r.kept, rank.Name)
	start, on, ok := r.findStart(ctx, m, nodes, search.Ends, preferred, overtaken)
	found := gang.Promised
	switch {
	case !ok && overtaken:
		return nil, gang.Hopeless
	case !ok:
		r.vain++
		return nil, gang.Short
	case !start.Before(unknownEnd):
		start, found = time.Time{}, gang.Reserved
	}
	if h != nil && !start.Before(h.Start) {
		search.Vain = h.search.Vain + 1
	}
	since, renewed := now, m.isKnownHeld(on)
	if h != nil {
		since, renewed = h.Since, h.Renewed
	}
	h = &reservation{
		Hold:   gang.Hold{Rank: rank, Start: start, Since: since, Overtaken: overtaken, Renewed: renewed},
		single: r.cluster.Gangs.Alone(member), members: len(m.order),
		search: search, asked: now, pods: map[string]*corev1.Pod{}, nodes: on, on: map[string]*corev1.Node{},
		evictable: r.evictions.evictable(member),
	}
	for uid, node := range on {
		pod := m.pods[uid].Pod
		h.pods[uid] = pod
		h.highest = max(h.highest, corev1helpers.PodPriority(pod))
		if info, err := f.SnapshotSharedLister().NodeInfos().Get(node); err == nil {
			h.on[node] = info.Node()
		}
	}
	r.keep(h)
	klog.FromContext(ctx).V(2).Info("Nodes are kept", "for", rank.Name, "pods", len(on), "start", start)
	return on, found
}

// findStart returns when and where a group starts first. A pod that declares no end, and is behind a group that was
// overtaken, counts as gone at unknownEnd.
func (r *reservations) findStart(ctx context.Context, m *members, nodes []fwk.NodeInfo, ends gang.Ends,
	preferred map[string]string, overtaken bool,
) (start time.Time, on map[string]string, ok bool) {
	times := ends.Times()
	if overtaken {
		times = append(times, unknownEnd)
	}
	if len(times) == 0 {
		return start, nil, false
	}
	leaves := r.leaving(nodes, m.first(), ends, overtaken)
	from, ok := r.firstRoom(nodes, m, leaves)
	if !ok {
		return start, nil, false
	}
	f := r.cluster.Core.Profile(m.first().Spec.SchedulerName)
	return gang.EarliestStart(times, from, func(at time.Time) (on map[string]string, _ bool) {
		goes := func(p *corev1.Pod) bool {
			left, goes := leaves[p.UID]
			return goes && !left.After(at)
		}
		if r.evictions.shortage(m, goes).UID != "" {
			return nil, false
		}
		for places := range r.planner.placesWithout(m, goes) {
			on = r.planWithout(ctx, m, nodes, places, preferred, goes)
			if r.planner.domains.release(f); on != nil {
				break
			}
		}
		return on, on != nil
	})
}

// isOvertaken reports whether the group of a member was overtaken too often.
func (r *reservations) isOvertaken(member *corev1.Pod, nominated bool) bool {
	return kube.Ask(r.cluster.Gangs, func(s *gang.State) bool { return s.Overtaken(string(member.UID), nominated) })
}

// crowded is a node with pods behind a group, on which a member may fit without them.
type crowded struct {
	// node is the name of the node.
	node string
	pods []fwk.PodInfo // behind the group
}

// planWithout returns a node for each member as if pods that go were gone: those of as few nodes as do, else all of
// them; nil where the group does not fit even then.
func (r *reservations) planWithout(ctx context.Context, m *members, nodes []fwk.NodeInfo, places map[string]*place,
	preferred map[string]string, goes func(*corev1.Pod) bool,
) map[string]string {
	names := m.dimensions(m.order)
	least := &gang.PackedClass{Asks: m.demand(&domain.Request{Members: m.order}).Each}
	kept, all, behind := map[string]bool{}, []crowded{}, map[*corev1.Pod]bool{}
	var left []string // on all nodes, for the quotas
	for _, node := range preferred {
		kept[node] = true
	}
	for _, n := range nodes {
		c := crowded{node: n.Node().Name}
		for _, info := range n.GetPods() {
			if goes(info.GetPod()) {
				c.pods, behind[info.GetPod()] = append(c.pods, info), true
				left = append(left, string(info.GetPod().UID))
			}
		}
		free := freeInDimensions(n, names, func(p *corev1.Pod) bool { return behind[p] })
		if len(c.pods) > 0 && least.FitsIn(free) &&
			slices.ContainsFunc(m.order, func(uid string) bool { return places[uid].has(c.node) }) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b crowded) int {
		return cmp.Or(trueFirst(kept[a.node], kept[b.node]), cmp.Compare(len(a.pods), len(b.pods)),
			cmp.Compare(a.node, b.node))
	})
	// The members are tried in their own order first, on as few nodes without the pods behind them as suffice; if that
	// fails, in each order of the packing, on all of these nodes.
	first := 0
	for _, order := range append([][]string{m.order}, m.orders()...) {
		p := r.evictions.newPreemption(ctx, m, places, on(preferred))
		p.left = left
		p.prepare()
		placed := p.placeWithout(order, all, first)
		first = len(all)
		whole := isWhole(places, p.planned)
		p.rollback(0)
		if placed != nil && whole && !p.broken {
			return placed
		}
	}
	return nil
}

// placeWithout finds a node for each member that the quotas admit as well. The first nodes of all are without the pods
// behind the group; where a member does not fit that its gang needs, more nodes are.
func (p *preemption) placeWithout(order []string, all []crowded, first int) map[string]string {
	empty := 0
	without := func(n int) {
		for ; empty < min(n, len(all)); empty++ {
			for _, info := range all[empty].pods {
				if !p.gone[string(info.GetPod().UID)] { // one that terminates may be already
					p.removeVictims(&unit{pods: []fwk.PodInfo{info}})
				}
			}
		}
	}
	without(first)
	failed, _ := p.plan.Try(order, func(uid string) bool {
		for p.plan.Lacks(uid) || p.admitsBeside(uid) {
			_, err := p.try(uid)
			if err == nil {
				return true
			}
			delete(p.planned, uid)
			if empty == len(all) || !p.plan.Lacks(uid) {
				return false
			}
			// Doubling keeps the number of attempts logarithmic in the number of nodes.
			without(max(2*empty, len(order)))
		}
		return false
	})
	if failed != "" {
		return nil
	}
	if p.quotas = p.tryQuotas(); !p.admitted() {
		return nil
	}
	return p.nodes()
}

// suspend lets a pod, with all members of its round, have what is kept for groups behind it, and what it gives back in
// time, until resume.
func (r *reservations) suspend(pod *corev1.Pod, round *groupRound) {
	if len(r.holds()) == 0 {
		return
	}
	user, pods := r.userOf(pod, round)
	rules := r.rules()
	for _, h := range r.kept {
		user.Evictable = !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return !h.evictable(p) })
		if corev1helpers.PodPriority(pod) <= h.highest && rules.Yields(h.Hold, user) {
			// The filters count nominated pods, so the nominations are lifted for this cycle.
			r.withdraw(h)
			r.suspended = append(r.suspended, h)
		}
	}
}

// reserves reports whether nodes are kept for the group of a name.
func (r *reservations) reserves(name string) bool {
	return kube.Ask(r.cluster.Gangs, func(s *gang.State) bool { return s.Reserves(name) })
}

// resume ends what suspend does: what is still kept is nominated again.
func (r *reservations) resume(logger klog.Logger) {
	for _, h := range r.suspended {
		stands := r.kept[h.Rank.Name] == h && r.isAlive(h)
		for uid, node := range h.nodes {
			pod := r.cluster.Gangs.Pod(uid)
			if h.single { // the queue looks whether it still waits
				pod = h.pods[uid]
			}
			if stands && pod != nil {
				nominating := &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: node}
				r.cluster.Core.Queue().AddNominatedPod(logger, &framework.PodInfo{Pod: pod}, nominating)
				r.cluster.Quotas.Read(func(a *quota.Account) { a.Nominate(uid) })
			}
		}
	}
	r.suspended = nil
}

// Withdraw ends the nomination of a pod, and wakes pods that may use the room. Any goroutine may call it.
func (r *Rounds) Withdraw(pod *corev1.Pod) {
	r.cluster.Core.Queue().DeleteNominatedPodIfExists(pod)
	r.cluster.Quotas.Update(pod.UID, func(a *quota.Account) { a.Withdraw(string(pod.UID)) })
	r.cluster.wakeBehind(klog.Background())
}

// withdraw ends the nominations of pods that their gang's gate holds back: it has lost a member since.
func (h *Held) withdraw(ctx context.Context) {
	for _, p := range h.Gangs.Pods(func(p *corev1.Pod, s *gang.State) bool {
		return p.Status.NominatedNodeName != "" && p.Spec.NodeName == "" && s.Gate(string(p.UID)).Code != why.None
	}) {
		h.Withdraw(p)
		h.Gangs.Reveal(func(uid string) bool { return uid == string(p.UID) })
		if !h.budget.TryAccept() {
			continue // its status says so later; until then it may be nominated again
		}
		h.nominate(ctx, p, "")
	}
}

// conceal removes the nominations of members from the API once nodes have been kept for them long enough: a cluster
// autoscaler adds no node for a nominated pod. The scheduler still sees them, see kube.Gangs.ShowConcealed. It writes
// them again where victims are evicted on these nodes.
func (h *Held) conceal(ctx context.Context, now time.Time) {
	was := h.kept
	h.kept = map[string]time.Time{}
	for _, p := range h.Gangs.Pods(func(p *corev1.Pod, s *gang.State) bool {
		return p.Status.NominatedNodeName != "" && p.Spec.NodeName == "" && s.IsReserved(string(p.UID))
	}) {
		uid := string(p.UID)
		since, known := was[uid]
		if !known {
			since = now
		}
		h.kept[uid] = since
		node := p.Status.NominatedNodeName
		if h.PlainReasons || now.Sub(since) < h.Gangs.Rules().ReservedBeforeScaleUp ||
			h.Gangs.Concealed(uid) == node || !h.budget.TryAccept() {
			continue
		}
		h.Gangs.Conceal(uid, node) // before the informer brings the pod without it
		if !h.nominate(ctx, p, "") {
			h.Gangs.Exhibit(uid)
		}
	}
	for p, node := range h.Gangs.Reveal(func(uid string) bool { return h.kept[uid].IsZero() }) {
		r := kube.Ask(h.Gangs, func(s *gang.State) gang.Refusal { return s.Why(string(p.UID)) })
		if r.Code == why.GangPreempting && p.Spec.NodeName == "" {
			h.nominate(ctx, p, node)
		}
	}
}

// nominate writes the nominated node of a pod, "" for none, and reports whether it is written.
func (h *Held) nominate(ctx context.Context, p *corev1.Pod, node string) bool {
	status := p.Status.DeepCopy()
	status.NominatedNodeName = node
	err := schedpod.PatchStatus(ctx, h.Client, p, status)
	if err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "Failed to write the nominated node of a pod", "pod", klog.KObj(p),
			"node", node)
	}
	return err == nil
}

// preemptsAt returns when the group of a member that has failed now may evict pods; zero where it may at once.
func (ev *Evictions) preemptsAt(member *corev1.Pod, now time.Time) time.Time {
	delay := ev.cluster.Gangs.Rules().PreemptionDelay
	if delay == 0 {
		return time.Time{}
	}
	since := kube.Ask(ev.cluster.Gangs, func(s *gang.State) time.Time { return s.FailedSince(string(member.UID), now) })
	if now.Sub(since) >= delay {
		return time.Time{}
	}
	return since.Add(delay)
}
