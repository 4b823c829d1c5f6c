package claims

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/sched/upstream/guard"
)

// pluginKey is where the plugin has its state of a pod, waitKey where Sharing has its own, and promisedKey where the
// claims are that Reserve has promised devices.
const (
	pluginKey   fwk.StateKey = names.DynamicResources
	waitKey     fwk.StateKey = "TenonClaims"
	promisedKey fwk.StateKey = "TenonClaimsPromised"
)

// Gangs is what Sharing asks about pods and attempts.
type Gangs interface {
	// StartsWith returns what is equal for pods that start together, "" for a pod that is of no gang.
	StartsWith(*corev1.Pod) string
	// PodGroup returns Kubernetes' own PodGroup of a name; nil for one that is not known.
	PodGroup(namespace, name string) *v1alpha1.PodGroup
	// IsTrial reports whether a cycle only tries a pod, so that it must write nothing to the API server.
	IsTrial(fwk.CycleState) bool
	// Trial returns the accounts of a trial; nil for a cycle that is none.
	Trial(fwk.CycleState) View
	// Follow takes the claims of a node over into the accounts of a trial.
	Follow(cs fwk.CycleState, node string)
}

// Sharing lets the members of gangs share ResourceClaims, see the package. It is one for all profiles of a cluster.
type Sharing struct {
	gangs Gangs

	mu sync.Mutex // guards the rest, but not what group has
	// groups are the gangs with a member that is reserved and not bound yet. byPod has the group of each such pod.
	groups map[string]*group
	byPod  map[types.UID]*group
	// writing has the claims whose pods are in PreBind, by UID. A channel is closed when the claim is free again.
	writing map[types.UID]chan struct{}
}

// group is the reserved members of a gang.
type group struct {
	key  string
	pods sets.Set[types.UID]

	mu sync.Mutex // held during calls of the plugin with state, which is not safe for concurrent use
	// state has the claims that were promised to members and are not written yet.
	state fwk.PodGroupCycleState
}

// NewSharing returns a Sharing for gangs.
func NewSharing(gangs Gangs) *Sharing {
	return &Sharing{
		gangs: gangs, groups: map[string]*group{}, byPod: map[types.UID]*group{},
		writing: map[types.UID]chan struct{}{},
	}
}

// Share puts the Sharing around the plugin in a framework, whose Books are nil for none. It does nothing where the
// plugin is not enabled.
func (s *Sharing) Share(f framework.Framework, books *Books) error {
	// The refresh before PreBind would lose what the plugin has counted for the node.
	if utilfeature.DefaultFeatureGate.Enabled(features.DRANodeAllocatableResources) || f.SharedDRAManager() == nil {
		return nil
	}
	p := &plugin{Sharing: s, dra: f.SharedDRAManager(), books: books}
	return cmp.Or(
		s.serveGroups(f),
		replace(f, "postFilterPlugins", func(inner fwk.PostFilterPlugin) fwk.PostFilterPlugin {
			return &postFilter{inner, s, f}
		}),
		replace(f, "preFilterPlugins", func(inner fwk.PreFilterPlugin) fwk.PreFilterPlugin {
			p.preFilter = inner
			return &preFilter{inner, p}
		}),
		replace(f, "filterPlugins", func(inner fwk.FilterPlugin) fwk.FilterPlugin { return &filter{inner, p} }),
		replace(f, "reservePlugins", func(inner fwk.ReservePlugin) fwk.ReservePlugin { return &reserve{inner, p} }),
		replace(f, "preBindPlugins", func(inner fwk.PreBindPlugin) fwk.PreBindPlugin { return &preBind{inner, p} }),
	)
}

// replace replaces the plugin in one list of a framework.
func replace[T fwk.Plugin](f framework.Framework, list string, replacement func(T) T) error {
	return guard.Each(f, list, func(p T) T {
		if p.Name() != names.DynamicResources {
			return p
		}
		return replacement(p)
	})
}

