package coscheduling

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/sched/upstream/preempt"
)

// Evictions decides which pods make way for gangs, and evicts them.
type Evictions struct {
	cluster *Cluster
	planner *planner
	// preempting is the preemption under way; nil outside of one. The profiles' rules of eligibility read it.
	preempting *preemption
	// mayWhole knows whether all of a gang's group may be evicted, by UID of the pod that preempts, and gang. It is
	// cleared in each cycle; candidates are looked at in parallel.
	mayWhole sync.Map

	mu sync.Mutex // guards the rest: victims are evicted by goroutines of their own
	// evicting has the nodes for which victims are about to be evicted, by UID of members, until the informer has seen
	// that all victims end.
	evicting map[string]string
	// due has what evicts victims when the failure of a pod is written, by UID of the pod whose cycle is under way.
	due map[types.UID]func()
}

// NewEvictions returns what decides about victims in a cluster. Guard and Forget read c.Gangs alone. No preemption is
// under way.
func NewEvictions(c Cluster) *Evictions {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Wall == nil {
		c.Wall = c.Clock
	}
	pl := &planner{cluster: &c, domains: domains{cluster: &c, sites: map[string]*knownSites{}}}
	return &Evictions{cluster: &c, planner: pl, evicting: map[string]string{}, due: map[types.UID]func(){}}
}

// preemption is an attempt of which pods of lower priority make way. Each member that does not fit gets the node where
// the least is lost with the victims there and with all that must go with them; then what need not go is spared.
// What fits where is known by class, and looked up anew for the nodes that have changed since.
type preemption struct {
	*attempt
	lister fwk.NodeInfoLister // of the snapshot that the attempt changes
	// lowest is the lowest priority of the members: victims have a lower one.
	lowest int32
	// pdbs are all disruption budgets of the cluster.
	pdbs []*policyv1.PodDisruptionBudget
	// budgets has what each of pdbs still allows.
	budgets *kube.Budgets
	// charges are what the victims in gone take of the budgets.
	charges gang.Charges
	// classes has where members fit, by what their place depends on.
	classes map[string]*class
	// gone has the UIDs of the victims.
	gone map[string]bool
	// taken has the units of the victims, in the order in which they were taken.
	taken []*unit
	// terminating is the pods that are being deleted, as the first unit that is taken; nil if there is none.
	terminating *unit
	// spared has the gangs that are not evicted: those of the group, and those that cannot go whole.
	spared map[string]bool
	// left has the UIDs of pods that have left their quotas by the start that is looked for; nil where none is.
	left []string
	// quotas is a dry run of the quotas with the members that are placed; nil before all that are needed are.
	quotas *quota.Trial
}

// class is where pods of equal demands fit.
//
// Invariant: both maps are right for all nodes but those of attempt.changed[seen:], at which update looks again. A node
// that is in neither map is not tried for the class.
type class struct {
	// seen is how many of the attempt's changed nodes were looked at.
	seen int
	// fits has the nodes that may take a pod as they are.
	fits map[string]bool
	// options has what to evict for a pod, by node. A node where nothing helps is absent.
	options map[string]*option
}

