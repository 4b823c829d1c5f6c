package coscheduling

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// answer is why the groups of a shape do not fit. It holds until an event that may help one of them, and answers each
// group once: one that comes again was woken by something else, and is planned.
//
// It is right because a plan depends on nothing but the shape, the snapshot, the quotas and the rank: the snapshot
// differs from that of the first group by pods that were bound since, which only take room; failures for a quota are
// not remembered; and a group with a higher rank is planned, as kept nodes may be open to it. Without it each of many
// equal gangs that wait would be planned after each event.
type answer struct {
	// first is the rank of the group that was planned; those before it may see room that it does not.
	first gang.Rank
	// member is the one that failed, by its index in the order in which members are tried first.
	member int
	// failure is the failure of the first group, whose UID names a member of that group.
	failure gang.Failure
	// cause is why its member does not fit. It is a copy, because the queue changes what it is given.
	cause *framework.FitError
	// answered has the names of the groups that got the answer.
	answered map[string]bool
}

// answers are known by shape. They belong to the scheduling loop.
type answers struct {
	cluster   *Cluster
	planner   *planner
	evictions *Evictions
	// reservations know which groups are to be planned for what is kept.
	reservations *reservations
	at           uint64 // how many events were counted when those of known were learned; another count forgets all
	// known has at most mostAnswers. nil before the first one is learnt.
	known map[shape]*answer
}

// shape is a hash of all that decides about a group, see Rounds.shape.
type shape [sha256.Size]byte

// mostAnswers bounds those that are known at once.
const mostAnswers = 1000

// recall reports whether it is known that a group does not fit, and why: one of equal shape did not, and nothing has
// happened since that may help.
func (a *answers) recall(ctx context.Context, round *groupRound) bool {
	if a.at != round.events {
		a.at, a.known = round.events, nil
	}
	if len(a.known) == 0 {
		return false
	}
	member := round.first()
	s, ok := a.shape(ctx, round.members)
	rank := a.cluster.Gangs.RankOf(member)
	k := a.known[s]
	overtaken := a.reservations.isOvertaken(member, false)
	if !ok || k == nil || k.answered[rank.Name] || !k.first.Before(rank) ||
		overtaken && k.failure.Outlook != gang.Hopeless ||
		k.failure.Outlook == gang.Promised && a.reservations.mayHold(a.cluster.Gangs.RankOf(member)) {
		return false
	}
	// Each answer serves a group once: if the group comes again, another event has woken it.
	k.answered[rank.Name] = true
	failed := round.order[k.member]
	round.failure, round.recalled = k.failure, true
	round.failure.UID = failed
	if !overtaken {
		round.failure.Outlook = gang.Short
	}
	round.cause = copyFor(round.pods[failed].Pod, k.cause)
	round.failure.Again = a.evictions.preemptsAt(member, a.cluster.Clock.Now())
	return true
}

// learn remembers why a group does not fit, for those of equal shape. It does not where the answer may change without
// an event: for a shortage of quota, a plan that has domains left to try, one that waits to evict, and one after which
// events were counted already.
func (a *answers) learn(ctx context.Context, round *groupRound) {
	f := round.failure
	var cause *framework.FitError
	if f.Cause.Code.Class() == why.Quota { // they may change without an event
		return
	}
	// An answer that depends on which domains earlier plans tried holds for that group alone.
	before := round.plan.Skip
	if f.Skip.Choices > 0 || before.Choices > 0 && before.Since != round.events { // other domains may have room by now
		return
	}
	if round.recalled || f.Preempts || !f.Again.IsZero() || !errors.As(round.cause, &cause) ||
		f.Outlook == gang.NoRoomNeeded || f.Outlook == gang.Reserved || a.at != round.events {
		return
	}
	s, ok := a.shape(ctx, round.members)
	if !ok {
		return
	}
	rank := a.cluster.Gangs.RankOf(round.first())
	// All answers are forgotten at once: that is rare, and an answer that is missing costs one plan.
	if len(a.known) == mostAnswers || a.known == nil {
		a.known = map[shape]*answer{}
	}
	kept := copyFor(cause.Pod, cause)
	a.known[s] = &answer{rank, slices.Index(round.order, f.UID), f, kept, map[string]bool{rank.Name: true}}
}

// copyFor returns what keeps another pod from its nodes. The queue clears the names of plugins that it has of a pod.
func copyFor(pod *corev1.Pod, failure *framework.FitError) *framework.FitError {
	fit := &framework.FitError{Pod: pod, NumAllNodes: failure.NumAllNodes, Diagnosis: failure.Diagnosis}
	fit.Diagnosis.UnschedulablePlugins = failure.Diagnosis.UnschedulablePlugins.Clone()
	return fit
}

