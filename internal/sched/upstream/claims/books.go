package claims

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/upstream/inside"
)

// Books is the claims of a cluster as the plugin reads them: a device whose card a pod has is allocated for the plugin,
// and what it promises to a claim is in the accounts of the nodes at once. Safe for concurrent use.
type Books struct {
	// SharedDRAManager has the claims, slices and classes alone.
	fwk.SharedDRAManager
	claims *kube.Claims
	// view is the account of a node. trial is the one of the attempt under way, nil for none.
	view  View
	trial atomic.Pointer[View]

	mu sync.Mutex // guards what follows
	// gathered is what GatherAllocatedState returned last, times how often it has returned something.
	gathered *structured.AllocatedState
	times    int
	// held has the devices of each node whose cards pods have, as of the account that they were read of.
	held map[string]*heldDevices
}

// View returns the account of a node.
type View = func(node string) *ledger.View

// heldDevices are the devices of a node whose cards pods have.
type heldDevices struct {
	// account and published are what they were read of.
	account   *ledger.View
	published []convert.Published
	ids       []structured.DeviceID
	// holders has a pod for each of them.
	holders []string
}

// Audit puts Books between the plugin and the claims of a framework, which must be asked about no pod yet. It returns
// nil for a framework without the plugin. known says which device is which card; nil leaves the framework as it is.
func Audit(f framework.Framework, known *kube.Claims, view View) (*Books, error) {
	var plugin *dynamicresources.DynamicResources
	for _, e := range f.EnqueueExtensions() {
		if p, ok := e.(*dynamicresources.DynamicResources); ok {
			plugin = p
		}
	}
	if plugin == nil || known == nil || f.SharedDRAManager() == nil {
		return nil, nil
	}
	b := Keep(f.SharedDRAManager(), known, view)
	ofFramework, err := inside.Field[fwk.SharedDRAManager](f, "sharedDRAManager")
	ofPlugin, other := inside.Field[fwk.SharedDRAManager](plugin, "draManager")
	if err := errors.Join(err, other); err != nil {
		return nil, err
	}
	if *ofPlugin == nil { // the feature is disabled
		return nil, nil
	}
	*ofFramework, *ofPlugin = b, b
	return b, nil
}

// Keep returns Books on claims.
func Keep(cluster fwk.SharedDRAManager, known *kube.Claims, view View) *Books {
	return &Books{SharedDRAManager: cluster, claims: known, view: view, held: map[string]*heldDevices{}}
}

// On calls f with the accounts of an attempt, nil for those of the nodes.
func (b *Books) On(trial View, f func()) {
	if b != nil && trial != nil {
		b.trial.Store(&trial)
		defer b.trial.Store(nil)
	}
	f()
}

// gathers returns what f has gathered of allocations; nil where it gathers nothing, or another one does meanwhile.
func (b *Books) gathers(f func()) *structured.AllocatedState {
	if b == nil {
		f()
		return nil
	}
	read := func() (*structured.AllocatedState, int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.gathered, b.times
	}
	_, before := read()
	f()
	if state, now := read(); now == before+1 {
		return state
	}
	return nil
}

// ResourceClaims returns the claims.
func (b *Books) ResourceClaims() fwk.ResourceClaimTracker {
	return &audited{b.SharedDRAManager.ResourceClaims(), b}
}

// ResourceSlices returns the slices, with the devices that their drivers no longer publish while claims have them.
func (b *Books) ResourceSlices() fwk.ResourceSliceLister {
	return &complete{b.SharedDRAManager.ResourceSlices(), b}
}

// complete are the slices of Books.
type complete struct {
	fwk.ResourceSliceLister
	b *Books
}

