package claims

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"

	"github.com/tenon-project/tenon/internal/core/claim"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/upstream/inside"
)

// planKey is where a Choice has its plan of a pod.
const planKey fwk.StateKey = "TenonClaimPlan"

// Rest is what a Choice asks about the rest of a pod: its CPUs, its memory, and devices that it gets without claims.
type Rest interface {
	// Asked returns the account of a node that the pod of a cycle finds, and what the pod asks of it; nil for a pod
	// that asks nothing that depends on NUMA nodes.
	Asked(cs fwk.CycleState, node string) (*ledger.View, *place.Request)
	// Claim places the rest beside devices on NUMA nodes, of which these need spread on an empty machine.
	Claim(cs fwk.CycleState, node string, nodes topo.NodeSet, spread int)
	// Trial returns the accounts of a trial; nil for a cycle that is none.
	Trial(fwk.CycleState) View
	// AsksForDevices returns what a pod asks of a node; nil for one that asks for no devices without claims.
	AsksForDevices(*corev1.Pod) *place.Request
	// Offered returns what the pod of a cycle would get without claims of a node with an account; false where it
	// does not fit.
	Offered(cs fwk.CycleState, pod *corev1.Pod, node string, v *ledger.View) (ledger.Entry, bool)
}

// Choose lets the plugin in a framework choose devices together with the rest of each pod. It does nothing where the
// plugin is not enabled. Share comes after it.
func Choose(f framework.Framework, rest Rest) error {
	gate := utilfeature.DefaultFeatureGate
	if gate.Enabled(features.DRANodeAllocatableResources) || f.SharedDRAManager() == nil {
		return nil // devices may count as CPU and memory of the node: the plugin alone knows how
	}
	fts := feature.NewSchedulerFeaturesFromGates(gate)
	c := &choice{others: rest, dra: f.SharedDRAManager(), nodes: f.SnapshotSharedLister}
	c.features = dynamicresources.AllocatorFeatures(fts)
	c.selectors = cel.NewCache(selectorsKept, cel.Features{
		EnableConsumableCapacity: fts.EnableDRAConsumableCapacity,
		EnableListTypeAttributes: fts.EnableDRAListTypeAttributes,
	})
	return cmp.Or(
		replace(f, "preFilterPlugins", func(p fwk.PreFilterPlugin) fwk.PreFilterPlugin { return &chosenFirst{p, c} }),
		replace(f, "filterPlugins", func(p fwk.FilterPlugin) fwk.FilterPlugin {
			c.filter = p
			return &chosenFilter{p, c}
		}),
		replace(f, "reservePlugins", func(p fwk.ReservePlugin) fwk.ReservePlugin { return &chosenReserve{p, c} }),
	)
}

// selectorsKept is the number of compiled selectors that are kept.
const selectorsKept = 64

// choice chooses the devices of claims in one profile.
type choice struct {
	others    Rest
	dra       fwk.SharedDRAManager
	nodes     func() fwk.SharedLister
	features  structured.Features
	selectors *cel.Cache
	filter    fwk.FilterPlugin // upstream's
}

// plan is what a choice knows of a pod in its cycle.
type plan struct {
	*choice
	// cardsAlone: the pod gets devices without claims alone, and the plugin has nothing to say of it. both: it gets
	// some by claims and some without, and drivers publish cards of either kind.
	cardsAlone, both bool
	// claims are those of the pod. given are the devices of those that are allocated or promised.
	claims []*resourcev1.ResourceClaim
	given  []resourcev1.DeviceRequestAllocationResult

	once sync.Once // sets the rest, which then does not change
	// slices are those of the cluster, state is what is allocated, nil where it could not be read. It is that of the
	// plugin, which does not change it, where the plugin has read it.
	slices []*resourcev1.ResourceSlice
	state  *structured.AllocatedState
	// taken has the devices that are allocated as a whole or in part.
	taken sets.Set[structured.DeviceID]

	asked    sync.Once // sets promised
	promised []structured.DeviceID

	counted sync.Once // sets the census
	census
}

// Clone returns p: it is the same for all nodes.
func (p *plan) Clone() fwk.StateData { return p }

