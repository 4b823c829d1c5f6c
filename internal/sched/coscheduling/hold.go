package coscheduling

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/forecast"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

const (
	// searchEvery is how long a promise remains before it is asked whether to look for a start anew, unless its time or
	// a node is gone.
	searchEvery = 10 * time.Second
	// vainSearches bounds the units that look for a start in vain between two events, and within searchEvery.
	vainSearches = 8
)

// unknownEnd is later than all ends that are declared.
var unknownEnd = time.Unix(1<<40, 0)

// endOf returns when a pod ends by what it and its quota declare; zero for unknown. A pod that has not started, as far
// as is known, starts now.
func (c *Cluster) endOf(p *corev1.Pod, now time.Time) time.Time {
	if p.DeletionTimestamp != nil {
		return p.DeletionTimestamp.Time
	}
	d, ran := convert.Declared(p, nil), time.Duration(0)
	d.Quota = kube.Ask(c.Quotas, func(a *quota.Account) time.Duration { return a.RunTime(string(p.UID)) })
	if started := convert.Started(p); !started.IsZero() {
		ran = now.Sub(started)
	}
	left, _ := d.RunTime().Left(ran)
	if left == forecast.Never {
		return time.Time{}
	}
	return now.Add(left)
}

// endsOf returns when the pods on nodes end; nil where none declares it.
func (c *Cluster) endsOf(nodes []fwk.NodeInfo, now time.Time) gang.Ends {
	ends, declares := gang.Ends{}, false
	for _, n := range nodes {
		for _, info := range n.GetPods() {
			pod := info.GetPod()
			end := gang.End{Node: n.Node().Name, At: c.endOf(pod, now)}
			declares = declares || pod.DeletionTimestamp == nil && !end.At.IsZero()
			ends[string(pod.UID)] = end
		}
	}
	if !declares {
		return nil
	}
	return ends
}

// evictable returns what reports whether a unit may evict a pod by itself; nil where it evicts none.
func (ev *Evictions) evictable(preemptor *corev1.Pod) func(*corev1.Pod) bool {
	chooser := ev.chooser(preemptor)
	if chooser == nil {
		return func(*corev1.Pod) bool { return false }
	}
	may := chooser.Rules()
	return func(p *corev1.Pod) bool {
		// The rule for members of gangs needs a node, and most of them go with their gang alone.
		return ev.cluster.Gangs.GangOf(p) == "" && may(nil, &framework.PodInfo{Pod: p}, preemptor)
	}
}

// leaving returns when pods have left their nodes, by UID, for a unit that looks for a start: each has ended by then,
// or is evicted for the unit at no loss, or is behind the unit, which is unknownEnd where the unit was overtaken.
func (r *reservations) leaving(nodes []fwk.NodeInfo, member *corev1.Pod, ends gang.Ends, overtaken bool,
) map[types.UID]time.Time {
	rank, own := r.cluster.Gangs.RankOf(member), r.cluster.group(member)
	rules, evictable := r.rules(), r.evictions.evictable(member)
	leaves := map[types.UID]time.Time{}
	for _, n := range nodes {
		for _, info := range n.GetPods() {
			pod := info.GetPod()
			end := ends[string(pod.UID)].At
			switch {
			case slices.Contains(own, r.cluster.Gangs.GangOf(pod)):
			case rules.Frees(rank, corev1helpers.PodPriority(pod)) && evictable(pod):
				leaves[pod.UID] = time.Time{}
			case !end.IsZero():
				leaves[pod.UID] = end
			case overtaken && rank.Before(r.cluster.Gangs.RankOf(pod)):
				leaves[pod.UID] = unknownEnd
			}
		}
	}
	return leaves
}

// firstRoom returns before which time members do not fit by the amounts of nodes alone; ok is false where they never
// do.
func (r *reservations) firstRoom(nodes []fwk.NodeInfo, m *members, leaves map[types.UID]time.Time) (time.Time, bool) {
	names, usable := m.dimensions(m.order), r.cluster.usableBy(m)
	each := m.demand(&domain.Request{Members: m.order}).Each
	rooms := make([]gang.Room, 0, len(nodes))
	for _, n := range nodes {
		room := gang.Room{Free: freeInDimensions(n, names, usable)}
		for _, info := range n.GetPods() {
			at, goes := leaves[info.GetPod().UID]
			if !goes || usable != nil && usable(info.GetPod()) {
				continue
			}
			back := make([]int64, len(names))
			for i, name := range names {
				switch {
				case room.Free[i] == domain.Unlimited:
				case name == corev1.ResourcePods:
					back[i] = 1
				default:
					back[i] = amountOf(info.CalculateResource().Resource, name)
				}
			}
			room.Leaves = append(room.Leaves, gang.Leave{At: at, Room: back})
		}
		rooms = append(rooms, room)
	}
	return gang.FirstRoom(rooms, each, m.plan.Needed())
}