// preempt looks for pods whose eviction lets a failed plan succeed, and decides about the nominations of the members.
// Where it must wait before it may evict, failed.failure says until when. The function that it returns begins to evict;
// it is nil where nothing is evicted.
func (ev *Evictions) preempt(ctx context.Context, m *members, failed *outcome) (n nomination, evict func()) {
	may, pending := ev.mayPreempt(ctx, m)
	// Victims are on their way: a second preemption would take more than is needed.
	if pending != nil {
		return nomination{nodes: pending, preempts: true, unchanged: true}, nil
	}
	if again := ev.preemptsAt(m.first(), ev.cluster.Clock.Now()); !may || !again.IsZero() {
		if may {
			failed.failure.Again = again
		}
		return nomination{}, nil
	}
	var victims []*unit
	var least gang.Loss
	orders := [][]string{m.order}
	if m.plan.Chooses() { // a quota may admit other members than the first ones
		orders = m.orders()
	}
	for places := range ev.planner.placesWithout(m, ev.planner.below(m, m.plan.DomainRequests)) {
		var p *preemption
		var nodes map[string]string
		var taken []*unit
		found := slices.ContainsFunc(orders, func(order []string) (found bool) {
			p = ev.newPreemption(ctx, m, places, failed.planned)
			ev.preempting = p
			// Each step stops the preemption if it fails. Nothing was evicted so far: all of it is a trial.
			found = p.prepare() && p.placeMembers(order) && p.admitMembers() && p.restoreVictims() &&
				p.verifyPlacement() && isWhole(places, p.planned) && len(p.taken) > 0
			nodes, taken = p.nodes(), p.victims()
			p.rollback(0)
			ev.preempting = nil
			ev.planner.domains.release(p.profile(m.order[0]))
			return found && !p.broken
		})
		if !found {
			continue
		}
		// Of all places the one is taken where the least is lost.
		if loss := p.lossOf(taken...); !n.preempts || loss.Compare(least) < 0 {
			victims, least = taken, loss
			n = nomination{nodes: nodes, preempts: true, awaits: len(taken) == 0}
		}
	}
	if len(victims) == 0 {
		return n, nil
	}
	member := m.pods[failed.failure.UID].Pod
	return n, func() { ev.evictVictims(ctx, member, n.nodes, victims) }
}

// nodes returns the node of each member that is placed.
func (a *attempt) nodes() map[string]string {
	nodes := map[string]string{}
	for uid, on := range a.placed {
		nodes[uid] = on.pod.Pod.Spec.NodeName
	}
	return nodes
}

// victims returns the units that are evicted: without the pods that terminate anyway.
func (p *preemption) victims() []*unit {
	return slices.DeleteFunc(slices.Clone(p.taken), func(u *unit) bool { return u == p.terminating })
}

// evictAfter lets evict, which is nil for nothing, run when the failure of a pod is written, whose cycle is under way:
// when the first victim ends, the nominated nodes of all members are known.
func (ev *Evictions) evictAfter(pod *corev1.Pod, evict func()) {
	if evict == nil {
		return
	}
	ev.mu.Lock()
	defer ev.mu.Unlock()
	ev.due[pod.UID] = evict
}

// takeDue returns what evictAfter was called with for a pod, nil for nothing, and forgets it.
func (ev *Evictions) takeDue(uid types.UID) func() {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	evict := ev.due[uid]
	delete(ev.due, uid)
	return evict
}

// preemptRest looks for pods whose eviction lets a NonStrict gang start with what it holds, when the last of its
// pending members does not fit. The others are nominated as well; they leave the queue for that.
func (r *Rounds) preemptRest(ctx context.Context, pod *framework.QueuedPodInfo, cause error) {
	var unfit *framework.FitError
	plan := kube.Ask(r.cluster.Gangs, func(s *gang.State) *gang.Plan { return s.Rest(string(pod.Pod.UID)) })
	if plan == nil || !errors.As(cause, &unfit) {
		return
	}
	m := r.planner.restOf(ctx, plan, pod)
	n, evict := r.Evictions.preempt(ctx, m, &outcome{failure: gang.Failure{UID: m.order[0]}})
	r.failed = &report{&groupRound{members: m, outcome: outcome{asked: map[string]sets.Set[string]{}}}, n}
	r.Evictions.evictAfter(pod.Pod, evict)
	// The failure handler writes this member's nomination. The others are in the queue: each is taken out and fails as
	// if it had been tried, with the node of its nomination, and for the reasons for which this one failed.
	for _, uid := range m.order[1:] {
		if n.nodes[uid] == "" || n.unchanged {
			continue
		}
		other := r.cluster.Core.Queue().Take(klog.FromContext(ctx), m.pods[uid].Pod)
		if other != nil {
			r.failed.asked[uid] = unfit.Diagnosis.UnschedulablePlugins
			because := gang.Refusal{Code: why.GangPreempting, Gang: r.cluster.Gangs.GangOf(other.Pod)}
			r.requeue(ctx, other, r.refusalOf(other.Pod, because))
		}
	}
}

