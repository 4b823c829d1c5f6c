package core

import (
	"cmp"
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/sched/elasticquota"
	"github.com/tenon-project/tenon/internal/sched/nodenumaresource"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/sched/reserving"
	"github.com/tenon-project/tenon/internal/sched/upstream/claims"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
	"github.com/tenon-project/tenon/internal/sched/upstream/ranking"
	"github.com/tenon-project/tenon/internal/sched/upstream/snapshot"
)

// audited makes the plugin for ResourceClaims read which cards pods have, and its hints wake pods whose claims are
// deleted. It replaces the hints, and what the plugin keeps of the framework: guarded hides both.
type audited struct{ base }

func (l audited) prepare(context.Context) error {
	for name, f := range l.c.Profiles {
		l.c.dra = f.SharedDRAManager() // the profiles have one manager
		books, err := l.c.audit(f)
		if err != nil {
			return err
		}
		l.c.books[name] = books
	}
	l.c.Imagined = claims.Imagine(l.c.dra, l.c.options.Claims)
	return claims.Wake(l.c.SchedulingQueue)
}

// audit returns the Books of a framework, nil for none, which the plugin reads from then on.
func (c *Core) audit(f framework.Framework) (*claims.Books, error) {
	return claims.Audit(f, c.options.Claims, c.options.Nodes.View)
}

// guarded catches the panics of plugins, and lets the queue give out pods by name. It replaces what is inside of
// kube-scheduler's frameworks and queue, so no layer may be around these yet.
type guarded struct{ base }

func (guarded) inside() []layer { return []layer{audited{}} }

func (l guarded) prepare(context.Context) error {
	if err := l.c.options.Metrics.Guard.Scheduler(l.c.Scheduler); err != nil {
		return err
	}
	q, err := podqueue.New(l.c.SchedulingQueue)
	l.c.SchedulingQueue = q
	return err
}

// claiming chooses devices for ResourceClaims, and lets the members of a gang share them. It surrounds guarded, which
// catches what panics inside, and replaces plugins as that one does.
type claiming struct{ base }

func (claiming) inside() []layer { return []layer{guarded{}} }

func (l claiming) prepare(context.Context) error {
	for name, f := range l.c.Profiles {
		if err := l.c.claim(f, l.c.books[name]); err != nil {
			return err
		}
	}
	return nil
}

// claim makes a framework choose devices for claims, and lets the members of a gang share them.
func (c *Core) claim(f framework.Framework, books *claims.Books) error {
	return cmp.Or(c.choose(f), c.sharing.Share(f, books))
}

// choose makes a framework choose devices for claims, unless claims are ignored.
func (c *Core) choose(f framework.Framework) error {
	if c.options.Claims == nil {
		return nil
	}
	return claims.Choose(f, rest{gangs{c}, pluginOf[*deviceshare.Plugin](f)})
}

// rest is what claims need to know of pods in a profile. devices decides about devices without claims; nil in a profile
// without it.
type rest struct {
	gangs
	devices *deviceshare.Plugin
}

// AsksForDevices is that of the plugin.
func (r rest) AsksForDevices(pod *corev1.Pod) *place.Request {
	if r.devices == nil {
		return nil
	}
	return r.devices.AsksForDevices(pod)
}

// Offered is that of package placement.
func (rest) Offered(cs fwk.CycleState, pod *corev1.Pod, node string, v *ledger.View) (ledger.Entry, bool) {
	return placement.Offered(cs, pod, node, v)
}

// gangs is what claims need to know of pods: which start together and share claims, and what else they ask of a node.
type gangs struct{ c *Core }

// StartsWith returns the gangs that start together with that of a pod, in one text; "" for a pod of none.
func (g gangs) StartsWith(pod *corev1.Pod) string {
	id := g.c.options.Gangs.GangOf(pod)
	if id == "" {
		return ""
	}
	report := kube.Ask(g.c.options.Gangs, func(s *gang.State) gang.Report { r, _ := s.Find(id); return r })
	return cmp.Or(strings.Join(report.Settings.Group, " "), id)
}

// PodGroup returns Kubernetes' own PodGroup of a name; nil for one that is not known.
func (g gangs) PodGroup(namespace, name string) *v1alpha1.PodGroup {
	return g.c.options.Gangs.NativeGroup(namespace, name)
}

// Trial returns the accounts of an attempt or a question.
func (gangs) Trial(cs fwk.CycleState) claims.View {
	if trial := placement.OnTrial(cs); trial != nil {
		return trial.Account
	}
	return nil
}

// Follow takes the claims of a node over into the accounts of an attempt.
func (gangs) Follow(cs fwk.CycleState, node string) {
	if trial := placement.OnTrial(cs); trial != nil {
		trial.FollowClaims(node)
	}
}

// Asked returns what a pod asks of a node apart from its claims.
func (g gangs) Asked(cs fwk.CycleState, node string) (*ledger.View, *place.Request) {
	return placement.Asked(cs, node, g.c.options.Nodes)
}

