package reserving

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	configv1alpha1 "github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/reservation"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/sched/upstream/preempt"
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
			refused := &placement.Refusal{Reason: why.Reason{Code: code}}
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
		return nil, (&placement.Refusal{Reason: why.Reason{Code: why.ReservationAffinity}}).Status()
	}
	cs.Write(stateKey, &cycle{pod: *asked, byNode: byNode, chosen: map[string]*reservation.Spec{}})
	return nil, nil
}

// Filter refuses nodes without a Reservation for a pod that must use one. On the others, Rooms runs the filters.
func (*Plugin) Filter(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	if c := read(cs); c != nil && c.pod.Affinity.Required && len(c.byNode[node.Node().Name]) == 0 {
		return (&placement.Refusal{Reason: why.Reason{Code: why.ReservationAffinity}}).Status()
	}
	return nil
}

// unreadable is the error of an annotation that cannot be parsed, as a refusal.
type unreadable struct{ error }

// Finding returns the reason; the reader adds plugin and phase.
func (u *unreadable) Finding() why.Finding {
	return why.Finding{Reason: why.Reason{Code: why.BadAnnotation}, Detail: u.Error()}
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
func (p *Plugin) Guard(preemption *preempt.Chooser) {
	preemption.Restrict(func(_ fwk.NodeInfo, victim fwk.PodInfo, _ *corev1.Pod) bool {
		return !p.reservations.Returns(victim.GetPod())
	})
}

// PreFilterExtensions returns nil: victims of preemption are never in a Reservation, see Guard.
func (*Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

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
