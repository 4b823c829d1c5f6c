package reserving

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	configv1alpha1 "github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/reservation"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/placement"
)

// Name is the plugin's name in profiles, statuses and metrics.
const Name = "Reservation"

// Plugin places pods into the room of Reservations, and Reservations as reserve pods. Each profile has one.
type Plugin struct {
	// reservations is the account of all profiles. quotas is nil in processes that count none.
	reservations *kube.Reservations
	quotas       *kube.Quotas
	// nodes distinguishes an unknown node from one without Reservations.
	nodes corelisters.NodeLister
	// snapshot is the scheduling cycle's. A trial exchanges reserve pods in it.
	snapshot fwk.SharedLister
}

var (
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PreScorePlugin    = (*Plugin)(nil)
	_ fwk.ScorePlugin       = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.PreBindPlugin     = (*Plugin)(nil)
	_ fwk.BindPlugin        = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
)

// Factory creates the plugin for each profile, all on the account r. The arguments of the last profile hold for r. They
// are set when the scheduler starts: later instances of a profile, which answer questions, change nothing, because r is
// in use by then.
func Factory(r *kube.Reservations, q *kube.Quotas) frameworkruntime.PluginFactory {
	var started sync.Map // names of profiles whose arguments are set
	return func(_ context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		decoded, err := configv1alpha1.Decode[configv1alpha1.ReservationArgs](args)
		if err != nil {
			return nil, fmt.Errorf("arguments of Reservation: %w", err)
		}
		if _, again := started.LoadOrStore(h.ProfileName(), true); !again {
			r.KeepEnded, r.Preempts = decoded.KeepEnded(), decoded.EnablePreemption
			r.ClusterMode = decoded.AllowsClusterMode()
		}
		nodes := h.SharedInformerFactory().Core().V1().Nodes().Lister()
		return &Plugin{r, q, nodes, h.SnapshotSharedLister()}, nil
	}
}

// Name returns Name.
func (*Plugin) Name() string { return Name }

// stateKey is where a cycle has its state.
const stateKey fwk.StateKey = Name

// cycle is what one scheduling cycle knows of a pod that may use Reservations, or must. Dry runs share it.
type cycle struct {
	// pod is the pod as Reservations match it, byNode the Reservations that it may use, in the order in which they are
	// tried.
	pod    reservation.Pod
	byNode map[string][]*reservation.Spec

	// pre is set for a Reservation that may be placed on the room of running pods, and nil for any other pod.
	pre *preallocation

	mu sync.Mutex // guards chosen: filters of several nodes run at once
	// chosen has the Reservation that the pod is to use on a node. A node has none if the pod fits there without one.
	chosen map[string]*reservation.Spec
}

// Clone returns c.
func (c *cycle) Clone() fwk.StateData { return c }

// read returns the state of a cycle; nil for a pod that no Reservation concerns.
func read(cs fwk.CycleState) *cycle { return placement.State[*cycle](cs, stateKey) }

// choose records the Reservation for a node; nil for none. Filter decides, and Score and Reserve read it.
func (c *cycle) choose(node string, s *reservation.Spec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.chosen[node] = s
}

// chosenOn returns the Reservation that choose recorded. c may be nil.
func (c *cycle) chosenOn(node string) *reservation.Spec {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.chosen[node]
}

// refusal is a reason with its text, which users of Koordinator search for.
type refusal struct{ why.Reason }

// Error returns the text.
func (r *refusal) Error() string { return r.Code.Entry().Text }

// Finding returns the reason; the reader adds plugin and phase.
func (r *refusal) Finding() why.Finding { return why.Finding{Reason: r.Reason} }

// status returns the reason as a status that another node, or time, can resolve.
func (r *refusal) status() *fwk.Status { return fwk.NewStatus(fwk.Unschedulable).WithError(r) }

// excludedKey is where Exclude leaves the Reservations that a cycle must not use.
const excludedKey fwk.StateKey = Name + "Excluded"