// ListWithDeviceTaintRules returns the slices. The allocator counts what a device uses of counters while its slice
// lists the device, so each lost one is listed beside others of its pool.
func (c *complete) ListWithDeviceTaintRules() ([]*resourcev1.ResourceSlice, error) {
	list, err := c.ResourceSliceLister.ListWithDeviceTaintRules()
	lost := c.b.claims.Lost()
	if err != nil || len(lost) == 0 {
		return list, err
	}
	list = slices.Clone(list)
	for i := range lost {
		if at := besideLost(list, &lost[i]); at >= 0 {
			slice := *list[at]
			slice.Spec.Devices = append(slices.Clip(slice.Spec.Devices), *lost[i].Device)
			list[at] = &slice
		}
	}
	return list, nil
}

// besideLost returns the index of the first slice by name with devices of the pool that a lost device was in, in its
// newest generation; -1 for none.
func besideLost(list []*resourcev1.ResourceSlice, lost *kube.LostDevice) int {
	found := -1
	for i, s := range list {
		if s.Spec.Driver != lost.Driver || s.Spec.Pool.Name != lost.Pool || len(s.Spec.Devices) == 0 ||
			ptr.Deref(s.Spec.NodeName, "") != ptr.Deref(lost.NodeName, "") {
			continue
		}
		if found < 0 || cmp.Or(cmp.Compare(s.Spec.Pool.Generation, list[found].Spec.Pool.Generation),
			cmp.Compare(list[found].Name, s.Name)) > 0 {
			found = i
		}
	}
	return found
}

// account returns the account of a node in the attempt under way.
func (b *Books) account(node string) *ledger.View {
	if trial := b.trial.Load(); trial != nil {
		return (*trial)(node)
	}
	return b.view(node)
}

// Held returns the devices of a node whose cards pods have, as DRIVER/POOL/DEVICE, each with a pod that has it.
func (b *Books) Held(node string) (names, pods []string) {
	held := b.read(node, b.claims.Published()[node])
	for _, id := range held.ids {
		names = append(names, id.String())
	}
	return names, held.holders
}

// read costs a comparison unless the account of the node or its devices have changed.
func (b *Books) read(node string, published []convert.Published) *heldDevices {
	v := b.account(node)
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.held[node]
	if last != nil && last.account == v && len(last.published) == len(published) &&
		(len(published) == 0 || &last.published[0] == &published[0]) {
		return last
	}
	now := &heldDevices{account: v, published: published}
	now.fill()
	b.held[node] = now
	return now
}

// fill reads who has the cards of the devices. Where it is not known which cards a pod has, it may be any.
func (h *heldDevices) fill() {
	if h.account == nil || h.account.Devices() == nil {
		return
	}
	users, anyone := h.account.Devices().Users(), h.account.AnyUnknownPod()
	for i := range h.published {
		hardware := &h.published[i].Hardware
		pods, found := users.Of(hardware)
		switch {
		case len(pods) > 0:
			h.holders = append(h.holders, kube.HolderName(h.account, pods[0]))
		case found && anyone:
			h.holders = append(h.holders, "a pod whose devices are not known")
		default:
			continue
		}
		h.ids = append(h.ids, idOf(hardware))
	}
}

// idOf returns the name of a device in the form of the allocator.
func idOf(h *device.Hardware) structured.DeviceID {
	driver, rest, _ := strings.Cut(h.Name, "/")
	last := strings.LastIndexByte(rest, '/') // pools may have slashes
	return structured.MakeDeviceID(driver, rest[:last], rest[last+1:])
}

// each calls f with each device whose card a pod has.
func (b *Books) each(f func(structured.DeviceID)) {
	if !b.claims.AnyCards() {
		return
	}
	for node, published := range b.claims.Published() {
		for _, id := range b.read(node, published).ids {
			f(id)
		}
	}
}

// AnyHeld reports whether pods have a card that a driver publishes.
func (b *Books) AnyHeld() bool {
	found := false
	if b != nil {
		b.each(func(structured.DeviceID) { found = true })
	}
	return found
}

// audited are the claims of Books.
type audited struct {
	fwk.ResourceClaimTracker
	b *Books
}

// ListAllAllocatedDevices returns the devices that claims or pods have.
func (a *audited) ListAllAllocatedDevices() (sets.Set[structured.DeviceID], error) {
	all, err := a.ResourceClaimTracker.ListAllAllocatedDevices()
	if err == nil {
		a.b.each(func(id structured.DeviceID) { all.Insert(id) }) // the set is the caller's
	}
	return all, err
}

