package coscheduling

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
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

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
)

// place is the domain in which the members of a request are tried.
type place struct {
	*domain.Request
	domain domain.Domain
	// many is how many domains keep all rules that must hold.
	many int
	// parts are the nodes of the domain. With several, members are spread over these.
	parts []part
	// at is the index of the part in which members are tried first. An attempt begins with 0, and moves on when a part
	// has no more room.
	at int
	// mark makes an attempt on a member choose devices next to those of the others; nil where the gang does not ask for
	// that.
	mark func(fwk.CycleState)
}

// domains is what is remembered of the domains of the network. It belongs to the scheduling loop.
type domains struct {
	// sites are the nodes with their domains and their free resources, by the rules and resources of gangs.
	sites map[string]*knownSites
	// confined is the part of the snapshot that attempts see; nil for all nodes. Invariant: it is nil between cycles.
	confined *part
	// jointDevices is where the last member that was tried alone got devices next to each other, for the later members
	// of its NonStrict gang; nil if it got none. It counts while one of them holds its reservation.
	jointDevices *place
}

// part is nodes of a domain, and how many members they must have; 0 for any number.
type part struct {
	name    string
	nodes   sets.Set[string]
	members int
}

// others returns how many parts there are besides the one that members are tried in, where any number may be in each.
func (p *place) others() int {
	if p == nil || p.parts[0].members > 0 {
		return 0
	}
	return len(p.parts) - 1
}

// isBound reports whether members may be nowhere else.
func (p *place) isBound() bool { return p != nil && p.Bound() != (domain.Rule{}) }

// Within names the nodes to which the attempt under way is confined; empty where it is not.
func (r *Rounds) Within() string {
	if r.domains.confined == nil {
		return ""
	}
	return r.domains.confined.name
}