// restOf returns the members of what a NonStrict group lacks, as the queue would, to be tried as one group; the pods of
// first come before all others. Members behind a scheduling gate cannot be tried.
func (pl *planner) restOf(ctx context.Context, plan *gang.Plan, first ...*framework.QueuedPodInfo) *members {
	m := &members{plan: plan, pods: map[string]*framework.QueuedPodInfo{}}
	for _, pod := range first {
		m.pods[string(pod.Pod.UID)], m.order = pod, append(m.order, string(pod.Pod.UID))
	}
	for _, uid := range plan.Members {
		pod := pl.cluster.Gangs.Pod(uid)
		if m.pods[uid] != nil || pod == nil || len(pod.Spec.SchedulingGates) > 0 {
			continue
		}
		f := pl.cluster.Core.Profile(pod.Spec.SchedulerName)
		if info, err := framework.NewPodInfo(pod); f != nil && err == nil {
			m.pods[uid] = &framework.QueuedPodInfo{PodInfo: info, PodSignature: f.SignPod(ctx, pod)}
			m.order = append(m.order, uid)
		}
	}
	return m
}

// newPreemption begins a preemption for members in their places. planned has the nodes to try first.
func (ev *Evictions) newPreemption(ctx context.Context, m *members, places map[string]*place,
	planned map[string]loop.Result,
) *preemption {
	p := &preemption{
		attempt: ev.planner.attempt(ctx, m, places, planned), classes: map[string]*class{}, gone: map[string]bool{},
		spared: map[string]bool{}, charges: gang.Charges{},
	}
	p.admits = true
	return p
}

// mayPreempt reports whether all members may have victims. If one of them still waits for its own, it returns the nodes
// that the members are nominated to, which they keep; else pending is nil.
func (ev *Evictions) mayPreempt(ctx context.Context, m *members) (may bool, pending map[string]string) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	nominated, waits := map[string]string{}, false
	for _, uid := range m.order {
		pod := m.pods[uid].Pod
		chooser := ev.chooser(pod)
		if chooser == nil {
			return false, nil
		}
		waits = waits || !chooser.MayPreempt(ctx, pod) || ev.evicting[uid] != ""
		// The victims may be unknown to the informer for a moment, so the nodes of evicting come first.
		nominated[uid] = cmp.Or(ev.evicting[uid], pod.Status.NominatedNodeName)
	}
	if waits {
		return false, nominated
	}
	return true, nil
}

// chooser returns what chooses victims for a member of a gang; nil for one that evicts none. An extender that has a say
// in preemption is asked about the victims on one node, not about those of a gang.
func (ev *Evictions) chooser(pod *corev1.Pod) *preempt.Chooser {
	f := ev.cluster.Core.Profile(pod.Spec.SchedulerName)
	group := ev.cluster.Gangs.Object(ev.cluster.Gangs.GangOf(pod))
	may := ptr.Deref(pod.Spec.PreemptionPolicy, "") != corev1.PreemptNever && (group == nil || !group.NeverPreempts) &&
		slices.ContainsFunc(f.PreEnqueuePlugins(), func(p fwk.PreEnqueuePlugin) bool {
			plugin, ok := p.(*Plugin)
			return ok && plugin.preempts
		}) &&
		!slices.ContainsFunc(ev.cluster.Core.Extenders(), func(e fwk.Extender) bool {
			return e.SupportsPreemption() && e.IsInterested(pod)
		})
	if !may {
		return nil
	}
	return ev.cluster.Plugins.Preemption(f)
}

// allows reports whether a pod may be a victim of the members: of lower priority than all, and not of their group.
func (p *preemption) allows(victim *corev1.Pod) bool {
	gangUID := p.cluster.Gangs.GangOf(victim)
	return p.cluster.importance(victim) < p.lowest && !p.spared[gangUID]
}