// plugin is DynamicResources of one profile.
type plugin struct {
	*Sharing
	dra       fwk.SharedDRAManager
	preFilter fwk.PreFilterPlugin
	books     *Books // nil for none
}

// wait is what Sharing knows of a pod in its cycle.
type wait struct {
	// group is the one of PreFilter, in whose state the plugin has begun the group's data.
	group *group
	// claims are those of the pod that were not allocated when PreFilter read them.
	claims []*resourcev1.ResourceClaim
	// elsewhere says where the allocations can be used that siblings were promised.
	elsewhere []*nodeaffinity.NodeSelector
}

// Clone returns w, which does not change.
func (w *wait) Clone() fwk.StateData { return w }

// waitOf returns what a cycle knows; nil for a pod that shares no claim.
func waitOf(cs fwk.CycleState) *wait {
	data, err := cs.Read(waitKey)
	if err != nil {
		return nil
	}
	return data.(*wait)
}

// shares returns the gang of a pod that may share claims with siblings; "" for any other pod. A pod that also gets
// devices for extended resources may not: the plugin keeps these where no other attempt finds them.
func (p *plugin) shares(pod *corev1.Pod) string {
	if len(pod.Spec.ResourceClaims) == 0 || asksForMapped(p.dra.DeviceClassResolver(), pod) {
		return ""
	}
	return p.gangs.StartsWith(pod)
}

// grouped is a cycle that may be that of a group, as each cycle of kube-scheduler is.
type grouped interface {
	SetPodGroupSchedulingCycle(state fwk.PodGroupCycleState)
}

var _ grouped = (*framework.CycleState)(nil)

// with calls the plugin in the cycle of a group.
func (g *group) with(cs fwk.CycleState, call func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	cycle := cs.(grouped)
	cycle.SetPodGroupSchedulingCycle(g.state)
	defer cycle.SetPodGroupSchedulingCycle(nil) // for other plugins the pod is in a cycle of its own
	call()
}

// group returns the group of a gang; an empty one for a gang of which no member is reserved.
func (s *Sharing) group(key string) *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.groups[key]; g != nil {
		return g
	}
	return &group{key: key, pods: sets.New[types.UID](), state: framework.NewCycleState()}
}

// note adds a pod to the group of its gang: the one with reserved members, or that of its PreFilter. forget removes the
// pod.
func (s *Sharing) note(asked *group, uid types.UID) *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := cmp.Or(s.groups[asked.key], asked)
	g.pods.Insert(uid)
	s.groups[g.key], s.byPod[uid] = g, g
	return g
}

func (s *Sharing) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.byPod[uid]
	if g == nil {
		return
	}
	delete(s.byPod, uid)
	if g.pods.Delete(uid); g.pods.Len() == 0 {
		delete(s.groups, g.key)
	}
}

// ordered returns a pod as the plugin must see it, and what is to be known of it later. Filter notes the new
// allocations of a pod before those that siblings were promised, and Reserve gives them to the claims in the order of
// the pod: so the claims that siblings were promised come last.
func (p *plugin) ordered(pod *corev1.Pod, g *group) (*corev1.Pod, *wait, error) {
	var first, last []corev1.PodResourceClaim
	w := &wait{group: g}
	for i := range pod.Spec.ResourceClaims {
		c := pod.Spec.ResourceClaims[i]
		claim := p.claim(pod, &c)
		if claim == nil || claim.Status.Allocation != nil {
			first = append(first, c)
			continue
		}
		w.claims = append(w.claims, claim)
		promised := p.dra.ResourceClaims().GetPendingAllocation(claim.UID)
		if promised == nil {
			first = append(first, c)
			continue
		}
		last = append(last, c)
		if promised.NodeSelector != nil {
			selector, err := nodeaffinity.NewNodeSelector(promised.NodeSelector)
			if err != nil {
				return nil, nil, fmt.Errorf("node selector of the allocation of claim %s: %w", claim.Name, err)
			}
			w.elsewhere = append(w.elsewhere, selector)
		}
	}
	if len(last) > 0 {
		clone := *pod
		clone.Spec.ResourceClaims = slices.Concat(first, last)
		pod = &clone
	}
	return pod, w, nil
}

