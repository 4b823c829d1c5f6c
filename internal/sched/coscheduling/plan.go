package coscheduling

import (
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/sched/upstream/claims"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
)

// planner makes plans on the snapshot of a cycle: attempts in domains. It belongs to the scheduling loop.
type planner struct {
	cluster  *Cluster
	schedule schedulePod // kube-scheduler's own; set by Rounds.Schedule
	domains  domains
	// attempting is the attempt for which a node is being chosen; nil outside of one. The ranking of nodes asks it for
	// the node that is tried first.
	attempting *attempt
}

// outcome is what a plan came to.
type outcome struct {
	// planned has the node of each member that fits, by UID; of a plan that failed, of those that were placed before it
	// did.
	planned map[string]loop.Result
	// places are the domains in which members are tried that may not be anywhere, by UID. nil after a plan that failed.
	places map[string]*place
	// cycles has the UIDs of the members behind the first one in the order of their cycles, if the plan fits.
	cycles []string
	// unfit has why members do not fit that the plan does without, by UID.
	unfit map[string]error
	// failure is the member for which the plan failed. Its UID is empty while all goes well.
	failure gang.Failure
	// cause is why that member does not fit. nil if no member was tried on the nodes.
	cause error
	// asked has the plugins whose events concern a member that did not fail itself, by UID, after a failed plan.
	asked map[string]sets.Set[string]
}

// isPlanned reports whether the plan counts on a member.
func (o *outcome) isPlanned(uid string) bool { return o.unfit[uid] == nil }

// makePlan tries the members, each on a snapshot with those before it, until the group cannot start any more. If the
// members differ, they are tried in several orders, and then on all nodes that a search finds for them. Members that
// the plan does without come last. In the end the snapshot is as it was.
func (r *Rounds) makePlan(ctx context.Context, round *groupRound, current string) (fits bool) {
	round.order = append([]string{current}, round.next...)
	round.planned = map[string]loop.Result{}
	if round.failure = r.Evictions.shortage(round.members, r.makesWay(round.first())); round.failure.UID != "" {
		round.lacksResources = true
		round.asked = map[string]sets.Set[string]{current: sets.New(names.NodeResourcesFit)}
		return false
	}
	if r.answers.recall(ctx, round) {
		return false
	}
	r.planner.gatherByAffinity(ctx, round.members)
	round.packing = r.planner.describePacking(ctx, round.members)
	if len(round.plan.DomainRequests) > 0 {
		round.outcome, fits = r.planner.planInDomains(ctx, round.members, round.events)
	} else {
		round.outcome, fits = r.planner.planMembers(ctx, round.members, nil)
	}
	if fits {
		round.next = round.cycles
	}
	return fits
}

// makesWay returns what reports whether a pod would go for a gang that starts now: it has a lower priority, and the
// gang evicts pods, or it is behind a gang that was overtaken too often.
func (r *Rounds) makesWay(member *corev1.Pod) func(*corev1.Pod) bool {
	evicts, priority := r.Evictions.chooser(member) != nil, r.cluster.Gangs.Priority(member)
	rank, overtaken := r.cluster.Gangs.RankOf(member), r.reservations.isOvertaken(member, false)
	return func(p *corev1.Pod) bool {
		return evicts && corev1helpers.PodPriority(p) < priority ||
			overtaken && rank.Before(r.cluster.Gangs.RankOf(p))
	}
}

// planInDomains makes a plan in the first choice of domains in which there is one. If no choice fits, the failure is
// that of the choice in which most members were placed, and names the rule, how many domains were tried, and the best
// of them. After gang.MostPlans choices it stops; the failure says how many were tried, and the next plan of the group
// skips these. events is how many events were counted before the snapshot was taken.
func (pl *planner) planInDomains(ctx context.Context, m *members, events uint64) (best outcome, fits bool) {
	first := m.order[0]
	f := pl.cluster.Core.Profile(m.first().Spec.SchedulerName)
	// Each choice confines the snapshot; in the end all nodes are seen again.
	defer pl.domains.release(f)
	tried, refusing := map[string]int{}, sets.New(Name, names.NodeResourcesFit)
	if m.isAffine { // nodes without a label of the affinity are in no domain
		refusing.Insert(names.InterPodAffinity)
	}
	left, more, since := gang.MostPlans, false, events
	found := pl.domains.search(f, m, m.plan.DomainRequests, nil)
	if found.skip = m.plan.Skip.Choices; found.skip > 0 && isEmpty(found.places()) { // there are fewer by now
		found.skip = 0
	}
	if found.skip > 0 {
		since = m.plan.Skip.Since
		for _, plugin := range f.ListPlugins().Filter.Enabled { // it is not known any more which refused the members
			refusing.Insert(plugin.Name)
		}
	}
	known := false
	for places := range found.places() {
		if left == 0 {
			more = true
			break
		}
		left--
		o, fits := pl.planMembers(ctx, m, places)
		// A plan that has enough members, but not in the numbers that the parts of the domain need, does not fit.
		if fits && isWhole(places, o.planned) {
			return o, true
		}
		if fits { // as many as must, and not the numbers that are asked for
			o.failure = gang.Failure{UID: first, Have: len(o.planned)}
		}
		chosen := places[o.failure.UID]
		if chosen.isBound() {
			tried[chosen.domain.Name]++
			o.failure.Tried = gang.Tried{Rule: chosen.Bound(), Many: chosen.many, Best: chosen.domain.Name}
		}
		if fit := (*framework.FitError)(nil); errors.As(o.cause, &fit) {
			refusing = refusing.Union(fit.Diagnosis.UnschedulablePlugins)
		}
		if !known || o.failure.Have >= best.failure.Have {
			best, known = o, true
		}
		if o.cause == nil && !fits { // a member cannot be tried anywhere
			break
		}
	}
	best.places = nil
	if !known {
		best.failure = gang.Failure{UID: first, Tried: found.unsatisfiedRule()}
		best.asked = map[string]sets.Set[string]{first: refusing}
		return best, false
	}
	if len(tried) > 0 {
		best.failure.Tried.Domains, best.failure.Tried.More = found.skip+len(tried), more
	}
	if more && len(found.requests) == 1 { // of several the choices are too many
		best.failure.Skip = gang.Portion{Choices: found.skip + gang.MostPlans, Since: since}
	}
	if fit := (*framework.FitError)(nil); errors.As(best.cause, &fit) {
		fit.Diagnosis.UnschedulablePlugins = refusing
	}
	return best, false
}