// Moment is a time at which pods start that hold a node.
type Moment struct {
	// Over are the pods that have left the node by then, Starts those that have started there.
	Over, Starts []fwk.PodInfo
}

// Moments returns when a node must have room for the pods that are nominated to it beside another pod, which may have
// what they leave: at the starts that they were promised. It returns nil where they must fit beside that pod at once:
// one has no promise, or the other pod holds the place of a Reservation.
func (r *Rounds) Moments(pod *corev1.Pod, node fwk.NodeInfo, nominated []fwk.PodInfo) (all []Moment) {
	if convert.IsReservePod(pod) {
		return nil
	}
	var uids []string
	byUID := map[string]fwk.PodInfo{}
	for _, info := range nominated {
		p := info.GetPod()
		if p.UID == pod.UID || corev1helpers.PodPriority(p) < corev1helpers.PodPriority(pod) {
			continue // the pod has what it gets
		}
		uids, byUID[string(p.UID)] = append(uids, string(p.UID)), info
	}
	if len(uids) == 0 {
		return nil
	}
	unit := r.cluster.Gangs.RankOf(pod).Name
	moments := kube.Ask(r.cluster.Gangs, func(s *gang.State) []gang.Moment {
		all, _ := s.HoldRules().Moments(s.Holds(), unit, uids)
		return all
	})
	ends := r.cluster.endsOf([]fwk.NodeInfo{node}, r.cluster.Wall.Now())
	for _, m := range moments {
		at, over := Moment{}, ends.Over(m.Start)
		for _, info := range node.GetPods() {
			if uid := string(info.GetPod().UID); over[uid] || slices.Contains(m.Over, uid) {
				at.Over = append(at.Over, info)
			}
		}
		for _, uid := range m.Pods {
			at.Starts = append(at.Starts, byUID[uid])
		}
		all = append(all, at)
	}
	return all
}

// rules are who may hold nodes, and who else may use these.
func (r *reservations) rules() gang.HoldRules {
	return kube.Ask(r.cluster.Gangs, (*gang.State).HoldRules)
}

// mayHold reports whether a unit may look for a promise.
func (r *reservations) mayHold(rank gang.Rank) bool {
	events, now := r.cluster.Events.Count(), r.cluster.Wall.Now()
	if r.at != events && now.Sub(r.since).Abs() >= searchEvery {
		r.at, r.since, r.vain = events, now, 0
	}
	return (r.kept[rank.Name] != nil || r.vain < vainSearches) && r.rules().MayHold(rank, r.holds())
}

// holds are what is held now. What has ended is forgotten.
func (r *reservations) holds() (all []gang.Hold) {
	for key, h := range r.kept {
		if !r.isAlive(h) {
			delete(r.kept, key)
			continue
		}
		all = append(all, h.Hold)
	}
	return all
}

// isAlive reports whether what a reservation is for still waits. A pod that starts alone does while it is nominated.
func (r *reservations) isAlive(h *reservation) bool {
	if !h.single || slices.Contains(r.suspended, h) {
		return h.single || r.reserves(h.Rank.Name)
	}
	for uid, node := range h.nodes {
		for _, p := range r.cluster.Core.Queue().NominatedPodsForNode(node) {
			if string(p.GetPod().UID) == uid {
				return true
			}
		}
	}
	return false
}

// stands reports whether a promise may remain as it is: it is for the same members, on nodes that are as they were, and
// its time has not come.
func (r *reservations) stands(h *reservation, m *members, f framework.Framework, now time.Time) bool {
	if h == nil || h.Start.IsZero() || !now.Before(h.Start) || now.Before(h.asked) || len(m.order) != h.members {
		return false
	}
	for uid, node := range h.nodes {
		info, err := f.SnapshotSharedLister().NodeInfos().Get(node)
		if m.pods[uid] == nil || err != nil || isOther(h.on[node], info.Node()) {
			return false
		}
	}
	return true
}