// confine lets attempts see the nodes of a part alone, all nodes where it is nil. It must not be in force when the
// snapshot is updated.
func (r *Rounds) confine(f framework.Framework, to *part) error {
	if r.domains.confined == to {
		return nil
	}
	s := f.SnapshotSharedLister().(snapshot)
	s.ForgetPlacement()
	if r.domains.confined = nil; to == nil {
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
	r.domains.confined = to
	return nil
}

// confine confines the attempt on a member to where it may be placed beside those that are.
func (a *attempt) confine(uid string, state fwk.CycleState) error {
	chosen := a.round.places[uid]
	if chosen == nil {
		return a.Rounds.confine(a.profile(uid), nil)
	}
	if chosen.mark != nil {
		chosen.mark(state)
	}
	for i := range chosen.parts[chosen.at:] {
		if p := &chosen.parts[chosen.at+i]; p.members == 0 || a.in(p, chosen) < p.members {
			return a.Rounds.confine(a.profile(uid), p)
		}
	}
	return errors.New("the other members of its gang are as many as their domains may have: " +
		"the gang asks for multiples of a number in each")
}

// in returns how many members are placed in a part.
func (a *attempt) in(p *part, chosen *place) (n int) {
	for uid, m := range a.placed {
		if a.round.places[uid] == chosen && p.nodes.Has(m.pod.Pod.Spec.NodeName) {
			n++
		}
	}
	return n
}

// reserve prepares a cycle that reserves a member: it is confined to the planned node, or to its domain without one, if
// it may not be elsewhere.
func (r *Rounds) reserve(f framework.Framework, state fwk.CycleState, round *groupRound, uid string) error {
	chosen := round.places[uid]
	if chosen == nil {
		return nil
	}
	if chosen.mark != nil {
		chosen.mark(state)
	}
	if !chosen.isBound() {
		return nil
	}
	if round.unfit[uid] != nil && chosen.parts[0].members > 0 {
		return round.unfit[uid]
	}
	to := &chosen.parts[len(chosen.parts)-1]
	if node := round.planned[uid].SuggestedHost; node != "" {
		to = &part{name: to.name, nodes: sets.New(node)}
	}
	return r.confine(f, to)
}

// widen lets a member be tried on all nodes of its domain where it was confined to the planned one, which does not take
// it any more.
func (r *Rounds) widen(f framework.Framework, round *groupRound, uid string) bool {
	chosen, node := round.places[uid], round.planned[uid].SuggestedHost
	if !chosen.isBound() {
		return false
	}
	i := slices.IndexFunc(chosen.parts, func(p part) bool { return p.nodes.Has(node) })
	return i >= 0 && r.confine(f, &chosen.parts[i]) == nil
}

// isWhole reports whether each part has as many members as it must.
func (round *groupRound) isWhole() bool {
	lacks := map[*part]int{}
	for uid, chosen := range round.places {
		for i := range chosen.parts {
			p := &chosen.parts[i]
			if _, seen := lacks[p]; !seen {
				lacks[p] = p.members
			}
			if p.members > 0 && p.nodes.Has(round.planned[uid].SuggestedHost) {
				lacks[p]--
			}
		}
	}
	for _, n := range lacks {
		if n != 0 {
			return false
		}
	}
	return true
}

// planInDomains makes a plan in the first choice of domains in which there is one: plan is called for each choice, with
// round.places set, and resets the rest of the round's plan. If no choice fits, the round has the failure of the
// choice in which most members were placed, which names the rule, how many domains were tried, and the best of them.
// After gang.MostPlans choices it stops; the failure says how many were tried, and the next plan of the group skips
// these.
func (r *Rounds) planInDomains(round *groupRound, current string, plan func() bool) (fits bool) {
	f := r.Core.Profiles[round.queued[current].Pod.Spec.SchedulerName]
	defer func() { r.release(f) }()
	tried, refusing := map[string]int{}, sets.New(Name, names.NodeResourcesFit)
	var best *groupRound
	next, left, more, since := round.next, gang.MostPlans, false, round.events
	found := r.search(f, round, round.plan.DomainRequests, nil)
	if found.skip = round.plan.Skip.Choices; found.skip > 0 && !found.hasChoice() { // there are fewer by now
		found.skip = 0
	}
	if found.skip > 0 {
		since = round.plan.Skip.Since
		for _, plugin := range f.ListPlugins().Filter.Enabled { // it is not known any more which refused the members
			refusing.Insert(plugin.Name)
		}
	}
	for places := range r.places(f, round, found) {
		if left == 0 {
			more = true
			break
		}
		left--
		round.places, round.failure, round.cause = places, gang.Failure{}, nil
		round.next = slices.Clone(next)
		fits := plan()
		if fits && round.isWhole() {
			round.failure, round.cause = gang.Failure{}, nil
			return true
		}
		if fits { // as many as must, and not the numbers that are asked for
			round.failure = gang.Failure{UID: current, Have: len(round.planned)}
		}
		chosen := places[round.failure.UID]
		if chosen.isBound() {
			tried[chosen.domain.Name]++
			round.failure.Tried = gang.Tried{Rule: chosen.Bound(), Many: chosen.many, Best: chosen.domain.Name}
		}
		if fit := (*framework.FitError)(nil); errors.As(round.cause, &fit) {
			refusing = refusing.Union(fit.Diagnosis.UnschedulablePlugins)
		}
		if best == nil || round.failure.Have >= best.failure.Have {
			kept := *round
			best = &kept
		}
		if round.cause == nil && !fits { // a member cannot be tried anywhere
			break
		}
	}
	if best == nil {
		round.failure = gang.Failure{UID: current, Tried: found.unsatisfiedRule()}
		round.asked = map[string]sets.Set[string]{current: refusing}
		return false
	}
	round.failure, round.cause, round.unfit, round.places = best.failure, best.cause, best.unfit, nil
	if len(tried) > 0 {
		round.failure.Tried.Domains, round.failure.Tried.More = found.skip+len(tried), more
	}
	if more && len(found.all) == 1 { // of several the choices are too many
		round.failure.Skip = gang.Portion{Choices: found.skip + gang.MostPlans, Since: since}
	}
	if fit := (*framework.FitError)(nil); errors.As(round.cause, &fit) {
		fit.Diagnosis.UnschedulablePlugins = refusing
	}
	return false
}

func (r *Rounds) release(f framework.Framework) {
	// it fails only where nodes are named
	_ = r.confine(f, nil)
}

// search is where the members of several gangs may be tried. The slices have an element for each request.
type search struct {
	all     []*domain.Request         // with the members that are in the queue
	sites   [][]domain.Site           // the nodes, as the request sees them
	choices []iter.Seq[domain.Domain] // the domains that may have enough room, best first
	many    []int                     // how many domains keep all rules that must hold
	skip    int                       // of the combinations of choices, how many earlier plans have tried
}

// hasChoice reports whether there is a choice.
func (s *search) hasChoice() bool {
	left := s.skip
	for range domain.Combinations(s.choices) {
		if left--; left < 0 {
			return true
		}
	}
	return false
}

// search looks for domains, where what pods have that go is free; none goes where that is nil.
func (r *Rounds) search(
	f framework.Framework,
	round *groupRound,
	all []*domain.Request,
	goes func(*corev1.Pod) bool,
) *search {
	s := &search{}
	for _, g := range all {
		tried := *g // a member behind a gate is not
		gated := func(uid string) bool { return round.queued[uid] == nil }
		tried.Members = slices.DeleteFunc(slices.Clone(g.Members), gated)
		s.all = append(s.all, &tried)
	}
	for _, g := range s.all {
		sites := r.sites(f, round, g, goes)
		domains, many := g.Domains(sites, round.demand(g))
		s.sites, s.choices, s.many = append(s.sites, sites), append(s.choices, domains), append(s.many, many)
	}
	return s
}

// unsatisfiedRule names the rule that no domain can keep.
func (s *search) unsatisfiedRule() gang.Tried {
	i := slices.IndexFunc(s.choices, func(domains iter.Seq[domain.Domain]) bool {
		for range domains {
			return false
		}
		return true
	})
	if i < 0 {
		return gang.Tried{}
	}
	return gang.Tried{Rule: cmp.Or(s.all[i].Bound(), s.all[i].Rules[0]), Many: s.many[i]}
}

// places yields each choice, by UID of members.
func (r *Rounds) places(f framework.Framework, round *groupRound, s *search) iter.Seq[map[string]*place] {
	return func(yield func(map[string]*place) bool) {
		skip := s.skip
		for chosen := range domain.Combinations(s.choices) {
			if skip--; skip >= 0 {
				continue
			}
			byDomain := map[string]*place{}
			for i, d := range chosen {
				chosen := r.placeOf(f, round, s.all[i], d, s.sites[i])
				chosen.many = s.many[i]
				for _, uid := range s.all[i].Members {
					byDomain[uid] = chosen
				}
			}
			if !yield(byDomain) {
				return
			}
		}
	}
}

func (r *Rounds) placeOf(
	f framework.Framework,
	round *groupRound,
	g *domain.Request,
	d domain.Domain,
	sites []domain.Site,
) *place {
	chosen := &place{Request: g, domain: d}
	for _, p := range d.Parts {
		nodes := sets.New[string]()
		for _, i := range p.Sites {
			nodes.Insert(sites[i].Name)
		}
		name := fmt.Sprintf("%s|%s|%x", d.Rule, d.Name, sha256.Sum256(fmt.Append(nil, p.Sites)))
		chosen.parts = append(chosen.parts, part{name, nodes, p.Members})
	}
	if first := chosen.parts[0].nodes; g.Joint && len(chosen.parts) == 1 && first.Len() == 1 && r.Joint != nil {
		_, chosen.mark = r.Joint(f, first.UnsortedList()[0], round.podsOf(g))
	}
	return chosen
}

func (round *groupRound) podsOf(g *domain.Request) (pods []*corev1.Pod) {
	for _, uid := range g.Members {
		if p := round.queued[uid]; p != nil {
			pods = append(pods, p.Pod)
		}
	}
	return pods
}

// dimensions are the resources that members ask for.
func (round *groupRound) dimensions(members []string) []corev1.ResourceName {
	known := sets.New[corev1.ResourceName]()
	for _, uid := range members {
		if p := round.queued[uid]; p != nil {
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
func (round *groupRound) demand(g *domain.Request) (d domain.Demand) {
	for _, name := range round.dimensions(g.Members) {
		var asked []int64
		for _, uid := range g.Members {
			if p := round.queued[uid]; p != nil {
				asked = append(asked, asksOf(p, name))
			}
		}
		slices.Sort(asked)
		all := int64(0)
		for _, n := range asked[:min(g.Min, len(asked))] {
			all += n
		}
		d.Each, d.All = append(d.Each, append(asked, 0)[0]), append(d.All, all)
	}
	return d
}

// sites are the nodes of the snapshot, with their domains.
func (r *Rounds) sites(
	f framework.Framework,
	round *groupRound,
	g *domain.Request,
	goes func(*corev1.Pod) bool,
) []domain.Site {
	nodes, err := f.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil
	}
	dimensions := round.dimensions(g.Members)
	layers, key := kube.Ask(r.Gangs, (*gang.State).Layers), fmt.Sprint(g.Rules, dimensions)
	known := r.domains.sites[key]
	if known == nil || known.layers != layers || len(known.nodes) != len(nodes) || goes != nil {
		known = &knownSites{
			layers, make([]fwk.NodeInfo, len(nodes)), make([]int64, len(nodes)), make([]domain.Site, len(nodes)),
		}
	}
	for i, n := range nodes {
		if known.nodes[i] == n && known.generations[i] == n.GetGeneration() {
			continue
		}
		node := n.Node()
		s := domain.Site{Name: node.Name, In: make([]string, len(g.Rules)), Free: freeInDimensions(n, dimensions, goes)}
		for j, rule := range g.Rules {
			s.In[j] = layers.DomainOf(rule, node.Name, node.Labels)
		}
		known.nodes[i], known.generations[i], known.sites[i] = n, n.GetGeneration(), s
	}
	if goes == nil {
		if r.domains.sites == nil || r.domains.sites[key] == nil && len(r.domains.sites) >= mostKnown {
			r.domains.sites = map[string]*knownSites{}
		}
		r.domains.sites[key] = known
	}
	sites, held := slices.Clone(known.sites), r.heldOn(nodes, g.Held)
	for i := range sites {
		if len(held) > 0 {
			sites[i].Held = held[sites[i].Name]
		}
	}
	if g.Joint && r.Joint != nil && goes == nil {
		r.link(f, round, g, sites)
	}
	return sites
}

// knownSites are sites that remain as they are while their nodes have not changed.
type knownSites struct {
	layers      *domain.Layers
	nodes       []fwk.NodeInfo
	generations []int64
	sites       []domain.Site
}

// mostKnown bounds the kinds of gangs of which sites are known.
const mostKnown = 16

// link finds how well the devices are linked that members would have on each node.
func (r *Rounds) link(f framework.Framework, round *groupRound, g *domain.Request, sites []domain.Site) {
	pods, demand := round.podsOf(g), round.demand(g)
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

// leavesUnlimited reports whether a node does not count a resource.
func leavesUnlimited(n fwk.NodeInfo, name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
		return false
	}
	_, counted := n.GetAllocatable().GetScalarResources()[name]
	return !counted
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

// scheduleAlone schedules a pod that starts without others. A member whose gang has rules for domains is placed in the
// first domain, in the order of the search, that takes it: one where the other members that have yet to start may
// follow.
// A rule that must hold confines the pod to that domain, or to the largest one if none takes it, so that the refusal is
// of nodes where it may be; a rule that is only preferred lets it go anywhere in the end.
func (r *Rounds) scheduleAlone(ctx context.Context, f framework.Framework, state fwk.CycleState,
	pod *framework.QueuedPodInfo,
) (scheduler.ScheduleResult, error) {
	uid := string(pod.Pod.UID)
	g := kube.Ask(r.Gangs, func(s *gang.State) *domain.Request { return s.DomainRequest(uid) })
	if g == nil {
		return r.schedule(ctx, f, state, pod)
	}
	round, found := r.alone(f, pod, g)
	must := g.Bound() != (domain.Rule{})
	var chosen *place // where it fits; else the largest, if it may not be elsewhere
	for round.places = range r.jointDevicesFirst(g, uid, r.places(f, round, found)) {
		next := round.places[uid]
		nodes := next.parts[0].nodes.Len()
		if !must && next.mark == nil && nodes == len(found.sites[0]) {
			break
		}
		if must && (chosen == nil || nodes > chosen.parts[0].nodes.Len()) {
			chosen = next
		}
		if must && next.many == 1 && len(g.Rules) == 1 {
			break
		}
		a := r.attempt(ctx, round)
		_, err := a.try(uid)
		if a.rollback(0); err == nil {
			chosen = next
			break
		}
	}
	r.release(f)
	switch {
	case chosen == nil && must:
		return unplaced(state, r.refusalOf(pod.Pod, gang.Refusal{
			Code: why.GangSiblingFailed, Gang: r.Gangs.GangOf(pod.Pod), Need: 1, Tried: found.unsatisfiedRule(),
		}))
	case chosen == nil:
		return r.schedule(ctx, f, state, pod)
	}
	if chosen.mark != nil {
		chosen.mark(state)
	}
	if err := r.confine(f, &chosen.parts[0]); err != nil {
		return scheduler.ScheduleResult{}, err
	}
	result, err := r.schedule(ctx, f, state, pod)
	if err != nil && !must {
		r.release(f)
		return r.schedule(ctx, f, state, pod)
	}
	if r.domains.jointDevices = nil; err == nil && chosen.mark != nil {
		r.domains.jointDevices = chosen
	}
	if fit := (*framework.FitError)(nil); errors.As(err, &fit) {
		elsewhere := fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(&refusal{gang.Refusal{
			Code: why.GangOtherDomain, Text: why.GangOtherDomain.Entry().Text,
		}})
		elsewhere.SetPlugin(Name)
		fit.NumAllNodes = len(found.sites[0])
		fit.Diagnosis.NodeToStatus.SetAbsentNodesStatus(elsewhere)
		fit.Diagnosis.UnschedulablePlugins = fit.Diagnosis.UnschedulablePlugins.Union(
			sets.New(Name, names.NodeResourcesFit))
	}
	return result, err
}

// alone is a search for a member that is tried by itself: of the others it is known what they ask for.
func (r *Rounds) alone(f framework.Framework, pod *framework.QueuedPodInfo, g *domain.Request) (*groupRound, *search) {
	round := &groupRound{
		queued:  map[string]*framework.QueuedPodInfo{string(pod.Pod.UID): pod},
		planned: map[string]scheduler.ScheduleResult{},
	}
	for _, uid := range g.Members {
		other := r.Gangs.Pod(uid)
		if other == nil || round.queued[uid] != nil || len(other.Spec.SchedulingGates) > 0 {
			continue
		}
		if info, err := framework.NewPodInfo(other); err == nil {
			round.queued[uid] = &framework.QueuedPodInfo{PodInfo: info}
		}
	}
	return round, r.search(f, round, []*domain.Request{g}, nil)
}

// jointDevicesFirst yields first where another member of the gang has chosen devices that are next to each other,
// unless all were given back since.
func (r *Rounds) jointDevicesFirst(g *domain.Request, uid string, all iter.Seq[map[string]*place],
) iter.Seq[map[string]*place] {
	return func(yield func(map[string]*place) bool) {
		follows := r.domains.jointDevices != nil && len(g.Held) > 0 &&
			slices.Contains(r.domains.jointDevices.Members, uid)
		if !follows || yield(map[string]*place{uid: r.domains.jointDevices}) {
			all(yield)
		}
	}
}

// below returns what goes when gangs evict others.
func (r *Rounds) below(round *groupRound, all []*domain.Request) func(*corev1.Pod) bool {
	lowest := int32(math.MaxInt32)
	for _, g := range all {
		for _, pod := range round.podsOf(g) {
			lowest = min(lowest, r.Gangs.Priority(pod))
		}
	}
	return func(p *corev1.Pod) bool { return corev1helpers.PodPriority(p) < lowest }
}

// mostEvictions bounds the domains in which it is looked for pods that may go.
const mostEvictions = 64

// placesWithout yields where a group may be placed without the pods that go: domains that keep the rules that must
// hold.
func (r *Rounds) placesWithout(
	round *groupRound,
	current string,
	goes func(*corev1.Pod) bool,
) iter.Seq[map[string]*place] {
	var bound []*domain.Request
	for _, g := range round.plan.DomainRequests {
		only := *g
		only.Joint, only.Ranked = false, false
		only.Rules = slices.DeleteFunc(slices.Clone(g.Rules), func(r domain.Rule) bool { return !r.Must })
		if len(only.Rules) > 0 {
			bound = append(bound, &only)
		}
	}
	return func(yield func(map[string]*place) bool) {
		if len(bound) == 0 {
			yield(nil)
			return
		}
		n, f := 0, r.Core.Profiles[round.queued[current].Pod.Spec.SchedulerName]
		for places := range r.places(f, round, r.search(f, round, bound, goes)) {
			if n++; n > mostEvictions || !yield(places) {
				return
			}
		}
	}
}

// mayStart lets members that gangs lack be tried in the domains where they must be; false where there are none.
func (r *Rounds) mayStart(f framework.Framework, round *groupRound, h gang.Holder) bool {
	var bound []*domain.Request
	for _, lack := range h.Lacks {
		if len(lack.Pending) == 0 {
			continue
		}
		request := func(s *gang.State) *domain.Request { return s.DomainRequest(lack.Pending[0]) }
		if g := kube.Ask(r.Gangs, request); g != nil {
			g.Members, g.Min, g.Joint = lack.Pending, lack.Members, false
			if g.Rules = slices.DeleteFunc(g.Rules, func(r domain.Rule) bool { return !r.Must }); len(g.Rules) > 0 {
				bound = append(bound, g)
			}
		}
	}
	// what is known of nodes is of all their pods: the snapshot is without those that would give back
	for round.places = range r.places(f, round, r.search(f, round, bound, r.below(round, bound))) {
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