// Claim places the CPUs and the memory of a pod beside the devices of its claims.
func (gangs) Claim(cs fwk.CycleState, node string, nodes topo.NodeSet, spread int) {
	placement.Claim(cs, node, nodes, spread)
}

// IsTrial reports whether a cycle belongs to an attempt or a question.
func (gangs) IsTrial(cs fwk.CycleState) bool { return placement.OnTrial(cs) != nil }

// logged logs the nodes that changed in kube-scheduler's cache or in an account. It is the first layer of the cache,
// which has each event after the accounts (internal/kube/accounts).
type logged struct{ base }

func (l logged) Cache(inner snapshot.Cache) snapshot.Cache {
	l.c.options.Loads.OnChange(l.c.changes.Node, l.c.changes.Shown)
	return l.c.changes.Watch(inner, l.c.options.Nodes)
}

// counted counts the events that may let a pod fit, wakes the pods that an event concerns, and logs nominations. It
// surrounds logged: an event is counted after the cache has it.
type counted struct{ base }

func (counted) inside() []layer { return []layer{guarded{}, logged{}} }

func (l counted) Queue(inner podqueue.Queue) podqueue.Queue {
	l.c.events.Nodes = l.c.Scheduler.Cache
	l.c.events.Also = l.c
	return l.c.events.Watch(inner, l.c.changes)
}

// Next takes pods from the counted queue.
func (l counted) Next(NextPod) NextPod { return podqueue.Pods(l.c.SchedulingQueue.Pop) }

// Wakes returns the plugins whose events wake a pod without devices for its claims: it may wait for CPUs on the NUMA
// nodes of devices, and for cards that pods have.
func (c *Core) Wakes(pod *framework.QueuedPodInfo) (plugins []string) {
	if !pod.UnschedulablePlugins.Has(names.DynamicResources) {
		return nil
	}
	if len(pod.Pod.Spec.ResourceClaims) > 0 {
		plugins = append(plugins, nodenumaresource.Name)
	}
	if books := c.books[pod.Pod.Spec.SchedulerName]; books.AnyHeld() {
		plugins = append(plugins, placement.DeviceShare)
	}
	return plugins
}

// Amounts returns the plugin by which all nodes have refused a pod; nil where they have not.
func (c *Core) Amounts(pod *corev1.Pod) hooks.Amounts {
	if p := c.ranked[pod.Spec.SchedulerName]; p != nil {
		return p.Amounts(pod)
	}
	return nil
}

// protected adds the rules of Reservations and gangs to the preemption of each profile, and lets pods wait for the end
// of others instead. It surrounds counted: nominations go through that queue. It surrounds guarded, which replaces
// plugins by wrappers that other layers are not to see.
type protected struct{ base }

func (protected) inside() []layer { return []layer{guarded{}, claiming{}, counted{}} }

//nolint:unparam // other layers of the seam may fail
func (l protected) profile(_ context.Context, _ string, f framework.Framework) (framework.Framework, error) {
	f.SetPodNominator(l.c.SchedulingQueue)
	protect(f, l.c.Rounds.Evictions)
	rooms := pluginOf[*reserving.Plugin](f)
	if rooms != nil {
		l.c.events.Rooms = rooms // of all profiles: they share the account
	}
	for _, e := range f.PreEnqueuePlugins() {
		p, ok := e.(*elasticquota.Plugin)
		if !ok {
			continue
		}
		if p.Terminating = l.c.Rounds.Evictions; rooms != nil {
			p.Rooms = rooms
		}
	}
	return f, nil
}

// held keeps members of gangs out of the queue until it runs: their place in it may change until all are known. It
// surrounds counted, which has to see each pod that comes into the queue.
type held struct{ base }

func (l held) acts() bool    { return l.c.options.Serving != nil }
func (held) inside() []layer { return []layer{counted{}} }

func (l held) Queue(inner podqueue.Queue) podqueue.Queue {
	return hooks.Hold(inner, l.c.options.Gangs.IsMember)
}

// ranked keeps a ranking of the nodes for equal pods, and runs filters in the room of Reservations. It surrounds
// protected: the profile that it hides has its preemption by then.
type ranked struct{ base }

func (ranked) inside() []layer { return []layer{guarded{}, logged{}, protected{}} }

func (l ranked) profile(ctx context.Context, name string, f framework.Framework) (framework.Framework, error) {
	p, err := l.c.rank(ctx, name, f, l.c.changes)
	if err != nil {
		return nil, err
	}
	p.ByName, p.Together, p.Rejections = true, l.c.Rounds, l.c.rejections
	if serving := l.c.options.Serving; serving != nil {
		p.ByName, p.Memory, p.Bindings = false, serving.RankingBytes, l.c.Gate.Bindings
	}
	l.c.ranked[name] = p
	return p, nil
}