// admits reports whether quotas admit members that hold nodes at their start, with the pods gone that have left by
// then. A quota may have less than when the start was found.
func (r *reservations) admits(h *reservation, m *members, nodes []fwk.NodeInfo, ends gang.Ends) bool {
	if !slices.ContainsFunc(m.order, func(uid string) bool { return r.cluster.Quotas.Limits(m.pods[uid].Pod) }) {
		return true
	}
	leaves := r.leaving(nodes, m.first(), ends, h.Overtaken)
	return kube.Ask(r.cluster.Quotas, func(a *quota.Account) *quota.Excess {
		t := a.TryAll(slices.Collect(maps.Keys(h.nodes)))
		for uid, at := range leaves {
			if !at.After(h.Start) {
				a.Take(t, string(uid))
			}
		}
		return a.AdmitTrial(t)
	}) == nil
}

// isOther reports whether a node has changed so that pods may not fit there that did.
func isOther(was, now *corev1.Node) bool {
	same := equality.Semantic.DeepEqual
	return was != now && !(same(was.Spec, now.Spec) && maps.Equal(was.Labels, now.Labels) &&
		same(was.Status.Allocatable, now.Status.Allocatable))
}

// userOf returns what asks for room with a pod: all members of a round.
func (r *reservations) userOf(pod *corev1.Pod, round *groupRound) (u gang.HoldUser, pods []*corev1.Pod) {
	u, pods = gang.HoldUser{Rank: r.cluster.Gangs.RankOf(pod)}, []*corev1.Pod{pod}
	if round != nil && round.plan != nil {
		pods = nil
		for _, p := range round.pods {
			if p != nil {
				pods = append(pods, p.Pod)
			}
		}
	}
	now := r.cluster.Wall.Now()
	for i, p := range pods {
		end := r.cluster.endOf(p, now)
		if i == 0 || end.IsZero() || end.After(u.Ends) && !u.Ends.IsZero() {
			u.Ends = end
		}
		if priority := corev1helpers.PodPriority(p); i == 0 || priority > u.Priority {
			u.Priority = priority
		}
	}
	return u, pods
}

// keep adds a reservation, and ends promises of which there are too many with it.
func (r *reservations) keep(h *reservation) {
	// A pod that starts alone is nominated at the end of its cycle: only then it counts as one that waits.
	for _, o := range r.rules().Excess(append(r.holds(), h.Hold)) {
		if too := r.kept[o.Rank.Name]; too != nil {
			r.withdraw(too)
			delete(r.kept, o.Rank.Name)
		}
	}
	r.kept[h.Rank.Name] = h
}

// withdraw ends the nominations of what is held.
func (r *reservations) withdraw(h *reservation) {
	for uid := range h.nodes {
		r.cluster.Core.Queue().DeleteNominatedPodIfExists(h.pods[uid])
		// This wakes no pod.
		r.cluster.Quotas.Read(func(a *quota.Account) { a.Withdraw(uid) })
	}
}

// Hold returns the node that is held for a pod that starts alone, does not fit, and has no victims; "" for none.
func (r *Rounds) Hold(ctx context.Context, pod *corev1.Pod, result *fwk.PostFilterResult) string {
	rank, uid := r.cluster.Gangs.RankOf(pod), string(pod.UID)
	was := r.reservations.kept[rank.Name]
	awaitsVictims := result == nil && pod.Status.NominatedNodeName != "" && was == nil
	domains := kube.Ask(r.cluster.Gangs, func(s *gang.State) bool { return s.DomainRequest(uid) != nil })
	if awaitsVictims || domains || !r.reservations.mayHold(rank) {
		return ""
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return ""
	}
	f := r.cluster.Core.Profile(pod.Spec.SchedulerName)
	queued := &framework.QueuedPodInfo{PodInfo: info, PodSignature: f.SignPod(ctx, pod)}
	m := &members{
		plan: gang.Single(uid), pods: map[string]*framework.QueuedPodInfo{uid: queued}, order: []string{uid},
	}
	nodes, _ := r.reservations.keepNodes(ctx, m, false)
	count := (*quota.Account).Withdraw
	if nodes[uid] != "" {
		count = (*quota.Account).Nominate
	}
	if was != nil || nodes[uid] != "" {
		r.cluster.Quotas.Update(pod.UID, func(a *quota.Account) { count(a, uid) })
	}
	return nodes[uid]
}