// planOf returns the plan of a cycle; nil for a pod that gets no device by a claim, or for an extended resource.
func planOf(cs fwk.CycleState) *plan {
	if p := anyPlanOf(cs); p != nil && !p.cardsAlone {
		return p
	}
	return nil
}

// anyPlanOf is planOf also for a pod that gets devices without claims, of which drivers publish some; nil for any
// other.
func anyPlanOf(cs fwk.CycleState) *plan {
	data, err := cs.Read(planKey)
	if err != nil {
		return nil
	}
	return data.(*plan)
}

// read reads what the plugin has read for its own allocator. Where claims are changing meanwhile, no other devices are
// proposed than those of the plugin.
func (p *plan) read() {
	p.once.Do(func() {
		p.slices, _ = p.dra.ResourceSlices().ListWithDeviceTaintRules()
		state := p.state
		if state == nil {
			var err error
			if state, err = p.dra.ResourceClaims().GatherAllocatedState(); err != nil || state == nil {
				return
			}
		}
		p.state, p.taken = state, state.AllocatedDevices.Clone()
		for shared := range state.AllocatedSharedDeviceIDs {
			p.taken.Insert(structured.DeviceID{Driver: shared.Driver, Pool: shared.Pool, Device: shared.Device})
		}
		for id := range state.AggregatedCapacity {
			p.taken.Insert(id)
		}
	})
}

// chosenFirst puts a chooser in the place of the allocator that the plugin has made for a pod.
type chosenFirst struct {
	fwk.PreFilterPlugin
	c *choice
}

// PreFilter also notes what the claims of the pod have already.
func (f *chosenFirst) PreFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	var result *fwk.PreFilterResult
	var status *fwk.Status
	books, _ := f.c.dra.(*Books)
	gathered := books.gathers(func() { result, status = f.PreFilterPlugin.PreFilter(ctx, cs, pod, nodes) })
	if status.IsSkip() && f.c.sharesCards() && f.c.others.AsksForDevices(pod) != nil {
		cs.Write(planKey, &plan{choice: f.c, cardsAlone: true})
		return result, nil // held pods may have claims that need the same cards
	}
	if !status.IsSuccess() {
		return result, status
	}
	p := &plan{choice: f.c, claims: claimsOf(f.c.dra, pod)}
	p.both = f.c.sharesCards() && f.c.others.AsksForDevices(pod) != nil
	state, err := cs.Read(pluginKey)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	allocator, err := inside.Field[structured.Allocator](state, "allocator")
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if *allocator != nil { // the plugin has gathered what is allocated
		*allocator = &chooser{*allocator}
		p.state = gathered
	}
	if f.c.others.Trial(cs) != nil {
		p.read() // while the accounts are those of the trial
	}
	p.given = f.c.given(p.claims)
	cs.Write(planKey, p)
	return result, status
}

// given returns the devices of claims that are allocated or promised.
func (c *choice) given(claims []*resourcev1.ResourceClaim) (list []resourcev1.DeviceRequestAllocationResult) {
	for _, own := range claims {
		if a := cmp.Or(own.Status.Allocation, c.dra.ResourceClaims().GetPendingAllocation(own.UID)); a != nil {
			list = append(list, a.Devices.Results...)
		}
	}
	return list
}

// chosenFilter refuses nodes where a topology policy does not allow the devices beside the rest of the pod.
type chosenFilter struct {
	fwk.FilterPlugin
	c *choice
}

// Filter asks the plugin first: a node without free devices is refused for them.
func (f *chosenFilter) Filter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
) *fwk.Status {
	p := anyPlanOf(cs)
	if p == nil {
		return f.FilterPlugin.Filter(ctx, cs, pod, node)
	}
	ctx = inOrderOf(ctx, cs)
	var status *fwk.Status
	switch _, err := cs.Read(aheadKey); {
	case err == nil, p.cardsAlone: // the node was asked already, or the plugin has no answer
	default:
		status = f.filter(ctx, cs, p, pod, node)
	}
	if status.IsSuccess() && (p.both || len(startersOf(cs)) > 0) {
		return p.refusal(ctx, cs, pod, node.Node())
	}
	return status
}