// remembered answers for pods equal to one that all nodes refused. It is the first around kube-scheduler's choice of a
// node: each attempt of the layers outside of it is one of its own. A simulation has none: a pod that all nodes are
// known to refuse preempts less.
type remembered struct{ base }

func (l remembered) acts() bool {
	return l.c.options.Serving != nil || l.c.options.Remember
}
func (remembered) inside() []layer { return []layer{ranked{}} }

func (l remembered) Schedule(inner SchedulePod) SchedulePod {
	return ranking.Remember(l.c.rankedProfile, inner)
}

func (c *Core) rankedProfile(name string) *ranking.Profile { return c.ranked[name] }

// retried tries the nodes to which the API server refused to bind a pod after all others. It surrounds remembered,
// which makes an attempt on each of its two tries.
type retried struct{ base }

func (l retried) acts() bool    { return l.c.options.Serving != nil }
func (retried) inside() []layer { return []layer{ranked{}, remembered{}} }

func (l retried) Schedule(inner SchedulePod) SchedulePod { return l.c.rejections.Schedule(inner) }

// reserved writes why a Reservation has no node, and queues it again: kube-scheduler's handler would do that to a pod,
// which no API server has. It is the first around that handler: the layers outside of it see Reservations too.
type reserved struct{ base }

func (reserved) inside() []layer { return []layer{counted{}} }

func (l reserved) Fail(inner loop.Fail) loop.Fail {
	return reserving.Fail(loop.Of(l.c.Scheduler), l.c.options.Reservations, inner)
}

// Reporter writes why a pod has no node.
type Reporter interface {
	Wrap(inner loop.Fail) loop.Fail
}

// reported writes why a pod has no node, in place of what kube-scheduler's handler would write. It surrounds reserved,
// which ends the way of Reservations.
type reported struct{ base }

func (reported) inside() []layer { return []layer{reserved{}} }

func (l reported) Fail(inner loop.Fail) loop.Fail {
	return l.c.options.Reporter.Wrap(inner)
}

// shared lets a pod that starts alone come before gangs that have used up their share of the loop. It surrounds the
// queue alone.
type shared struct{ base }

func (l shared) acts() bool    { return l.c.options.Serving != nil }
func (shared) inside() []layer { return []layer{counted{}} }

func (l shared) Next(inner NextPod) NextPod { return l.c.Rounds.Share(inner) }

// gated takes no pod until all accounts are known, and while many Bindings are on their way. It surrounds shared: which
// pod comes next is decided after the wait.
type gated struct {
	base
	ctx context.Context // of the scheduling loop: its end ends the wait
}

func (l gated) acts() bool    { return l.c.options.Serving != nil }
func (gated) inside() []layer { return []layer{shared{}} }

func (l gated) Next(inner NextPod) NextPod { return l.c.Gate.Wrap(l.ctx, inner) }

// Source decides which pod of the queue comes next, and when.
type Source interface{ Pop(inner NextPod) NextPod }

// sourced is the Source of the options. It surrounds gated: a journal records what came until the wait was over.
type sourced struct{ base }

func (l sourced) acts() bool    { return l.c.options.Source != nil }
func (sourced) inside() []layer { return []layer{counted{}, gated{}} }

func (l sourced) Next(inner NextPod) NextPod { return l.c.options.Source.Pop(inner) }

// together starts gangs whole or not at all: the siblings of a pod come after it, all are planned on one snapshot, and
// a failure of one is that of all. It surrounds sourced, since siblings pass no gate of their own; retried, since a
// plan makes attempts of its own; and reported, since it decides what the reporter is to say.
type together struct{ base }

func (together) inside() []layer {
	return []layer{sourced{}, gated{}, retried{}, remembered{}, reported{}}
}

func (l together) Next(inner NextPod) NextPod { return l.c.Rounds.Next(inner) }

func (l together) Schedule(inner SchedulePod) SchedulePod { return l.c.Rounds.Schedule(inner) }

func (l together) Fail(inner loop.Fail) loop.Fail {
	return l.c.Rounds.Fail(inner)
}

// noted remembers the last choices of nodes. It surrounds together: attempts of a plan are not decisions.
type noted struct{ base }

func (l noted) acts() bool    { return l.c.options.Decisions != nil }
func (noted) inside() []layer { return []layer{ranked{}, together{}} }

func (l noted) Schedule(inner SchedulePod) SchedulePod {
	return l.c.options.Decisions.Record(l.c.options.Flags, inner)
}

// recorded is the Record of the options.
type recorded struct {
	base
	Record
}

func (l recorded) acts() bool { return l.Record != nil }

func (recorded) inside() []layer {
	return []layer{logged{}, counted{}, held{}, ranked{}, sourced{}, together{}, noted{}}
}

//nolint:unparam // other layers of the seam may fail
func (l recorded) profile(_ context.Context, name string, _ framework.Framework) (framework.Framework, error) {
	return l.Record.Profile(l.c.ranked[name]), nil
}