// GatherAllocatedState returns the devices that claims or pods have, and the shares of devices. A device whose card a
// pod has also uses up its counters, so that no partition of the card is given either.
func (a *audited) GatherAllocatedState() (*structured.AllocatedState, error) {
	state, err := a.ResourceClaimTracker.GatherAllocatedState()
	if err == nil {
		a.b.each(func(id structured.DeviceID) { state.AllocatedDevices.Insert(id) }) // the sets are the caller's
		// Of one with shares, none is given any more.
		for _, lost := range a.b.claims.Lost() {
			state.AllocatedDevices.Insert(structured.MakeDeviceID(lost.Driver, lost.Pool, lost.Device.Name))
		}
		for _, claim := range a.b.claims.Negative() {
			ignoreNegative(state.AggregatedCapacity, claim)
		}
		a.b.mu.Lock()
		a.b.gathered, a.b.times = state, a.b.times+1
		a.b.mu.Unlock()
	}
	return state, err
}

// ignoreNegative makes negative shares of a claim count as none: they would let others have more than there is.
func ignoreNegative(sums structured.ConsumedCapacityCollection, claim *resourcev1.ResourceClaim) {
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		if r.ShareID == nil || ptr.Deref(r.AdminAccess, false) {
			continue // which count for no sum
		}
		for name, amount := range r.ConsumedCapacity {
			if amount.Sign() < 0 {
				amount.Neg()
				sums.Insert(structured.NewDeviceConsumedCapacity(structured.MakeDeviceID(r.Driver, r.Pool, r.Device),
					map[resourcev1.QualifiedName]resource.Quantity{name: amount}))
			}
		}
	}
}

// SignalClaimPendingAllocation puts what a claim is promised into the accounts.
func (a *audited) SignalClaimPendingAllocation(uid types.UID, claim *resourcev1.ResourceClaim) error {
	err := a.ResourceClaimTracker.SignalClaimPendingAllocation(uid, claim)
	if pending := a.GetPendingAllocation(uid); err == nil && pending != nil {
		promised := *claim // a sibling may have been first
		promised.Status.Allocation = pending
		a.b.claims.Pend(&promised)
	}
	return err
}

// MaybeRemoveClaimPendingAllocation takes it out of the accounts where no other pod shares it.
func (a *audited) MaybeRemoveClaimPendingAllocation(uid types.UID, force bool) bool {
	removed := a.ResourceClaimTracker.MaybeRemoveClaimPendingAllocation(uid, force)
	if removed {
		a.b.claims.Unpend(uid)
	}
	return removed
}

// AssumeClaimAfterAPICall puts what was written into the accounts before its event comes.
func (a *audited) AssumeClaimAfterAPICall(claim *resourcev1.ResourceClaim) error {
	var err error
	a.b.claims.Written(claim, func() {
		if err = a.ResourceClaimTracker.AssumeClaimAfterAPICall(claim); err == nil {
			a.b.claims.PutClaim(claim)
		}
	})
	return err
}

// AssumedClaimRestore makes the accounts follow the events alone again.
func (a *audited) AssumedClaimRestore(namespace, name string) {
	a.ResourceClaimTracker.AssumedClaimRestore(namespace, name)
	if claim, err := a.Get(namespace, name); err == nil {
		a.b.claims.Restore(claim)
	}
}

// concern reports whether a pod has claims, or some are promised: also for extended resources, whose claims no pod
// names.
func (b *Books) concern(pod *corev1.Pod) bool {
	return b != nil && (len(pod.Spec.ResourceClaims) > 0 || b.claims.AnyPending())
}

// contested returns why a pod cannot have its claims on a node: a pod, perhaps itself, has a card of them; "" for no
// reason. Both holders are named.
func (b *Books) contested(node string, trial View) (text string) {
	b.On(trial, func() { text = kube.Contested(b.account(node), b.claims.Pending(node)) })
	return text
}