// filter answers for a node that is kept for no pod with claims.
func (f *chosenFilter) filter(ctx context.Context, cs fwk.CycleState, p *plan, pod *corev1.Pod, node fwk.NodeInfo,
) *fwk.Status {
	if lacks := p.tooMany(pod, node.Node()); lacks != nil {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(lacks)
	}
	q := p.ask(cs, node.Node(), false, false)
	if q == nil {
		return p.explained(p.resolvable(f.FilterPlugin.Filter(ctx, cs, pod, node), node), pod, node.Node())
	}
	status := f.FilterPlugin.Filter(context.WithValue(ctx, questionKey{}, q), cs, pod, node)
	if !status.IsSuccess() {
		return p.explained(p.resolvable(status, node), pod, node.Node())
	}
	if q.checkGiven(); q.rest.Required && !q.choice.Aligned {
		return fwk.NewStatus(fwk.Unschedulable).WithError(q.refusal())
	}
	return status
}

// chosenReserve chooses the devices of a pod on the node that it gets.
type chosenReserve struct {
	fwk.ReservePlugin
	c *choice
}

// Reserve lets the plugin filter the node once more, which then reserves the devices that are chosen now.
func (r *chosenReserve) Reserve(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	p := planOf(cs)
	if p == nil {
		return r.ReservePlugin.Reserve(ctx, cs, pod, node)
	}
	ctx = inOrderOf(ctx, cs)
	info, err := r.c.nodes().NodeInfos().Get(node)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if q := p.ask(cs, info.Node(), true, false); q != nil {
		// If it fails now, the devices of the last time are reserved.
		r.c.filter.Filter(context.WithValue(ctx, questionKey{}, q), cs, pod, info)
		if q.checkGiven(); q.view != nil {
			r.c.others.Claim(cs, node, q.choice.Nodes, q.spread)
		}
	}
	return r.ReservePlugin.Reserve(ctx, cs, pod, node)
}

// poolUnusable is in the error of an allocator that a pool of the node is invalid or incomplete, while a request asks
// for all devices. Other nodes may have all.
const poolUnusable = "asks for all devices, but resource pool"

// chooser is the allocator of the plugin, which gives the first devices that satisfy the claims of a pod. Where its
// caller has a question, it gives better ones.
type chooser struct{ structured.Allocator }

// Allocate returns an answer of an allocator of Kubernetes, or nil.
func (c *chooser) Allocate(ctx context.Context, node *corev1.Node, claims []*resourcev1.ResourceClaim,
) ([]resourcev1.AllocationResult, error) {
	claims = inOrder(ctx, claims)
	q, asked := ctx.Value(questionKey{}).(*question)
	if asked && q.freed { // what the allocator knows as allocated is not all that is
		if first := q.narrowed(ctx, claims, make([]bool, len(q.site.Devices))); len(first) == len(claims) {
			return q.choose(ctx, claims, first), nil
		}
		return nil, nil
	}
	first, err := c.Allocator.Allocate(ctx, node, claims)
	if err != nil && strings.Contains(err.Error(), poolUnusable) {
		err = fmt.Errorf("%w%w", err, structured.ErrFailedAllocationOnNode) // whose text is empty
	}
	if !asked || err != nil || len(first) == 0 || len(first) != len(claims) {
		return first, err
	}
	return q.choose(ctx, claims, first), nil
}

// question is what a call of the plugin is to choose on a node. It travels in the context, which reaches the chooser.
type question struct {
	*plan
	node *corev1.Node
	site *site
	// view is the account of the node, asked is what else the pod asks of it; nil for nothing.
	view  *ledger.View
	asked *place.Request
	rest  claim.Rest
	// state is what is allocated: that of the plan, or freed of what victims have.
	state *structured.AllocatedState
	freed bool
	// spread is the number of NUMA nodes that the devices need on an empty machine.
	spread int
	// best: the best devices are wanted, and not just some with which the rest fits.
	best bool
	// choice is the answer once settled is true.
	choice  claim.Choice
	settled bool
	// names are the devices of the answer, for texts.
	names []string
}