// preemptor returns a member with the priority that decides whom it evicts.
func (p *preemption) preemptor(uid string) *corev1.Pod {
	pod := p.pods[uid].Pod
	if priority := p.cluster.Gangs.Priority(pod); priority != corev1helpers.PodPriority(pod) {
		pod = pod.DeepCopy()
		pod.Spec.Priority = &priority
	}
	return pod
}

// prepare notes what holds for all members.
func (p *preemption) prepare() bool {
	known := map[string]bool{}
	for i, uid := range p.order {
		pod := p.pods[uid].Pod
		if priority := p.cluster.Gangs.Priority(pod); i == 0 || priority < p.lowest {
			p.lowest = priority
		}
		if gangUID := p.cluster.Gangs.GangOf(pod); !known[gangUID] {
			known[gangUID] = true
			for _, id := range p.cluster.group(pod) {
				p.spared[id] = true
			}
		}
	}
	f := p.profile(p.order[0])
	var err error
	p.lister = f.SnapshotSharedLister().NodeInfos()
	p.pdbs, err = f.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister().List(labels.Everything())
	p.budgets = kube.NewBudgets(p.pdbs)
	nodes, listed := p.lister.List()
	if err != nil || listed != nil || !mayEvict(p.lister, p.lowest) {
		return false
	}
	// Pods that terminate are out of the way first: they end whatever is decided.
	u := &unit{}
	for _, n := range nodes {
		for _, info := range n.GetPods() {
			if terminates(info.GetPod()) {
				u.pods = append(u.pods, info)
			}
		}
	}
	if len(u.pods) > 0 {
		p.terminating = u
		p.removeVictims(u)
	}
	return true
}

// placeMembers finds a node for each member: with victims for those that its gang needs. The others are placed where
// nodes and quotas have room for them besides.
func (p *preemption) placeMembers(order []string) bool {
	failed, _ := p.plan.Try(order, func(uid string) bool {
		needed := p.plan.Lacks(uid)
		return (needed || p.admitsBeside(uid)) && p.placeMember(uid, needed)
	})
	return failed == ""
}

// admitsBeside reports whether the quotas admit a member beside those that are placed, without more victims.
func (p *preemption) admitsBeside(uid string) bool {
	if !p.cluster.Quotas.Limits(p.pods[uid].Pod) {
		return true
	}
	t := p.tryQuotas(uid)
	return kube.Ask(p.cluster.Quotas, func(a *quota.Account) *quota.Excess { return a.AdmitTrial(t) }) == nil
}

// classifier knows what placing a pod depends on; the class of a pod with demands of its own is "".
type classifier interface {
	ClassOf(ctx context.Context, pod *corev1.Pod, signature fwk.PodSignature, state fwk.CycleState) string
}

// placeMember places a member. The first of its class is tried as in any attempt; if it does not fit, victims are
// looked for on all nodes that refuse it. From then on the class is known: a member is tried on the nodes that fit,
// then, if evicts is set, on those of the options in the order of their loss. An option is checked again before it is
// taken, as units that were taken for other members may have changed its loss.
func (p *preemption) placeMember(uid string, evicts bool) bool {
	pod, f, state := anywhere(p.pods[uid]), p.profile(uid), p.state()
	key := pod.Pod.Spec.SchedulerName + " " + cmp.Or(
		classOf(p.ctx, f, state, pod),
		uid,
	) + " " + p.places[uid].name()
	c := p.classes[key]
	if c == nil {
		state, err := p.try(uid)
		var fit *framework.FitError
		if err == nil || !errors.As(err, &fit) {
			return err == nil
		}
		nodes, err := fit.Diagnosis.NodeToStatus.NodesForStatusCode(p.lister, fwk.Unschedulable)
		if err != nil {
			return false
		}
		c = &class{seen: len(p.changed), fits: map[string]bool{}, options: map[string]*option{}}
		p.classes[key] = c
		p.findVictims(c, uid, state, nodes)
	}
	p.update(c, uid, state)
	for _, node := range slices.Sorted(maps.Keys(c.fits)) {
		if p.tryOn(uid, node) {
			return true
		}
		delete(c.fits, node)
	}
	for evicts && len(c.options) > 0 {
		node := c.best()
		was := c.options[node]
		delete(c.options, node)
		// What was known of the node may be out of date, as other units were taken for members before.
		o, _ := p.option(uid, was.victims) // gangs may have lost members elsewhere
		if o == nil || o.loss.Compare(was.loss) != 0 {
			p.findVictims(c, uid, state, p.named(node))
			continue
		}
		before := len(p.undo)
		for _, u := range o.units {
			p.removeVictims(u)
		}
		if p.tryOn(uid, node) {
			return true
		}
		p.rollback(before)
	}
	return false
}