// excluded has the UIDs of Reservations that a cycle must not use. Questions set it.
type excluded map[string]bool

// Clone returns e, which no cycle changes.
func (e excluded) Clone() fwk.StateData { return e }

// Exclude leaves Reservations out of a cycle, by UID.
func Exclude(cs fwk.CycleState, reservations map[string]bool) {
	cs.Write(excludedKey, excluded(reservations))
}

// PreFilter finds the Reservations that the pod may use, by node, and skips pods that no Reservation concerns. It
// refuses a pod that requires a Reservation and matches none, an annotation that cannot be parsed, and a Reservation
// whose pre-allocation this cluster does not support.
func (p *Plugin) PreFilter(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	if pre := p.preallocationOf(pod); pre != nil {
		never := func(code why.Code) (*fwk.PreFilterResult, *fwk.Status) {
			refused := &refusal{why.Reason{Code: code}}
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(refused)
		}
		switch {
		case !convert.IsCounted(pod):
			return never(why.PreAllocationUnsupported)
		case pre.spec.FromOffered && !p.reservations.ClusterMode:
			return never(why.PreAllocationClusterDisabled)
		}
		cs.Write(stateKey, &cycle{pre: pre, chosen: map[string]*reservation.Spec{}})
		return nil, nil
	}
	asked, byNode, err := p.matching(cs, pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(&unreadable{err})
	}
	// A question what would be without some Reservations leaves them out of the whole cycle.
	if without := placement.State[excluded](cs, excludedKey); len(without) > 0 {
		for node, all := range byNode {
			byNode[node] = slices.DeleteFunc(all, func(s *reservation.Spec) bool { return without[s.UID] })
		}
		maps.DeleteFunc(byNode, func(_ string, left []*reservation.Spec) bool { return len(left) == 0 })
	}
	if asked == nil || len(byNode) == 0 && !asked.Affinity.Required {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if len(byNode) == 0 {
		return nil, (&refusal{why.Reason{Code: why.ReservationAffinity}}).status()
	}
	cs.Write(stateKey, &cycle{pod: *asked, byNode: byNode, chosen: map[string]*reservation.Spec{}})
	return nil, nil
}

// Filter refuses nodes without a Reservation for a pod that must use one. On the others, Rooms runs the filters.
func (*Plugin) Filter(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	if c := read(cs); c != nil && c.pod.Affinity.Required && len(c.byNode[node.Node().Name]) == 0 {
		return (&refusal{why.Reason{Code: why.ReservationAffinity}}).status()
	}
	return nil
}

// unreadable is the error of an annotation that cannot be parsed, as a refusal.
type unreadable struct{ error }

// Finding returns the reason; the reader adds plugin and phase.
func (u *unreadable) Finding() why.Finding {
	return why.Finding{Reason: why.Reason{Code: why.BadAnnotation}, Detail: u.Error()}
}

// account is the Reservations that a cycle sees: the live ones, or those of its trial.
type account interface {
	// Matching returns the Reservations that a pod may use, by node and in the order in which they are tried.
	Matching(p *reservation.Pod) map[string][]*reservation.Spec
	// Left returns what the users of a Reservation leave of it.
	Left(uid string) reservation.Amounts
}

// accountOf returns the Reservations of the trial that a cycle is on, or else the live ones. cs is nil outside of one.
func accountOf(cs fwk.CycleState, live *kube.Reservations) account {
	if cs != nil {
		if t := placement.OnTrial(cs); t != nil && t.Rooms != nil {
			return t.Rooms
		}
	}
	return live
}

// matching returns the pod as Reservations see it, and the Reservations that it may use by node. Both are nil for a pod
// that none concerns: none exists and the pod asks for none, or the pod is a reserve pod. cs is nil outside of a cycle.
func (p *Plugin) matching(cs fwk.CycleState, pod *corev1.Pod,
) (*reservation.Pod, map[string][]*reservation.Spec, error) {
	if p.reservations.IsEmpty() && !convert.AsksForReservations(pod) || convert.IsReservePod(pod) {
		return nil, nil, nil
	}
	asked, err := convert.ReservationPod(pod)
	if err != nil {
		return nil, nil, err
	}
	return &asked, accountOf(cs, p.reservations).Matching(&asked), nil
}

// Guard keeps preemption from choosing users of a Reservation as victims: their room would return to the Reservation,
// and the preemptor would gain nothing.
func (p *Plugin) Guard(preemption *defaultpreemption.DefaultPreemption) {
	may := preemption.IsEligiblePod
	preemption.IsEligiblePod = func(node fwk.NodeInfo, victim fwk.PodInfo, preemptor *corev1.Pod) bool {
		return may(node, victim, preemptor) && !p.reservations.Returns(victim.GetPod())
	}
}

// PreFilterExtensions returns nil: victims of preemption are never in a Reservation, see Guard.
func (*Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Rooms runs the filters of a profile inside Reservations. It is the same for all profiles.
type Rooms struct {
	Reservations *kube.Reservations
	// Store has what the pods of each node hold.
	Store *kube.Store
}

// Wrap returns the profile f with filters that look inside Reservations.
func (r *Rooms) Wrap(f framework.Framework) framework.Framework { return &inside{f, r} }

// inside is a profile whose filters and explanations go through Rooms.
type inside struct {
	framework.Framework
	rooms *Rooms
}

// RunFilterPluginsWithNominatedPods runs the filters inside Reservations.
func (i *inside) RunFilterPluginsWithNominatedPods(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod,
	node fwk.NodeInfo,
) *fwk.Status {
	return i.rooms.Filter(ctx, i.Framework, cs, pod, node)
}

// Explain is that of Rooms.
func (i *inside) Explain(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
	findings []why.Finding, find func(fwk.CycleState, fwk.NodeInfo) []why.Finding,
) []why.Finding {
	return i.rooms.Explain(ctx, i.Framework, cs, pod, node, findings, find)
}

// Concern reports whether the pod of a cycle may use a Reservation, or is one.
func (*Rooms) Concern(cs fwk.CycleState) bool { return read(cs) != nil }

// Filter runs the filters of f on a node. For each Reservation of the node that the pod may use, in order, it runs them
// without the reserve pod, and records the first with which they pass. If none does, it runs them on the node as it is,
// unless the pod must use a Reservation.
func (r *Rooms) Filter(ctx context.Context, f framework.Framework, cs fwk.CycleState, pod *corev1.Pod,
	node fwk.NodeInfo,
) *fwk.Status {
	c, name := read(cs), node.Node().Name
	if c != nil && c.pre != nil {
		return r.filterOver(ctx, f, cs, pod, node, c.pre)
	}
	if c == nil || len(c.byNode[name]) == 0 {
		return f.RunFilterPluginsWithNominatedPods(ctx, cs, pod, node)
	}
	var refused *fwk.Status
	for _, s := range c.byNode[name] {
		status := r.filterInside(ctx, f, cs, pod, node, s)
		if status.IsSuccess() {
			c.choose(name, s)
			return nil
		}
		if refused == nil {
			refused = status
		}
	}
	c.choose(name, nil)
	if c.pod.Affinity.Required {
		return refused
	}
	return f.RunFilterPluginsWithNominatedPods(ctx, cs, pod, node)
}

// Explain corrects findings of filters that know no Reservation. It returns none if the pod fits inside a Reservation;
// else it returns the Reservation's own refusal first, or what find finds inside the first Reservation, and names the
// Reservations that keep the room from this pod if the pod would fit without these.
func (r *Rooms) Explain(ctx context.Context, f framework.Framework, cs fwk.CycleState, pod *corev1.Pod,
	node fwk.NodeInfo, findings []why.Finding, find func(fwk.CycleState, fwk.NodeInfo) []why.Finding,
) []why.Finding {
	name, keeping := node.Node().Name, map[string]bool{}
	// First: the findings are of filters that looked at the node as it is. Inside its Reservations the pod may fit.
	c := read(cs)
	if c != nil && (c.pre != nil || len(c.byNode[name]) > 0) {
		status := r.Filter(ctx, f, cs, pod, node)
		if status.IsSuccess() {
			return nil
		}
		var refused *refusal
		if errors.As(status.AsError(), &refused); refused == nil && c.pre == nil {
			refused = r.shortage(cs, pod, c.byNode[name])
		}
		if refused != nil {
			said := refused.Finding()
			said.Plugin, said.Phase, said.Object = Name, why.Filter, name
			findings = append([]why.Finding{said}, findings...)
		} else if c.pre == nil {
			if dry, without, failed := enter(ctx, f, cs, pod, node, c.byNode[name][0]); failed == nil {
				if inside := find(dry, without); len(inside) > 0 {
					findings = inside
				}
			}
		}
	}
	if len(findings) == 0 {
		return nil
	}
	// Then: Reservations that the pod may not use are to blame only if the filters pass without all of them.
	var names []string
	for _, other := range r.Reservations.On(name) {
		isIt := func(s *reservation.Spec) bool { return s.UID == string(other.UID) }
		_, keeps := r.Reservations.Find(other.UID)
		if keeps != nil && (c == nil || !slices.ContainsFunc(c.byNode[name], isIt)) {
			names, keeping[string(other.UID)] = append(names, other.Name), true
		}
	}
	if len(names) == 0 {
		return findings
	}
	if c != nil && len(c.byNode[name]) > 0 && !c.byNode[name][0].Restricted {
		keeping[c.byNode[name][0].UID] = true // the pod has the room of its own Reservation as well
	}
	dry, without, failed := leave(ctx, f, cs, pod, node, keeping)
	if failed != nil || !f.RunFilterPluginsWithNominatedPods(ctx, dry, pod, without).IsSuccess() {
		return findings
	}
	return append([]why.Finding{{
		Reason: why.Reason{Code: why.ReservedForOthers}, Plugin: Name, Phase: why.Filter, Object: name,
		Detail: "node(s) keep the room for other pods in reservation " + strings.Join(names, ", "),
	}}, findings...)
}

// leave returns a copy of a cycle's state and of a node without the reserve pods of the Reservations in keeping, by
// UID.
func leave(ctx context.Context, f framework.Framework, cs fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
	keeping map[string]bool,
) (fwk.CycleState, fwk.NodeInfo, *fwk.Status) {
	dry, without := cs.Clone(), node.Snapshot()
	for _, info := range node.GetPods() {
		if !keeping[string(info.GetPod().UID)] {
			continue
		}
		if err := without.RemovePod(klog.FromContext(ctx), info.GetPod()); err != nil {
			return nil, nil, fwk.AsStatus(fmt.Errorf("look inside a reservation: %w", err))
		}
		if status := f.RunPreFilterExtensionRemovePod(ctx, dry, pod, info, without); !status.IsSuccess() {
			return nil, nil, status
		}
	}
	return dry, without, nil
}

// filterInside runs the filters on a node for a pod that uses the Reservation s: without its reserve pod, and with what
// it holds alone if it is restricted. It refuses a pod that asks for more than the Reservation has left.
func (r *Rooms) filterInside(ctx context.Context, f framework.Framework, cs fwk.CycleState, pod *corev1.Pod,
	node fwk.NodeInfo, s *reservation.Spec,
) *fwk.Status {
	if refused := r.shortage(cs, pod, []*reservation.Spec{s}); refused != nil {
		return refused.status().WithPlugin(Name)
	}
	dry, without, failed := enter(ctx, f, cs, pod, node, s)
	if failed != nil {
		return failed
	}
	return f.RunFilterPluginsWithNominatedPods(ctx, dry, pod, without)
}

// enter returns a copy of a cycle's state and of a node as they are inside the Reservation s.
func enter(ctx context.Context, f framework.Framework, cs fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
	s *reservation.Spec,
) (fwk.CycleState, fwk.NodeInfo, *fwk.Status) {
	dry, without, failed := leave(ctx, f, cs, pod, node, map[string]bool{s.UID: true})
	if failed != nil {
		return nil, nil, failed
	}
	if placed := placement.Read(dry); placed != nil && s.Restricted {
		placed.Enter(node.Node().Name, s.UID)
	}
	return dry, without, nil
}

// shortage refuses a pod for the first Reservation that is Restricted and has too little left for it; nil for none.
func (r *Rooms) shortage(cs fwk.CycleState, pod *corev1.Pod, all []*reservation.Spec) *refusal {
	request := convert.PodAmounts(pod)
	for _, s := range all {
		if resource, free := s.Shortage(request, accountOf(cs, r.Reservations).Left(s.UID)); resource != "" {
			return &refusal{why.Reason{
				Code: why.ReservationRestricted, Resource: why.Resource(resource), Unit: convert.UnitOf(resource),
				Asked: request[resource], Free: free,
			}}
		}
	}
	return nil
}

// Chosen returns the UID of the Reservation that the pod of a cycle is to use on a node, and whether the pod must take
// all that it reserves from it. uid is empty if the pod is to use none.
func Chosen(cs fwk.CycleState, node string) (uid string, restricted bool) {
	if s := read(cs).chosenOn(node); s != nil {
		return s.UID, s.Restricted
	}
	return "", false
}

// PreScore skips pods that may use no Reservation.
func (*Plugin) PreScore(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if read(cs) == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score prefers nodes on which the pod uses a Reservation, and for a Reservation those where it takes over the room of
// no running pod.
func (*Plugin) Score(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	c := read(cs)
	if c.pre != nil && len(c.pre.on(node.Node().Name)) == 0 || c.chosenOn(node.Node().Name) != nil {
		return fwk.MaxScore, nil
	}
	return 0, nil
}

// ScoreExtensions returns nil: scores are final.
func (*Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }

// Reserve makes the pod a user of the chosen Reservation, after the other plugins have reserved its CPUs and devices.
// For a Reservation it records the running pods whose room it takes over. On trial, only the trial's account changes,
// and the snapshot gets the smaller reserve pod.
func (p *Plugin) Reserve(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if c := read(cs); c != nil && c.pre != nil {
		p.reservations.Occupy(pod.UID, c.pre.on(node))
		return nil
	}
	uid, _ := Chosen(cs, node)
	if uid == "" {
		return nil
	}
	if t := placement.OnTrial(cs); t != nil {
		if t.Rooms == nil {
			t.Rooms = p.reservations.Try()
		}
		was := t.Rooms.ReservePod(types.UID(uid))
		if err := t.Rooms.Use(pod, uid); err != nil {
			return fwk.AsStatus(err)
		}
		err := p.exchange(node, was, t.Rooms.ReservePod(types.UID(uid)))
		if err != nil { // the snapshot is older than the Reservation
			t.Rooms.Release(pod)
		}
		return fwk.AsStatus(err)
	}
	if err := p.reservations.Use(pod, uid); err != nil {
		return fwk.AsStatus(err) // another pod was faster: the queue tries again
	}
	return nil
}

// exchange replaces the reserve pod was by now on a node of the snapshot; nil stands for none. The node's generation
// remains, because the caller restores the snapshot before the cache updates it.
func (p *Plugin) exchange(node string, was, now *corev1.Pod) error {
	info, err := p.snapshot.NodeInfos().Get(node)
	if err != nil {
		return err
	}
	n := info.(*framework.NodeInfo)
	generation := n.Generation // of the cache: the snapshot is as before in the end
	defer func() { n.Generation = generation }()
	if was != nil {
		err = n.RemovePod(klog.Background(), was)
	}
	if err == nil && now != nil {
		n.AddPod(now)
	}
	return err
}

// Unreserve returns what the pod uses to the Reservation. A second call, or one without Reserve, does nothing.
func (p *Plugin) Unreserve(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) {
	if c := read(cs); c != nil && c.pre != nil {
		p.reservations.Occupy(pod.UID, nil)
		return
	}
	uid, _ := Chosen(cs, node)
	if uid == "" {
		return
	}
	var reserve *corev1.Pod
	if t := placement.OnTrial(cs); t == nil {
		p.reservations.Release(pod)
		_, reserve = p.reservations.Find(types.UID(uid))
	} else {
		if t.Rooms == nil {
			t.Rooms = p.reservations.Try()
		}
		was := t.Rooms.ReservePod(types.UID(uid))
		used := t.Rooms.Release(pod)
		if reserve = t.Rooms.ReservePod(types.UID(uid)); used {
			utilruntime.HandleError(p.exchange(node, was, reserve))
		}
	}
	if reserve != nil && p.quotas != nil {
		// Yield took this off the quotas.
		p.quotas.PutPod(reserve) // see Yield
	}
}

// Yield takes off the quotas what the chosen Reservation counts there for the pod of a cycle. ElasticQuota calls it
// just before it counts the pod itself, so that nothing counts twice.
func (p *Plugin) Yield(cs fwk.CycleState, pod *corev1.Pod, node string) {
	uid, _ := Chosen(cs, node)
	if uid == "" {
		return
	}
	if now, after := shrunk(p.copied(cs), pod, uid); after != nil {
		p.quotas.PutPod(after)
	} else if now != nil {
		p.quotas.RemovePod(now)
	}
}

// copied returns a copy of the Reservations that a cycle reads.
func (p *Plugin) copied(cs fwk.CycleState) *kube.ReservationTrial {
	if t := placement.OnTrial(cs); t != nil && t.Rooms != nil {
		return t.Rooms.Clone()
	}
	return p.reservations.Try()
}

// shrunk returns the reserve pod of a Reservation, and the one that is left once the pod uses the Reservation: nil if
// nothing is left. Both are nil if the pod cannot use it. Of rooms, it leaves the pod as a user.
func shrunk(rooms *kube.ReservationTrial, pod *corev1.Pod, uid string) (now, after *corev1.Pod) {
	now = rooms.ReservePod(types.UID(uid))
	if now == nil || rooms.Use(pod, uid) != nil {
		return nil, nil
	}
	return now, rooms.ReservePod(types.UID(uid))
}

// Inside reports whether admits is true for a Reservation that the pod may use, given its reserve pod and what is left
// of that once the pod uses the Reservation: nil for nothing.
func (p *Plugin) Inside(cs fwk.CycleState, pod *corev1.Pod, admits func(room, left *corev1.Pod) bool) bool {
	_, byNode, _ := p.matching(cs, pod) // a pod that cannot be read is refused by PreFilter
	if len(byNode) == 0 {
		return false
	}
	rooms := p.copied(cs)
	for _, all := range byNode {
		for _, s := range all {
			if room, left := shrunk(rooms, pod, s.UID); room != nil && admits(room, left) {
				return true
			}
			rooms.Release(pod)
		}
	}
	return false
}

// Usable returns a function that reports whether a pod is the reserve pod of a Reservation that one of these pods may
// use. It returns nil if they may use none.
func (p *Plugin) Usable(pods []*corev1.Pod) func(*corev1.Pod) bool {
	usable := map[types.UID]bool{}
	for _, pod := range pods {
		_, byNode, _ := p.matching(nil, pod) // a pod that cannot be read is refused later
		for _, all := range byNode {
			for _, s := range all {
				usable[types.UID(s.UID)] = true
			}
		}
	}
	if len(usable) == 0 {
		return nil
	}
	return func(on *corev1.Pod) bool { return usable[on.UID] }
}

// PreBindPreFlight skips pods that use no Reservation for one pod.
func (p *Plugin) PreBindPreFlight(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string,
) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if !p.reservations.Announces(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreBind writes the pod's name to the status of a Reservation for one pod, before the pod is bound: from then on no
// other pod uses it, even if the pod is deleted. A running pod whose room was taken over ends first.
func (p *Plugin) PreBind(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) *fwk.Status {
	if err := p.reservations.Announce(ctx, pod); err != nil {
		return fwk.AsStatus(err)
	}
	return fwk.AsStatus(p.reservations.Vacate(ctx, pod))
}

// Bind writes the node of a Reservation, with the CPUs and devices that it holds there. Other binders bind pods.
func (p *Plugin) Bind(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if !convert.IsReservePod(pod) {
		return fwk.NewStatus(fwk.Skip)
	}
	return fwk.AsStatus(p.reservations.Bind(ctx, pod.UID, node, placement.Read(cs).Record()))
}

// objects are Reservations as the framework names resources.
const objects fwk.EventResource = "reservations.v1alpha1." + v1alpha1.GroupName

// EventsToRegister names the events after which a pod may find a Reservation.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	on := func(r fwk.EventResource, actions fwk.ActionType) fwk.ClusterEventWithHint {
		return fwk.ClusterEventWithHint{
			Event: fwk.ClusterEvent{Resource: r, ActionType: actions}, QueueingHintFn: p.hint,
		}
	}
	return []fwk.ClusterEventWithHint{
		on(objects, fwk.Add|fwk.Update|fwk.Delete), on(fwk.Pod, fwk.Add|fwk.Update|fwk.Delete),
	}, nil
}

// Opened returns which pods may use a Reservation that has become available, or has more left or other owners than
// before; nil after any other event. Pods that other plugins have refused wake too: no plugin but this one has looked
// for Reservations, and this one has found none.
func (p *Plugin) Opened(old, object any) (mayUse func(*corev1.Pod) bool) {
	was, had := old.(*v1alpha1.Reservation)
	now, ok := object.(*v1alpha1.Reservation)
	if !ok || now.Status.Phase != v1alpha1.ReservationAvailable || had && was.Generation == now.Generation &&
		was.Status.Phase == now.Status.Phase && !hasMore(was.Status.Allocated, now.Status.Allocated) {
		return nil
	}
	return func(pod *corev1.Pod) bool {
		_, byNode, err := p.matching(nil, pod)
		return err == nil && slices.ContainsFunc(byNode[now.Status.NodeName], func(s *reservation.Spec) bool {
			return s.UID == string(now.UID)
		})
	}
}

// hasMore reports whether less of some resource is allocated than before.
func hasMore(was, now corev1.ResourceList) bool {
	for name, amount := range was {
		if amount.Cmp(now[name]) > 0 {
			return true
		}
	}
	return false
}

// hint wakes a pod that may use a Reservation now, a Reservation that has no node, and a pod whose own labels or
// annotations have changed.
func (p *Plugin) hint(_ klog.Logger, pod *corev1.Pod, old, object any) (fwk.QueueingHint, error) {
	if own, ok := object.(*corev1.Pod); ok && own.UID == pod.UID {
		was, ok := old.(*corev1.Pod)
		if ok && maps.Equal(was.Labels, own.Labels) && maps.Equal(was.Annotations, own.Annotations) {
			return fwk.QueueSkip, nil
		}
		return fwk.Queue, nil
	}
	_, byNode, err := p.matching(nil, pod)
	if len(byNode) > 0 || err == nil && convert.IsReservePod(pod) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// SignPod signs no pod that may use a Reservation, or must: its place depends on more than the state of one node.
func (p *Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	asked, byNode, err := p.matching(nil, pod)
	if p.preallocationOf(pod) != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "a reservation that may be placed on running pods is not signed")
	}
	if err != nil || asked != nil && (asked.Affinity.Required || len(byNode) > 0) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "a pod that may use a reservation is not signed")
	}
	return nil, nil
}
