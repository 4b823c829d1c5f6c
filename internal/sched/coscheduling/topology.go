package coscheduling

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
)

// place is the domain in which members are tried.
type place struct {
	*gang.Gathered
	domain gang.Domain
	many   int // domains that keep all rules that must hold
	parts  []part
	mark   func(fwk.CycleState) // makes the members choose devices next to each other; nil where they do not
}

// part is nodes of a domain, and how many members they must have; 0 for any number.
type part struct {
	name    string
	nodes   sets.Set[string]
	members int
}

// must reports whether members may be nowhere else.
func (p *place) must() bool { return p != nil && p.rule() != (gang.Gather{}) }

// rule returns the first rule that must hold.
func (p *place) rule() gang.Gather {
	if i := slices.IndexFunc(p.Rules, func(g gang.Gather) bool { return g.Must }); i >= 0 {
		return p.Rules[i]
	}
	return gang.Gather{}
}

// Within names the nodes to which the attempt under way is confined; empty where it is not.
func (r *Rounds) Within() string {
	if r.confined == nil {
		return ""
	}
	return r.confined.name
}

// confine lets attempts see the nodes of a part alone, all nodes where it is nil. It must not be in force when the
// snapshot is updated.
func (r *Rounds) confine(f framework.Framework, to *part) error {
	if r.confined == to {
		return nil
	}
	s := f.SnapshotSharedLister().(snapshot)
	s.ForgetPlacement()
	if r.confined = nil; to == nil {
		return nil
	}
	var nodes []fwk.NodeInfo
	for _, name := range slices.Sorted(maps.Keys(to.nodes)) {
		if n, err := s.NodeInfos().Get(name); err == nil {
			nodes = append(nodes, n)
		}
	}
	if err := s.AssumePlacement(&fwk.Placement{Name: to.name, Nodes: nodes}); err != nil {
		return err
	}
	r.confined = to
	return nil
}

// confine confines the attempt on a member to where it may be placed beside those that are.
func (a *attempt) confine(uid string, state fwk.CycleState) error {
	of := a.is.places[uid]
	if of == nil {
		return a.Rounds.confine(a.profile(uid), nil)
	}
	if of.mark != nil {
		of.mark(state)
	}
	for i := range of.parts {
		if p := &of.parts[i]; p.members == 0 || a.in(p, of) < p.members {
			return a.Rounds.confine(a.profile(uid), p)
		}
	}
	return errors.New("the other members of its gang are as many as their domains may have: " +
		"the gang asks for multiples of a number in each")
}

// in returns how many members are placed in a part.
func (a *attempt) in(p *part, of *place) (n int) {
	for uid, m := range a.placed {
		if a.is.places[uid] == of && p.nodes.Has(m.pod.Pod.Spec.NodeName) {
			n++
		}
	}
	return n
}

// reserve prepares a cycle that reserves a member: it is confined to the planned node, or to its domain without one, if
// it may not be elsewhere.
func (r *Rounds) reserve(f framework.Framework, state fwk.CycleState, is *round, uid string) error {
	of := is.places[uid]
	if of == nil {
		return nil
	}
	if of.mark != nil {
		of.mark(state)
	}
	if !of.must() {
		return nil
	}
	if is.unfit[uid] != nil && of.parts[0].members > 0 {
		return is.unfit[uid]
	}
	to := &of.parts[len(of.parts)-1]
	if node := is.planned[uid].SuggestedHost; node != "" {
		to = &part{name: to.name, nodes: sets.New(node)}
	}
	return r.confine(f, to)
}

// isWhole reports whether each part has as many members as it must.
func (is *round) isWhole() bool {
	for _, of := range is.places {
		for i := range of.parts {
			n, p := 0, &of.parts[i]
			for uid, result := range is.planned {
				if is.places[uid] == of && p.nodes.Has(result.SuggestedHost) {
					n++
				}
			}
			if p.members > 0 && n != p.members {
				return false
			}
		}
	}
	return true
}

// mostPlans bounds the plans of a round.
const mostPlans = 1000