// shape identifies all that decides whether a group fits, where that is known, apart from its place in the queue: its
// gangs, and of each member, in the order in which they are tried, what its plugins sign, its demands, annotations and
// quota.
func (a *answers) shape(ctx context.Context, m *members) (s shape, ok bool) {
	holds := func(g *domain.Request) bool { return len(g.Held) > 0 }
	if len(m.order) != len(m.plan.Members) || slices.ContainsFunc(m.plan.DomainRequests, holds) {
		return s, false // one is held back, or members have a place that decides about the others'
	}
	hash := sha256.New()
	gangs, classes := map[string]int{}, map[string]string{}
	// Plugins sign the pod by the state of a cycle, which needs marks but no reservation.
	trial := &attempt{
		cluster: a.cluster, planner: a.planner, ctx: ctx, members: m, trial: a.cluster.Plugins.Trial(), admits: true,
	}
	for _, uid := range m.order {
		pod := m.pods[uid]
		if pod.Pod.Status.NominatedNodeName != "" || a.evictions.isEvicting(uid) {
			return s, false
		}
		gangUID := a.cluster.Gangs.GangOf(pod.Pod)
		at, known := gangs[gangUID]
		if !known {
			at = len(gangs)
			gangs[gangUID] = at
			fmt.Fprintln(hash, a.cluster.describe(gangUID))
		}
		key := kindOf(pod.Pod)
		if a.cluster.Quotas.Limits(pod.Pod) {
			key += fmt.Sprint(convert.PodsOf(pod.Pod), convert.IsPreemptible(pod.Pod))
		}
		class, known := classes[key]
		if !known {
			class = classOf(ctx, trial.profile(uid), trial.state(), pod)
			if class == "" {
				return s, false
			}
			classes[key] = class
		}
		fmt.Fprintf(hash, "%d %q %q\n", at, key, class)
	}
	hash.Sum(s[:0])
	return s, true
}

// isEvicting reports whether victims of a member are about to be evicted.
func (ev *Evictions) isEvicting(uid string) bool {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	return ev.evicting[uid] != ""
}

// describe returns what holds for a gang, its PodGroup included.
func (c *Cluster) describe(id string) string {
	report := kube.Ask(c.Gangs, func(s *gang.State) gang.Report { g, _ := s.Find(id); return g })
	settings := report.Settings
	// The names of the gangs differ between equal groups.
	settings.Group = nil
	needs := []any{settings, len(report.Settings.Group), len(report.Members), len(report.In(gang.Pending))}
	if o := c.Gangs.Object(id); o != nil {
		rest := *o
		rest.ObjectMeta, rest.Spec = metav1.ObjectMeta{}, v1alpha1.PodGroupSpec{}
		rest.Status = v1alpha1.PodGroupStatus{}
		rest.Priority = nil
		needs = append(needs, o.Spec, o.Priority, said(o.Annotations), fmt.Sprintf("%+v", rest))
	}
	return encode(needs)
}

// said returns annotations without those that name a gang, and those that no scheduler reads.
func said(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	maps.DeleteFunc(out, func(key, _ string) bool {
		return key == annotation.GangName || key == annotation.GangGroups ||
			strings.HasPrefix(key, "batch.kubernetes.io/") || strings.HasPrefix(key, "kubectl.kubernetes.io/")
	})
	return out
}

// kindOf returns what is read of a pod besides what plugins sign.
func kindOf(p *corev1.Pod) string {
	return fmt.Sprint(demands(p), said(p.Annotations), corev1helpers.PodPriority(p),
		ptr.Deref(p.Spec.PreemptionPolicy, ""), p.Spec.SchedulerName, p.Spec.Overhead, p.Spec.HostNetwork,
		len(p.Spec.Volumes), len(p.Spec.ResourceClaims))
}

// classOf returns what the place of a pod depends on; "" where that is more than each node by itself.
func classOf(ctx context.Context, f framework.Framework, state fwk.CycleState, pod *framework.QueuedPodInfo) string {
	if _, status, _ := f.RunPreFilterPlugins(ctx, state, pod.Pod); !status.IsSuccess() {
		return ""
	}
	if f, ok := f.(classifier); ok {
		return f.ClassOf(ctx, pod.Pod, pod.PodSignature, state)
	}
	return ""
}