// claim returns a claim of a pod; nil for one that does not exist, which the plugin reports.
func (p *plugin) claim(pod *corev1.Pod, c *corev1.PodResourceClaim) *resourcev1.ResourceClaim {
	name, _, err := resourceclaim.Name(pod, c)
	if err != nil || name == nil {
		return nil
	}
	claim, err := p.dra.ResourceClaims().Get(pod.Namespace, *name)
	if err != nil {
		return nil
	}
	return claim
}

// ask runs PreFilter for a member of a group.
func (p *plugin) ask(ctx context.Context, cs fwk.CycleState, g *group, pod *corev1.Pod, nodes []fwk.NodeInfo,
) (result *fwk.PreFilterResult, status *fwk.Status) {
	pod, w, err := p.ordered(pod, g)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	cs.Write(waitKey, w)
	g.with(cs, func() { result, status = p.preFilter.PreFilter(ctx, cs, pod, nodes) })
	return result, status
}

type preFilter struct {
	fwk.PreFilterPlugin
	p *plugin
}

func (f *preFilter) PreFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo,
) (result *fwk.PreFilterResult, status *fwk.Status) {
	f.p.books.On(f.p.gangs.Trial(cs), func() {
		if key := f.p.shares(pod); key == "" {
			result, status = f.PreFilterPlugin.PreFilter(ctx, cs, pod, nodes)
		} else {
			result, status = f.p.ask(ctx, cs, f.p.group(key), pod, nodes)
		}
	})
	return result, status
}

type filter struct {
	fwk.FilterPlugin
	p *plugin
}

func (f *filter) Filter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	if w := waitOf(cs); w != nil {
		for _, s := range w.elsewhere {
			if !s.Match(node.Node()) { // the text is that of the plugin for a claim that is allocated
				return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "resourceclaim not available on the node")
			}
		}
	}
	return f.FilterPlugin.Filter(ctx, cs, pod, node)
}

// promisedClaims are claims that have devices in memory alone, with their allocations. They do not change.
type promisedClaims []*resourcev1.ResourceClaim

// Clone returns p.
func (p promisedClaims) Clone() fwk.StateData { return p }

// Promised returns the claims of a pod that have got devices in its cycle, or share those that a sibling has got.
func Promised(cs fwk.CycleState) []*resourcev1.ResourceClaim {
	data, err := cs.Read(promisedKey)
	if err != nil {
		return nil
	}
	return data.(promisedClaims)
}

type reserve struct {
	fwk.ReservePlugin
	p *plugin
}

// Reserve also refuses a node where the claims of a pod would get a card that the pod itself has of another plugin:
// both have chosen on their own.
func (r *reserve) Reserve(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	status := r.reserve(ctx, cs, pod, node)
	if !r.p.books.concern(pod) {
		return status
	}
	r.p.gangs.Follow(cs, node)
	if status.IsSuccess() {
		if text := r.p.books.contested(node, r.p.gangs.Trial(cs)); text != "" {
			return fwk.NewStatus(fwk.Unschedulable, text)
		}
		if list := r.p.books.claims.PendingOf(pod.UID, claimsOf(r.p.dra, pod)...); len(list) > 0 {
			cs.Write(promisedKey, promisedClaims(list))
		}
	}
	return status
}

func (r *reserve) reserve(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) (status *fwk.Status) {
	w := waitOf(cs)
	if w == nil {
		return r.ReservePlugin.Reserve(ctx, cs, pod, node)
	}
	g := r.p.note(w.group, pod.UID)
	g.with(cs, func() { status = r.ReservePlugin.Reserve(ctx, cs, pod, node) })
	return status
}