// inDomains makes a plan in the first domains in which there is one. When there is none, the failure is that of the
// domains in which most members were placed.
func (r *Rounds) inDomains(is *round, current string, plan func() bool) (fits bool) {
	f := r.Core.Profiles[is.queued[current].Pod.Spec.SchedulerName]
	defer func() { r.release(f) }()
	begun, tried, refusing := is.plan, map[string]int{}, sets.New(Name, names.NodeResourcesFit)
	var best *round
	next, left := is.next, mostPlans
	for places := range r.places(f, is, is.plan.Gathered, false) {
		is.plan, is.places, is.failure, is.cause = begun, places, gang.Failure{}, nil
		is.next = slices.Clone(next)
		if best != nil {
			if is.plan, _, _ = r.Gangs.Begin(is.queued[current].Pod); is.plan == nil {
				break
			}
		}
		fits := plan()
		if fits && is.isWhole() {
			is.failure, is.cause = gang.Failure{}, nil
			return true
		}
		if fits { // as many as must, and not the numbers that are asked for
			is.failure = gang.Failure{UID: current, Have: len(is.planned)}
		}
		of := places[is.failure.UID]
		if of.must() {
			tried[of.domain.Name]++
			is.failure.Tried = gang.Tried{Rule: of.rule(), Many: of.many, Best: of.domain.Name}
		}
		if fit := (*framework.FitError)(nil); errors.As(is.cause, &fit) {
			refusing = refusing.Union(fit.Diagnosis.UnschedulablePlugins)
		}
		if best == nil || is.failure.Have >= best.failure.Have {
			kept := *is
			best = &kept
		}
		if left--; left == 0 || is.cause == nil && !fits { // or a member cannot be tried anywhere
			break
		}
	}
	if best == nil {
		is.plan = begun
		is.failure = gang.Failure{UID: current, Tried: r.nowhere(f, is, begun.Gathered)}
		is.asked = map[string]sets.Set[string]{current: refusing}
		return false
	}
	is.plan, is.failure, is.cause, is.unfit, is.places = best.plan, best.failure, best.cause, best.unfit, nil
	is.failure.Tried.Domains = len(tried)
	if fit := (*framework.FitError)(nil); errors.As(is.cause, &fit) {
		fit.Diagnosis.UnschedulablePlugins = refusing
	}
	return false
}

func (r *Rounds) release(f framework.Framework) {
	// it fails only where nodes are named
	_ = r.confine(f, nil)
}

// nowhere names a rule that no domain can keep.
func (r *Rounds) nowhere(f framework.Framework, is *round, all []*gang.Gathered) gang.Tried {
	for _, g := range all {
		of := &place{Gathered: g}
		domains, many := r.domains(f, is, g, false)
		found := false
		for range domains {
			found = true
			break
		}
		if !found {
			rule := of.rule()
			if i := slices.IndexFunc(g.Rules, func(r gang.Gather) bool { return r.Multiple > 1 }); i >= 0 && many > 0 {
				rule = g.Rules[i]
			}
			return gang.Tried{Rule: rule, Many: many}
		}
	}
	return gang.Tried{}
}

// places yields where the members of several gangs may be tried, each by UID. Where victims may be evicted, what pods
// of lower priority have is free, and only rules that must hold count.
func (r *Rounds) places(f framework.Framework, is *round, all []*gang.Gathered, evicts bool,
) iter.Seq[map[string]*place] {
	var choices []iter.Seq[gang.Domain]
	var many []int
	var sites [][]gang.Site
	for _, g := range all {
		in := r.sites(f, is, g, evicts)
		domains, n := g.Domains(in, r.demand(f, is, g))
		choices, many, sites = append(choices, domains), append(many, n), append(sites, in)
	}
	return func(yield func(map[string]*place) bool) {
		for chosen := range gang.Choices(choices) {
			by := map[string]*place{}
			for i, d := range chosen {
				of := r.placeOf(f, is, all[i], d, sites[i])
				of.many = many[i]
				for _, uid := range all[i].Members {
					by[uid] = of
				}
			}
			if !yield(by) {
				return
			}
		}
	}
}

func (r *Rounds) domains(f framework.Framework, is *round, g *gang.Gathered, evicts bool) (iter.Seq[gang.Domain], int) {
	return g.Domains(r.sites(f, is, g, evicts), r.demand(f, is, g))
}

func (r *Rounds) placeOf(f framework.Framework, is *round, g *gang.Gathered, d gang.Domain, sites []gang.Site) *place {
	of := &place{Gathered: g, domain: d}
	for _, p := range d.Parts {
		nodes := sets.New[string]()
		for _, i := range p.Sites {
			nodes.Insert(sites[i].Name)
		}
		of.parts = append(of.parts, part{d.Rule.String() + "|" + d.Name, nodes, p.Members})
	}
	if first := of.parts[0].nodes; g.Joint && len(of.parts) == 1 && first.Len() == 1 && r.Joint != nil {
		_, of.mark = r.Joint(f, first.UnsortedList()[0], is.podsOf(g))
	}
	return of
}