type questionKey struct{}

// ask makes the question about a node; nil where nothing is to be chosen. Unless best or always, that is so where no
// topology policy requires an alignment, and no device of a victim is free.
func (p *plan) ask(cs fwk.CycleState, node *corev1.Node, best, always bool) *question {
	v, r := p.others.Asked(cs, node.Name)
	gone := victimsOf(cs)
	freed := p.without(gone)
	free := freed != nil || gone.haveCards(p.choice)
	if !always && !free && (v == nil || !best && (r == nil || !r.AlignsClaims(v))) {
		return nil
	}
	p.read()
	q := &question{plan: p, node: node, best: best, asked: r, view: v, state: p.state, site: p.siteOf(node.Name, v)}
	if freed != nil {
		q.state = freed
	}
	if q.freed = free && q.state != nil; q.freed {
		if c := p.cards(cs, node.Name); c != nil {
			q.state = copied(q.state)
			c.regain(q.state, gone)
		}
	}
	for i := range p.given {
		d := &p.given[i]
		if at, known := q.site.index[structured.MakeDeviceID(d.Driver, d.Pool, d.Device)]; known {
			q.rest.Given |= q.site.Devices[at].Nodes
			q.names = append(q.names, convert.DeviceName(d.Driver, d.Pool, d.Device))
		}
	}
	return q
}

// beside sets what the rest of the pod needs beside devices.
func (q *question) beside(a claim.Answer) {
	q.spread = max(q.site.Fewest(a), q.rest.Given.Len())
	if q.asked == nil {
		return
	}
	if fits, required := place.BesideClaims(q.view, q.asked, q.spread); fits != nil {
		q.rest.Room, q.rest.Required = claim.RoomFunc(fits), required
		q.rest.Nodes = q.view.Machine().NodesWithCPUs()
	}
}

// checkGiven answers for a pod whose claims are all allocated.
func (q *question) checkGiven() {
	if !q.settled {
		q.beside(nil)
		q.rest.Fixed, q.settled = true, true
		q.choice = claim.Align(&q.site.Node, &q.rest, nil, nil)
	}
}

// choose returns the best of the answers that the allocator gives, of which first is one.
func (q *question) choose(ctx context.Context, claims []*resourcev1.ResourceClaim, first []resourcev1.AllocationResult,
) []resourcev1.AllocationResult {
	answers := [][]resourcev1.AllocationResult{first}
	ask := func(hidden []bool) (claim.Answer, bool) {
		result := q.narrowed(ctx, claims, hidden)
		answers = append(answers, result)
		if len(result) != len(claims) || isLater(claims, result, first) {
			return nil, false
		}
		return q.answer(claims, result), true
	}
	a := q.answer(claims, first)
	q.beside(a)
	q.rest.Fixed = anyAlternativeForAll(claims)
	if q.best {
		q.choice = claim.Choose(&q.site.Node, &q.rest, a, ask)
	} else {
		q.choice = claim.Align(&q.site.Node, &q.rest, a, ask)
	}
	q.settled = true
	chosen := answers[q.choice.Asked]
	for i := range chosen {
		for _, d := range chosen[i].Devices.Results {
			q.names = append(q.names, convert.DeviceName(d.Driver, d.Pool, d.Device))
		}
	}
	return chosen
}

// narrowed asks an allocator without some devices of the node. The slices remain: without one, its pool would not be
// complete.
func (q *question) narrowed(ctx context.Context, claims []*resourcev1.ResourceClaim, hidden []bool,
) []resourcev1.AllocationResult {
	if q.state == nil {
		return nil
	}
	narrowed := slices.Clone(q.slices)
	for i, devices := range q.site.bySlice {
		if !slices.ContainsFunc(devices, func(at int) bool { return at >= 0 && hidden[at] }) {
			continue
		}
		slice := *q.slices[i]
		slice.Spec.Devices = nil
		for j, at := range devices {
			if at < 0 || !hidden[at] {
				slice.Spec.Devices = append(slice.Spec.Devices, q.slices[i].Spec.Devices[j])
			}
		}
		narrowed[i] = &slice
	}
	a, err := structured.NewAllocator(ctx, q.features, *q.state, q.dra.DeviceClasses(), narrowed, q.selectors)
	if err != nil {
		return nil
	}
	result, err := a.Allocate(ctx, q.node, claims)
	if err != nil {
		return nil
	}
	return result
}