func (r *reserve) Unreserve(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) {
	if r.p.books.concern(pod) {
		defer r.p.gangs.Follow(cs, node)
	}
	if r.p.gangs.IsTrial(cs) {
		// The plugin removes the pod from its claims at the API server. A request with an ended context is
		// not sent.
		ended, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
		cancel()
		ctx = ended
	}
	r.p.mu.Lock()
	g := r.p.byPod[pod.UID]
	r.p.mu.Unlock()
	if g == nil {
		r.ReservePlugin.Unreserve(ctx, cs, pod, node)
		return
	}
	g.with(cs, func() { r.ReservePlugin.Unreserve(ctx, cs, pod, node) })
	r.p.forget(pod.UID)
}

type preBind struct {
	fwk.PreBindPlugin
	p *plugin
}

// PreBind lets the pods of each claim pass one after the other. Where the devices of a claim have to be made ready
// first, those behind the first pod wait as well.
func (b *preBind) PreBind(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	w := waitOf(cs)
	if w == nil || len(w.claims) == 0 {
		return b.PreBindPlugin.PreBind(ctx, cs, pod, node)
	}
	release, err := b.p.take(ctx, w.claims)
	defer release()
	if err == nil {
		err = b.p.refresh(ctx, cs, w, pod)
	}
	if err != nil {
		return fwk.AsStatus(err)
	}
	status := b.PreBindPlugin.PreBind(ctx, cs, pod, node)
	if status.IsSuccess() {
		b.p.forget(pod.UID)
	}
	return status
}

// take waits until no other pod writes one of the claims. release ends that this pod does.
func (s *Sharing) take(ctx context.Context, claims []*resourcev1.ResourceClaim) (release func(), err error) {
	order := make([]types.UID, len(claims))
	for i, c := range claims {
		order[i] = c.UID
	}
	slices.Sort(order) // two pods never wait for each other
	var taken []types.UID
	release = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, uid := range taken {
			close(s.writing[uid])
			delete(s.writing, uid)
		}
	}
	for _, uid := range slices.Compact(order) {
		for {
			s.mu.Lock()
			other := s.writing[uid]
			if other == nil {
				s.writing[uid] = make(chan struct{})
			}
			s.mu.Unlock()
			if other == nil {
				taken = append(taken, uid)
				break
			}
			select {
			case <-other:
			case <-ctx.Done():
				return release, fmt.Errorf("wait for the other pods of a claim: %w", context.Cause(ctx))
			}
		}
	}
	return release, nil
}

// refresh lets the plugin read the claims of a pod again if a sibling has written the allocation of one of them.
func (p *plugin) refresh(ctx context.Context, cs fwk.CycleState, w *wait, pod *corev1.Pod) error {
	stale := false
	for _, read := range w.claims {
		now, err := p.dra.ResourceClaims().Get(read.Namespace, read.Name)
		if err == nil && now.UID == read.UID && now.Status.Allocation != nil {
			stale = true
			// What is written counts from now on, whichever siblings have yet to be bound.
			p.dra.ResourceClaims().MaybeRemoveClaimPendingAllocation(read.UID, true)
		}
	}
	p.mu.Lock()
	g := p.byPod[pod.UID]
	p.mu.Unlock()
	if !stale || g == nil {
		return nil
	}
	fresh := framework.NewCycleState()
	if _, status := p.ask(ctx, fresh, g, pod, nil); !status.IsSuccess() {
		return fmt.Errorf("read the claims of pod %s/%s again: %w", pod.Namespace, pod.Name, status.AsError())
	}
	state, err := fresh.Read(pluginKey)
	if err != nil {
		return fmt.Errorf("read the claims of pod %s/%s again: %w", pod.Namespace, pod.Name, err)
	}
	cs.Write(pluginKey, state)
	return nil
}