// planMembers makes a plan in the domains that are chosen, all nodes without. A member that gets the first alternative
// of a request may leave too little for the others: if no plan fits, one is made with the last alternatives first.
func (pl *planner) planMembers(ctx context.Context, m *members, places map[string]*place) (failed outcome, fits bool) {
	m.laterFirst = false
	failed, fits = pl.planOrders(ctx, m, places)
	dra := pl.profileOf(m.first()).SharedDRAManager()
	isOpen := func(pod *corev1.Pod) bool { return claims.HasAlternatives(dra, pod) }
	if fits || failed.cause == nil || !slices.ContainsFunc(m.tried(), isOpen) {
		return failed, fits
	}
	m.laterFirst = true
	if o, fits := pl.planOrders(ctx, m, places); fits {
		return o, true
	}
	m.laterFirst = false
	return failed, false
}

// planOrders makes a plan in one of the orders of the members. The members of a plan have their cycles in the order in
// which they fit, but for the first one, whose cycle is under way. If no order fits, the outcome is the failure of the
// members in their own order.
func (pl *planner) planOrders(ctx context.Context, m *members, places map[string]*place) (failed outcome, fits bool) {
	for _, order := range m.orders() {
		o, fits := pl.tryAll(ctx, m, places, order, nil)
		if fits {
			if o, fits = pl.followOrder(ctx, m, o, order); fits {
				return o, true
			}
		}
		if o.cause == nil && o.failure.UID != "" { // a member cannot be tried anywhere
			return o, false
		}
		if slices.Equal(order, m.order) {
			failed = o
		}
	}
	if o, fits := pl.searchNodes(ctx, m, places, &failed); fits {
		return o, true
	}
	return failed, false
}

// followOrder lets the cycles of a plan's members be in the order in which they were tried, the planned ones first. If
// the first of the members was not tried first, all are tried once more on their nodes, as their CPUs and devices may
// depend on the order.
func (pl *planner) followOrder(ctx context.Context, m *members, o outcome, order []string) (_ outcome, fits bool) {
	current, first := m.order[0], order[0]
	order = slices.Clone(order)
	slices.SortStableFunc(order, func(a, b string) int {
		if c := trueFirst(o.isPlanned(a), o.isPlanned(b)); c != 0 || !o.isPlanned(a) {
			return c
		}
		return trueFirst(a == current, b == current)
	})
	planned := maps.Clone(o.planned)
	if o.isPlanned(current) && order[0] != first {
		if o, fits = pl.tryAll(ctx, m, o.places, order, planned); !fits {
			return o, false
		}
	}
	for uid, was := range planned {
		if o.planned[uid].SuggestedHost == was.SuggestedHost {
			o.planned[uid] = was
		}
	}
	o.cycles = slices.DeleteFunc(order, func(uid string) bool { return uid == current })
	o.failure, o.cause = gang.Failure{}, nil
	return o, true
}

// trueFirst puts what is true before what is not.
func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// tryAll tries members in order, first on these nodes; if there are none, on those that the members are nominated to.
func (pl *planner) tryAll(ctx context.Context, m *members, places map[string]*place, order []string,
	nodes map[string]loop.Result,
) (o outcome, fits bool) {
	proposed := on(m.nominated())
	maps.Copy(proposed, nodes)
	a := pl.attempt(ctx, m, places, proposed)
	o = outcome{planned: a.planned, places: places, unfit: map[string]error{}}
	// Whatever comes of the attempt, the snapshot is as before.
	defer a.rollback(0)
	failed, have := m.plan.Try(order, func(uid string) bool {
		_, err := a.try(uid)
		if err != nil {
			o.cause, o.unfit[uid] = err, err
			delete(a.planned, uid)
		}
		return err == nil
	})
	if failed == "" {
		return o, true
	}
	o.failure = gang.Failure{UID: failed, Have: have, Cause: why.Finding{
		Reason: why.Reason{Code: why.SchedulingGate}, Detail: "it is held back by a gate, or has only just come",
	}}
	if pod := m.pods[failed]; pod != nil {
		a.nameMembers(o.cause)
		a.rollback(0) // what is free is what nodes have without the members
		o.failure.Cause = causeOf(a.profile(failed), pod.Pod, o.cause)
	}
	return o, false
}

// causeOf returns the root cause of a member's failure, for the reports to its siblings.
func causeOf(f framework.Framework, pod *corev1.Pod, err error) why.Finding {
	findings, nodes := refusals.Attempt(f, pod, fwk.NewStatus(fwk.Unschedulable).WithError(err))
	if len(findings) == 0 {
		return why.Finding{Detail: err.Error()}
	}
	return why.Finding{Reason: why.Reason{Code: why.Root(findings).Code}, Detail: why.Text(findings, nodes)}
}