// answer returns the devices of results for claims.
func (q *question) answer(claims []*resourcev1.ResourceClaim, results []resourcev1.AllocationResult) (a claim.Answer) {
	for i := range results {
		for j := range results[i].Devices.Results {
			d := &results[i].Devices.Results[j]
			pick := claim.Pick{Device: -1, Shared: d.ShareID != nil || d.AdminAccess != nil && *d.AdminAccess}
			if at, known := q.site.index[structured.MakeDeviceID(d.Driver, d.Pool, d.Device)]; known {
				pick.Device = at
			}
			for k := range claims[i].Spec.Devices.Requests {
				r := &claims[i].Spec.Devices.Requests[k]
				pick.All = pick.All || r.Name == d.Request && r.Exactly != nil &&
					r.Exactly.AllocationMode == resourcev1.DeviceAllocationModeAll
			}
			a = append(a, pick)
		}
	}
	return a
}

// anyAlternativeForAll reports whether one of several alternatives asks for all devices.
func anyAlternativeForAll(claims []*resourcev1.ResourceClaim) bool {
	for _, c := range claims {
		for i := range c.Spec.Devices.Requests {
			for _, sub := range c.Spec.Devices.Requests[i].FirstAvailable {
				if sub.AllocationMode == resourcev1.DeviceAllocationModeAll {
					return true
				}
			}
		}
	}
	return false
}

// isLater reports whether results have a later alternative than others for the first request that differs in it.
func isLater(claims []*resourcev1.ResourceClaim, results, others []resourcev1.AllocationResult) bool {
	for i, c := range claims {
		for j := range c.Spec.Devices.Requests {
			r := &c.Spec.Devices.Requests[j]
			if a, b := alternative(r, &results[i]), alternative(r, &others[i]); a != b {
				return a > b
			}
		}
	}
	return false
}

// alternative is the index of the alternative that a result has for a request; 0 for a request without any.
func alternative(r *resourcev1.DeviceRequest, result *resourcev1.AllocationResult) int {
	for i := range r.FirstAvailable {
		name := r.Name + "/" + r.FirstAvailable[i].Name
		if slices.ContainsFunc(result.Devices.Results, func(d resourcev1.DeviceRequestAllocationResult) bool {
			return d.Request == name
		}) {
			return i
		}
	}
	return 0
}

// misaligned is the refusal of a node where a topology policy does not allow the devices beside the rest of the pod.
type misaligned struct{ detail string }

// devicesNamed is the number of devices that a refusal names.
const devicesNamed = 4

// refusal says where the devices are, and what each NUMA node has for the rest.
func (q *question) refusal() *misaligned {
	text := strings.Join(q.names[:min(len(q.names), devicesNamed)], ", ")
	if more := len(q.names) - devicesNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if nodes := q.choice.Nodes; nodes != 0 && q.view.Machine() != nil {
		text += fmt.Sprintf(" on NUMA node %s", commas(q.view.Machine().NodeIDs(nodes)))
	}
	if a, ok := place.Align(q.view, q.asked); ok {
		for i := range a.Rows {
			text += fmt.Sprintf("; %s: %d requested, NUMA nodes have %s", a.Rows[i].Resource, a.Rows[i].Need,
				commas(a.Rows[i].Have))
		}
	}
	return &misaligned{text}
}

func commas[T any](list []T) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(list), "[]"), " ", ", ")
}

// Error returns the reason with its detail.
func (m *misaligned) Error() string { return why.ClaimNotAligned.Entry().Text + ": " + m.detail }

// Finding returns the reason, for explanations.
func (m *misaligned) Finding() why.Finding {
	return why.Finding{Reason: why.Reason{Code: why.ClaimNotAligned}, Detail: m.detail}
}
