package coscheduling

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/sched/upstream/snapshot"
)

// place is the domain in which the members of a request are tried.
type place struct {
	*domain.Request
	// domain is the domain by its rule and name. Reports name it.
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

// domains chooses domains of the network, and confines attempts to them. It belongs to the scheduling loop.
type domains struct {
	cluster *Cluster
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
	// name distinguishes parts with other nodes, also where two domains have one name: rankings are kept by it.
	name string
	// nodes are the names of the nodes.
	nodes sets.Set[string]
	// members is how many members the nodes must have; 0 for any number.
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

// isWhole reports whether each part has as many members as it must, with these nodes of members.
func isWhole(places map[string]*place, planned map[string]loop.Result) bool {
	lacks := map[*part]int{}
	for uid, chosen := range places {
		for i := range chosen.parts {
			p := &chosen.parts[i]
			if _, seen := lacks[p]; !seen {
				lacks[p] = p.members
			}
			if p.members > 0 && p.nodes.Has(planned[uid].SuggestedHost) {
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

// Within names the nodes to which the attempt under way is confined; empty where it is not.
func (r *Rounds) Within() string {
	if confined := r.planner.domains.confined; confined != nil {
		return confined.name
	}
	return ""
}

// confine lets attempts see the nodes of a part alone, all nodes where it is nil. It must not be in force when the
// snapshot is updated.
func (d *domains) confine(f framework.Framework, to *part) error {
	if d.confined == to {
		return nil
	}
	snapshot.Release(f)
	if d.confined = nil; to == nil {
		return nil
	}
	if err := snapshot.Confine(f, to.name, slices.Sorted(maps.Keys(to.nodes))); err != nil {
		return err
	}
	d.confined = to
	return nil
}

// release lets attempts see all nodes again.
func (d *domains) release(f framework.Framework) {
	// it fails only where nodes are named
	_ = d.confine(f, nil)
}

// confineToPlan prepares a cycle that reserves a member of a plan: it is confined to the planned node, or to its domain
// without one, if it may not be elsewhere.
func (pl *planner) confineToPlan(f framework.Framework, state fwk.CycleState, plan *outcome, uid string) error {
	chosen := plan.places[uid]
	if chosen == nil {
		return nil
	}
	if chosen.mark != nil {
		chosen.mark(state)
	}
	if !chosen.isBound() {
		return nil
	}
	// A member without a place would break the numbers that the gang asks for in each part.
	if plan.unfit[uid] != nil && chosen.parts[0].members > 0 {
		return plan.unfit[uid]
	}
	to := &chosen.parts[len(chosen.parts)-1]
	if node := plan.planned[uid].SuggestedHost; node != "" {
		to = &part{name: to.name, nodes: sets.New(node)}
	}
	return pl.domains.confine(f, to)
}

// widen lets a member be tried on all nodes of its domain where it was confined to the planned one, which does not take
// it any more.
func (pl *planner) widen(f framework.Framework, plan *outcome, uid string) bool {
	chosen, node := plan.places[uid], plan.planned[uid].SuggestedHost
	if !chosen.isBound() {
		return false
	}
	i := slices.IndexFunc(chosen.parts, func(p part) bool { return p.nodes.Has(node) })
	return i >= 0 && pl.domains.confine(f, &chosen.parts[i]) == nil
}

// search is where the members of several requests may be tried. The slices have an element for each request.
type search struct {
	domains *domains
	// f is the profile of the members.
	f framework.Framework
	// members are those that the plan tries.
	members *members
	// requests have only the members that can be tried.
	requests []*domain.Request
	// sites are the nodes as each request sees them.
	sites [][]domain.Site
	// choices are the domains that may have enough room for each request, best first.
	choices []iter.Seq[domain.Domain]
	// many is how many domains keep all rules of each request that must hold.
	many []int
	// skip is how many of the combinations of choices earlier plans have tried.
	skip int
}

// isEmpty reports whether a sequence yields nothing.
func isEmpty[T any](all iter.Seq[T]) bool {
	for range all {
		return false
	}
	return true
}

// search looks for domains, where what pods have that go is free; none goes where that is nil.
func (d *domains) search(f framework.Framework, m *members, requests []*domain.Request, goes func(*corev1.Pod) bool,
) *search {
	s := &search{domains: d, f: f, members: m}
	usable := d.cluster.usableBy(m)
	for _, g := range requests {
		tried := *g // a member behind a gate is not
		gated := func(uid string) bool { return m.pods[uid] == nil }
		tried.Members = slices.DeleteFunc(slices.Clone(g.Members), gated)
		sites := d.sitesOf(f, m, &tried, goes, usable)
		domains, many := tried.Domains(sites, m.demand(&tried))
		s.requests, s.sites = append(s.requests, &tried), append(s.sites, sites)
		s.choices, s.many = append(s.choices, domains), append(s.many, many)
	}
	return s
}

// unsatisfiedRule names the rule that no domain can keep.
func (s *search) unsatisfiedRule() gang.Tried {
	i := slices.IndexFunc(s.choices, isEmpty)
	if i < 0 {
		return gang.Tried{}
	}
	return gang.Tried{Rule: cmp.Or(s.requests[i].Bound(), s.requests[i].Rules[0]), Many: s.many[i]}
}

// places yields each choice, by UID of members.
func (s *search) places() iter.Seq[map[string]*place] {
	return func(yield func(map[string]*place) bool) {
		skip := s.skip
		for chosen := range domain.Combinations(s.choices) {
			if skip--; skip >= 0 {
				continue
			}
			byDomain := map[string]*place{}
			for i := range chosen {
				p := s.placeIn(&chosen[i], i)
				for _, uid := range p.Members {
					byDomain[uid] = p
				}
			}
			if !yield(byDomain) {
				return
			}
		}
	}
}

// placeIn returns the place of a request in one of its domains.
func (s *search) placeIn(d *domain.Domain, request int) *place {
	chosen := &place{Request: s.requests[request], domain: *d, many: s.many[request]}
	for _, p := range d.Parts {
		nodes := sets.New[string]()
		for _, i := range p.Sites {
			nodes.Insert(s.sites[request][i].Name)
		}
		name := fmt.Sprintf("%s|%s|%x", d.Rule, d.Name, sha256.Sum256(fmt.Append(nil, p.Sites)))
		chosen.parts = append(chosen.parts, part{name, nodes, p.Members})
	}
	if first := chosen.parts[0].nodes; chosen.Joint && len(chosen.parts) == 1 && first.Len() == 1 {
		_, chosen.mark = s.domains.cluster.Plugins.Joint(s.f, first.UnsortedList()[0], s.members.podsOf(chosen.Request))
	}
	return chosen
}

// sitesOf returns the nodes of the snapshot with their domains, in which what pods have that go is free, and what
// Reservations keep that members can use: usable holds for their reserve pods.
func (d *domains) sitesOf(f framework.Framework, m *members, g *domain.Request, goes, usable func(*corev1.Pod) bool,
) []domain.Site {
	goes = either(goes, usable)
	nodes, err := f.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil
	}
	dimensions := m.dimensions(g.Members)
	layers, key := kube.Ask(d.cluster.Gangs, (*gang.State).Layers), fmt.Sprint(g.Rules, dimensions)
	// Sites are reused while only some nodes have changed. What goes for one group is not free for another.
	known := d.sites[key]
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
		if d.sites[key] == nil && len(d.sites) >= mostKnown {
			clear(d.sites)
		}
		d.sites[key] = known
	}
	sites, held := slices.Clone(known.sites), d.heldOn(nodes, g.Held)
	for i := range sites {
		if usable != nil {
			for _, p := range nodes[i].GetPods() {
				if usable(p.GetPod()) {
					sites[i].Reserved++
				}
			}
		}
		if len(held) > 0 {
			sites[i].Held = held[sites[i].Name]
		}
	}
	if g.Joint && goes == nil {
		d.link(f, m, g, sites)
	}
	return sites
}

// knownSites are sites that remain as they are while their nodes have not changed.
type knownSites struct {
	// layers are the network's. Other layers void all sites.
	layers *domain.Layers
	// nodes are those of the snapshot for which the sites were made, in its order.
	nodes []fwk.NodeInfo
	// generations are those of the nodes when their sites were made. A node with another one has a new site.
	generations []int64
	// sites has an element for each of the nodes.
	sites []domain.Site
}

// mostKnown bounds the kinds of gangs of which sites are known.
const mostKnown = 16

// link finds how well the devices are linked that members would have on each node.
func (d *domains) link(f framework.Framework, m *members, g *domain.Request, sites []domain.Site) {
	pods, demand := m.podsOf(g), m.demand(g)
	for i := range sites {
		fits := true
		for dimension, all := range demand.All {
			fits = fits && sites[i].Free[dimension] >= all
		}
		if fits {
			sites[i].Link, _ = d.cluster.Plugins.Joint(f, sites[i].Name, pods)
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
func (d *domains) heldOn(nodes []fwk.NodeInfo, uids []string) map[string]int {
	held, reserved := map[string]int{}, sets.New[string]()
	for _, uid := range uids {
		if pod := d.cluster.Gangs.Pod(uid); pod != nil && pod.Spec.NodeName != "" {
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

// below returns what goes when the members of requests evict others.
func (pl *planner) below(m *members, all []*domain.Request) func(*corev1.Pod) bool {
	lowest := int32(math.MaxInt32)
	for _, g := range all {
		for _, pod := range m.podsOf(g) {
			lowest = min(lowest, pl.cluster.Gangs.Priority(pod))
		}
	}
	return func(p *corev1.Pod) bool { return corev1helpers.PodPriority(p) < lowest }
}

// mostEvictions bounds the domains in which it is looked for pods that may go.
const mostEvictions = 64

// placesWithout yields where a group may be placed without the pods that go: domains that keep the rules that must
// hold, anywhere if there are no such rules.
func (pl *planner) placesWithout(m *members, goes func(*corev1.Pod) bool) iter.Seq[map[string]*place] {
	bound := onlyBound(m.plan.DomainRequests)
	return func(yield func(map[string]*place) bool) {
		if len(bound) == 0 {
			yield(nil)
			return
		}
		n, f := 0, pl.cluster.Core.Profile(m.first().Spec.SchedulerName)
		for places := range pl.domains.search(f, m, bound, goes).places() {
			// Each place costs a preemption's dry run on all of its nodes.
			if n++; n > mostEvictions || !yield(places) {
				return
			}
		}
	}
}

// onlyBound returns requests with those of their rules alone that must hold, without the requests that have none.
func onlyBound(requests []*domain.Request) (bound []*domain.Request) {
	for _, g := range requests {
		only := *g
		only.Joint, only.Ranked = false, false
		only.Rules = slices.DeleteFunc(slices.Clone(g.Rules), func(r domain.Rule) bool { return !r.Must })
		if len(only.Rules) > 0 {
			bound = append(bound, &only)
		}
	}
	return bound
}