func (is *round) podsOf(g *gang.Gathered) (pods []*corev1.Pod) {
	for _, uid := range g.Members {
		if p := is.queued[uid]; p != nil {
			pods = append(pods, p.Pod)
		}
	}
	return pods
}

// dimensions are the resources that members ask for.
func (is *round) dimensions(g *gang.Gathered) []corev1.ResourceName {
	known := sets.New[corev1.ResourceName]()
	for _, uid := range g.Members {
		if p := is.queued[uid]; p != nil {
			for name := range p.CalculateResource().Resource.GetScalarResources() {
				known.Insert(name)
			}
		}
	}
	return append([]corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods,
	}, sets.List(known)...)
}

// demand is what members ask for at least.
func (r *Rounds) demand(_ framework.Framework, is *round, g *gang.Gathered) gang.Demand {
	var d gang.Demand
	for _, name := range is.dimensions(g) {
		var asked []int64
		for _, uid := range g.Members {
			switch p := is.queued[uid]; {
			case p == nil:
			case name == corev1.ResourcePods:
				asked = append(asked, 1)
			default:
				asked = append(asked, amountOf(p.CalculateResource().Resource, name))
			}
		}
		slices.Sort(asked)
		each, all := int64(0), int64(0)
		for i, n := range asked {
			if i == 0 {
				each = n
			}
			if i < g.Least {
				all += n
			}
		}
		d.Each, d.All = append(d.Each, each), append(d.All, all)
	}
	return d
}

// sites are the nodes of the snapshot, with their domains.
func (r *Rounds) sites(f framework.Framework, is *round, g *gang.Gathered, evicts bool) []gang.Site {
	nodes, err := f.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil
	}
	layers := r.Gangs.Layers()
	dimensions, held := is.dimensions(g), r.heldOn(nodes, g.Held)
	below := int32(math.MaxInt32)
	for _, pod := range is.podsOf(g) {
		below = min(below, corev1helpers.PodPriority(pod))
	}
	sites := make([]gang.Site, 0, len(nodes))
	for _, n := range nodes {
		node := n.Node()
		s := gang.Site{Name: node.Name, Held: held[node.Name], In: make([]string, len(g.Rules))}
		for i, rule := range g.Rules {
			s.In[i] = layers.DomainOf(rule, node.Name, node.Labels)
		}
		for _, name := range dimensions {
			s.Free = append(s.Free, freeOn(n, name, below, evicts))
		}
		sites = append(sites, s)
	}
	if g.Joint && r.Joint != nil && !evicts {
		r.link(f, is, g, sites)
	}
	return sites
}

// link finds how well the devices are linked that members would have on each node.
func (r *Rounds) link(f framework.Framework, is *round, g *gang.Gathered, sites []gang.Site) {
	pods, demand := is.podsOf(g), r.demand(f, is, g)
	for i := range sites {
		fits := true
		for d, all := range demand.All {
			fits = fits && sites[i].Free[d] >= all
		}
		if fits {
			sites[i].Link, _ = r.Joint(f, sites[i].Name, pods)
		}
	}
}

// freeOn is what pods leave of a resource on a node. One that the node does not count is not limited there.
func freeOn(n fwk.NodeInfo, name corev1.ResourceName, below int32, evicts bool) int64 {
	if name == corev1.ResourcePods {
		free := n.GetAllocatable().GetAllowedPodNumber() - len(n.GetPods())
		for _, p := range n.GetPods() {
			if evicts && corev1helpers.PodPriority(p.GetPod()) < below {
				free++
			}
		}
		return int64(max(free, 0))
	}
	if _, counted := n.GetAllocatable().GetScalarResources()[name]; !counted && isScalar(name) {
		return gang.Unlimited
	}
	left := amountOf(n.GetAllocatable(), name) - amountOf(n.GetRequested(), name)
	for _, p := range n.GetPods() {
		if evicts && corev1helpers.PodPriority(p.GetPod()) < below {
			left += amountOf(p.CalculateResource().Resource, name)
		}
	}
	return max(left, 0)
}

func isScalar(name corev1.ResourceName) bool {
	return name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage
}