// best returns the node where the least is lost.
func (c *class) best() (node string) {
	return slices.MinFunc(slices.Collect(maps.Keys(c.options)), func(a, b string) int {
		return cmp.Or(c.options[a].loss.Compare(c.options[b].loss), cmp.Compare(a, b))
	})
}

// named returns a node as a list; nil if it is gone.
func (p *preemption) named(node string) []fwk.NodeInfo {
	if n, err := p.lister.Get(node); err == nil {
		return []fwk.NodeInfo{n}
	}
	return nil
}

// tryOn places a member on a node, or on another that takes it.
func (p *preemption) tryOn(uid, node string) bool {
	p.planned[uid] = loop.Result{SuggestedHost: node}
	if _, err := p.try(uid); err != nil {
		delete(p.planned, uid)
		return false
	}
	return true
}

// update looks at the nodes that have changed since the class was looked at.
func (p *preemption) update(c *class, uid string, state fwk.CycleState) {
	changed := slices.Compact(slices.Sorted(slices.Values(p.changed[c.seen:])))
	c.seen = len(p.changed)
	var full []fwk.NodeInfo
	for _, name := range changed {
		delete(c.fits, name)
		delete(c.options, name)
		node, err := p.lister.Get(name)
		if err != nil || !p.places[uid].has(name) {
			continue
		}
		// Only a refusal that eviction can resolve is worth a dry run.
		status := p.profile(uid).RunFilterPluginsWithNominatedPods(p.ctx, state, p.pods[uid].Pod, node)
		switch {
		case status.IsSuccess():
			c.fits[name] = true
		case status.Code() == fwk.Unschedulable:
			full = append(full, node)
		}
	}
	p.findVictims(c, uid, state, full)
}

// findVictims looks for victims on nodes. Where they belong to a gang that cannot go, others are looked for.
func (p *preemption) findVictims(c *class, uid string, state fwk.CycleState, nodes []fwk.NodeInfo) {
	pod, chooser := p.preemptor(uid), p.cluster.Plugins.Preemption(p.profile(uid))
	for len(nodes) > 0 {
		found, err := chooser.Candidates(p.ctx, state, pod, nodes, p.pdbs)
		if err != nil {
			return
		}
		nodes = nil
		for _, candidate := range found {
			switch o, kept := p.option(uid, candidate.Victims); {
			case o != nil:
				c.options[candidate.Node] = o
			case kept != "":
				p.spared[kept] = true
				nodes = append(nodes, p.named(candidate.Node)...)
			}
		}
	}
}