// heldOn counts members by their node.
func (r *Rounds) heldOn(nodes []fwk.NodeInfo, uids []string) map[string]int {
	held, reserved := map[string]int{}, sets.New[string]()
	for _, uid := range uids {
		if pod := r.Gangs.Pod(uid); pod != nil && pod.Spec.NodeName != "" {
			held[pod.Spec.NodeName]++
		} else {
			reserved.Insert(uid)
		}
	}
	for _, n := range nodes {
		if reserved.Len() == 0 {
			break
		}
		for _, p := range n.GetPods() {
			if reserved.Has(string(p.GetPod().UID)) {
				held[n.Node().Name]++
			}
		}
	}
	return held
}

// scheduleAlone schedules a pod that starts without others in a domain where it may be.
func (r *Rounds) scheduleAlone(ctx context.Context, f framework.Framework, state fwk.CycleState,
	pod *framework.QueuedPodInfo,
) (scheduler.ScheduleResult, error) {
	uid := string(pod.Pod.UID)
	g := r.Gangs.Gathered(uid)
	if g == nil {
		return r.schedule(ctx, f, state, pod)
	}
	is := &round{
		queued: map[string]*framework.QueuedPodInfo{uid: pod}, planned: map[string]scheduler.ScheduleResult{},
	}
	var chosen map[string]*place // where it fits, else the first
	for is.places = range r.places(f, is, []*gang.Gathered{g}, false) {
		if chosen == nil {
			chosen = is.places
		}
		if is.places[uid].many == 1 {
			break
		}
		a := r.attempt(ctx, is)
		_, err := a.try(uid)
		if a.back(0); err == nil {
			chosen = is.places
			break
		}
	}
	if is.places = chosen; chosen == nil {
		return unplaced(state, r.refusalOf(pod.Pod, gang.Refusal{
			Code: why.GangSiblingFailed, Gang: r.Gangs.GangOf(pod.Pod), Need: 1,
			Tried: r.nowhere(f, is, []*gang.Gathered{g}),
		}))
	}
	if err := r.reserve(f, state, is, uid); err != nil {
		return scheduler.ScheduleResult{}, err
	}
	result, err := r.schedule(ctx, f, state, pod)
	if fit := (*framework.FitError)(nil); errors.As(err, &fit) {
		fit.Diagnosis.UnschedulablePlugins = fit.Diagnosis.UnschedulablePlugins.Union(
			sets.New(Name, names.NodeResourcesFit))
	}
	return result, err
}

// mostEvictions bounds the domains in which victims are looked for.
const mostEvictions = 64

// evictionPlaces yields where a group may be placed that evicts others: domains that keep the rules that must hold.
func (r *Rounds) evictionPlaces(is *round, current string) iter.Seq[map[string]*place] {
	var bound []*gang.Gathered
	for _, g := range is.plan.Gathered {
		only := *g
		only.Joint = false
		only.Rules = slices.DeleteFunc(slices.Clone(g.Rules), func(r gang.Gather) bool { return !r.Must })
		if len(only.Rules) > 0 {
			bound = append(bound, &only)
		}
	}
	return func(yield func(map[string]*place) bool) {
		if len(bound) == 0 {
			yield(nil)
			return
		}
		n := 0
		for places := range r.places(r.Core.Profiles[is.queued[current].Pod.Spec.SchedulerName], is, bound, true) {
			if n++; n > mostEvictions || !yield(places) {
				return
			}
		}
	}
}

// mayStart lets members that gangs lack be tried in the domains where they must be; false where there are none.
func (r *Rounds) mayStart(f framework.Framework, is *round, h gang.Holder) bool {
	var bound []*gang.Gathered
	for _, lack := range h.Lacks {
		if len(lack.Pending) == 0 {
			continue
		}
		if g := r.Gangs.Gathered(lack.Pending[0]); g != nil {
			g.Members, g.Least = lack.Pending, lack.Members
			if g.Rules = slices.DeleteFunc(g.Rules, func(r gang.Gather) bool { return !r.Must }); len(g.Rules) > 0 {
				bound = append(bound, g)
			}
		}
	}
	for is.places = range r.places(f, is, bound, false) {
		return true
	}
	return false
}

// name identifies the nodes on which members may be tried; empty for all.
func (p *place) name() string {
	if p == nil {
		return ""
	}
	return p.parts[0].name
}

// has reports whether members may be tried on a node.
func (p *place) has(node string) bool {
	return p == nil || slices.ContainsFunc(p.parts, func(p part) bool { return p.nodes.Has(node) })
}