// admitMembers evicts from the members' quotas what their nodes did not need, the least important first, until all
// members are admitted.
func (p *preemption) admitMembers() bool {
	// Evicting on the members' own nodes has freed a part of their quotas. Only what is still missing is taken from
	// other nodes that have pods of these quotas.
	p.quotas = p.tryQuotas()
	type choice struct {
		uid string
		*option
	}
	var choices []choice
	known := map[string]bool{}
	for _, uid := range p.order {
		pod := p.pods[uid].Pod
		gangUID := p.cluster.Gangs.GangOf(pod)
		if p.placed[uid] == nil || known[gangUID] || !p.cluster.Quotas.Limits(pod) {
			continue
		}
		known[gangUID] = true
		var nodes map[string]bool
		p.cluster.Quotas.Read(func(a *quota.Account) { nodes, _ = a.VictimNodes(uid) })
		for name := range nodes {
			for _, node := range p.named(name) {
				for _, info := range node.GetPods() {
					may := p.cluster.Plugins.Preemption(p.profile(uid)).Rules()(node, info, p.preemptor(uid))
					if o, _ := p.option(uid, []*corev1.Pod{info.GetPod()}); may && o != nil {
						choices = append(choices, choice{uid, o})
					}
				}
			}
		}
	}
	slices.SortFunc(choices, func(a, b choice) int {
		return cmp.Or(a.loss.Compare(b.loss), cmp.Compare(a.victims[0].UID, b.victims[0].UID))
	})
	// A unit may have gone with an earlier choice, which leaves less to lose: so each option is computed again.
	for _, c := range choices {
		if p.admitted() {
			return true
		}
		if o, _ := p.option(c.uid, c.victims); o != nil && !p.gone[string(c.victims[0].UID)] {
			for _, u := range o.units {
				p.removeVictims(u)
			}
		}
	}
	return p.admitted()
}

// tryQuotas returns a dry run of the quotas with the members that are placed and others, without the victims and the
// pods that have left.
func (p *preemption) tryQuotas(others ...string) *quota.Trial {
	uids := slices.AppendSeq(others, maps.Keys(p.placed))
	return kube.Ask(p.cluster.Quotas, func(a *quota.Account) *quota.Trial {
		t := a.TryAll(uids)
		for uid := range p.gone {
			a.Take(t, uid)
		}
		for _, uid := range p.left {
			a.Take(t, uid)
		}
		return t
	})
}

// admitted reports whether the quotas of all members admit them, with what is evicted.
func (p *preemption) admitted() bool {
	return kube.Ask(p.cluster.Quotas, func(a *quota.Account) *quota.Excess { return a.AdmitTrial(p.quotas) }) == nil
}

// restoreVictims spares each unit of victims without which all members fit as well: first those that violate a budget,
// then the most important ones. For each unit, the members on its nodes are displaced, the unit is put back, and the
// members are placed again without more victims; if one does not fit, or a quota does not admit all, that is rolled
// back.
// A unit is not spared alone if its gang loses others that it needs.
func (p *preemption) restoreVictims() bool {
	units := p.victims()
	slices.SortStableFunc(units, func(a, b *unit) int {
		return cmp.Or(trueFirst(a.violates, b.violates), b.loss.Compare(a.loss))
	})
	for _, u := range units {
		// Each unit is tested alone, with all those before it that were spared.
		before := len(p.undo)
		displaced := p.displaceFrom(u)
		p.returnVictims(u)
		if p.splits(u) ||
			slices.ContainsFunc(displaced, func(uid string) bool { return !p.placeMember(uid, false) }) ||
			!p.admitted() {
			p.rollback(before)
		}
	}
	return true
}

// displaceFrom takes the members off the nodes on which the victims of a unit were, and returns them in order.
func (p *preemption) displaceFrom(u *unit) (uids []string) {
	nodes := map[string]bool{}
	for _, info := range u.pods {
		nodes[info.GetPod().Spec.NodeName] = true
	}
	for uid, m := range p.placed {
		if nodes[m.pod.Pod.Spec.NodeName] {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	p.displace(uids)
	return uids
}

// splits reports whether pods of a unit belong to a gang that loses others which it needs.
func (p *preemption) splits(u *unit) bool {
	var uids []string
	for _, info := range u.pods {
		uids = append(uids, string(info.GetPod().UID))
	}
	gone := func(uid string) bool { return p.gone[uid] }
	return kube.Ask(p.cluster.Gangs, func(s *gang.State) bool { return s.Splits(uids, gone) })
}

// verifyPlacement places all members once more, now that it is known who makes way.
func (p *preemption) verifyPlacement() bool {
	on := map[string]string{}
	for uid, m := range p.placed {
		on[uid] = m.pod.Pod.Spec.NodeName
	}
	p.displace(slices.Collect(maps.Keys(on)))
	for _, uid := range p.order {
		if on[uid] != "" && !p.tryOn(uid, on[uid]) {
			return false
		}
	}
	return true
}
