package claims

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/core/claim"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Imagined is the claims of a cluster with those that the pods of a question would get. It changes nothing of what is
// below it. Safe for concurrent use.
type Imagined struct {
	// SharedDRAManager has the claims, slices and classes as they are, with the cards that pods of the question have.
	fwk.SharedDRAManager
	books *Books // nil where accounts do not count; its accounts are those of the question

	mu sync.RWMutex // guards what follows
	// granted are the claims that pods of the question would get, changed those that it has changed, created those of
	// pods that it adds, by namespace/name. users are the pods of the question that use a claim, gone the pods that it
	// removes, and free the claims whose last pod it has removed.
	granted, changed map[types.UID]*resourcev1.ResourceClaim
	created          map[string]*resourcev1.ResourceClaim
	users            map[types.UID][]types.UID
	gone, free       map[types.UID]bool
}

// Imagine returns the claims as they are. known says which device is which card; nil for claims alone.
func Imagine(cluster fwk.SharedDRAManager, known *kube.Claims) *Imagined {
	i := &Imagined{
		SharedDRAManager: cluster, granted: map[types.UID]*resourcev1.ResourceClaim{},
		changed: map[types.UID]*resourcev1.ResourceClaim{}, created: map[string]*resourcev1.ResourceClaim{},
		users: map[types.UID][]types.UID{}, gone: map[types.UID]bool{}, free: map[types.UID]bool{},
	}
	if cluster != nil && known != nil {
		i.books = Keep(cluster, known, nil)
		i.SharedDRAManager = i.books
	}
	return i
}

// Reset forgets what pods would get, and begins a question with these accounts.
func (i *Imagined) Reset(accounts View) {
	if i.books != nil {
		i.books.trial.Store(&accounts)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.granted)
	clear(i.changed)
	clear(i.created)
	clear(i.users)
	clear(i.gone)
	clear(i.free)
}

// Arrive creates the claims of a pod that a question adds, as the controller would, and returns them: a claim for each
// template that has none for the pod yet. The spec is that of the claim that a like pod has of the template, nil for
// none, or else that of the template, which read returns.
func (i *Imagined) Arrive(pod, like *corev1.Pod, read func(name string) (*resourcev1.ResourceClaimTemplate, error),
) (own []*resourcev1.ResourceClaim, err error) {
	if i.SharedDRAManager == nil {
		return nil, nil
	}
	for k := range pod.Spec.ResourceClaims {
		ref := &pod.Spec.ResourceClaims[k]
		if _, _, err := resourceclaim.Name(pod, ref); err == nil || ref.ResourceClaimTemplateName == nil {
			continue
		}
		c := &resourcev1.ResourceClaim{}
		if known := i.ofTemplate(like, ref); known != nil {
			c.Spec = known.Spec
		} else if t, err := read(*ref.ResourceClaimTemplateName); err != nil {
			return nil, fmt.Errorf("spec.resourceClaims[%d]: %w", k, err)
		} else {
			c.Spec = t.Spec.Spec
		}
		c.Name, c.Namespace = string(pod.UID)+"-"+ref.Name, pod.Namespace
		c.UID = types.UID(c.Name)
		c.OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod")),
		}
		i.mu.Lock()
		i.created[c.Namespace+"/"+c.Name] = c
		i.mu.Unlock()
		own = append(own, c)
		// The list may be that of a pod that this one was copied from.
		pod.Status.ResourceClaimStatuses = append(slices.Clip(pod.Status.ResourceClaimStatuses),
			corev1.PodResourceClaimStatus{Name: ref.Name, ResourceClaimName: &c.Name})
	}
	return own, nil
}

// ofTemplate returns the claim that a pod has of the template of a reference; nil for none.
func (i *Imagined) ofTemplate(pod *corev1.Pod, ref *corev1.PodResourceClaim) *resourcev1.ResourceClaim {
	if pod == nil {
		return nil
	}
	name, _, err := resourceclaim.Name(pod, ref)
	if err != nil || name == nil {
		return nil
	}
	c, err := i.ResourceClaims().Get(pod.Namespace, *name)
	if err != nil {
		return nil
	}
	return c
}

// Use notes that a pod of the question uses its claims: they are not free when the pods of the cluster are gone.
func (i *Imagined) Use(pod *corev1.Pod) {
	if i.SharedDRAManager == nil {
		return
	}
	for _, c := range i.heldBy(pod) {
		i.mu.Lock()
		i.users[c.UID] = append(i.users[c.UID], pod.UID)
		i.mu.Unlock()
	}
}

// heldBy is heldBy with the claim that a pod of the question would get for its extended resources.
func (i *Imagined) heldBy(pod *corev1.Pod) []*resourcev1.ResourceClaim {
	list := heldBy(i, pod)
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, c := range i.granted {
		if convert.IsMade(c) && metav1.IsControlledBy(c, pod) {
			list = append(list, c)
		}
	}
	return list
}

// Leave removes a pod. A claim whose last pod it was is free, and take takes it out of the accounts of its nodes.
func (i *Imagined) Leave(pod *corev1.Pod, take func(node, uid string)) {
	if i.SharedDRAManager == nil {
		return
	}
	for _, c := range i.heldBy(pod) {
		if c.Status.Allocation == nil || !i.leave(pod.UID, c) || i.books == nil {
			continue
		}
		for node, e := range i.books.claims.Entries(c) {
			take(node, e.UID)
		}
	}
}

// leave removes a pod of a claim, and reports whether the claim is free.
func (i *Imagined) leave(pod types.UID, c *resourcev1.ResourceClaim) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.gone[pod] = true
	users := slices.Concat(reservedFor(c), i.users[c.UID])
	if !claim.EndsWith(users, func(uid types.UID) bool { return i.gone[uid] }) {
		return false
	}
	delete(i.users, c.UID)
	if i.granted[c.UID] != nil {
		delete(i.granted, c.UID)
	} else {
		i.free[c.UID] = true
	}
	return true
}

// Change replaces a claim until the next question.
func (i *Imagined) Change(claim *resourcev1.ResourceClaim) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.changed[claim.UID] = claim
}

// Open returns the claims of a pod that have no devices, and the names of all classes.
func (i *Imagined) Open(pod *corev1.Pod) (claims []*resourcev1.ResourceClaim, classes []string) {
	if i.SharedDRAManager == nil || len(pod.Spec.ResourceClaims) == 0 {
		return nil, nil
	}
	for _, c := range claimsOf(i, pod) {
		if c.Status.Allocation == nil {
			claims = append(claims, c)
		}
	}
	all, _ := i.DeviceClasses().List() // without it, no other class is tried
	for _, class := range all {
		classes = append(classes, class.Name)
	}
	slices.Sort(classes)
	return claims, classes
}

// Charge puts the cards that pods would get by claims into the accounts of the question. It returns why that cannot be:
// a pod has one of them too.
func (i *Imagined) Charge(put func(node string, e ledger.Entry)) (contested string) {
	if i.books == nil {
		return ""
	}
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, uid := range slices.Sorted(maps.Keys(i.granted)) {
		entries := i.books.claims.Entries(i.granted[uid])
		for _, node := range slices.Sorted(maps.Keys(entries)) {
			put(node, entries[node])
			if text := kube.Contested(i.books.account(node), []ledger.Entry{entries[node]}); text != "" {
				return text
			}
		}
	}
	return ""
}

// ResourceClaims returns the claims with what pods would get.
func (i *Imagined) ResourceClaims() fwk.ResourceClaimTracker {
	return &imagined{i.SharedDRAManager.ResourceClaims(), i}
}

// imagined are the claims of an Imagined. A claim that a pod of the question would get is an allocated one, and so is
// one that the scheduler has reserved and not written yet.
type imagined struct {
	fwk.ResourceClaimTracker
	i *Imagined
}

// seen returns a claim as the question sees it.
func (c *imagined) seen(claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	c.i.mu.RLock()
	granted, changed, free := c.i.granted[claim.UID], c.i.changed[claim.UID], c.i.free[claim.UID]
	c.i.mu.RUnlock()
	switch {
	case granted != nil:
		return granted
	case free:
		claim = claim.DeepCopy()
		claim.Status = resourcev1.ResourceClaimStatus{}
		return claim
	case claim.Status.Allocation != nil:
		return claim
	case changed != nil:
		return changed
	}
	if pending := c.ResourceClaimTracker.GetPendingAllocation(claim.UID); pending != nil {
		claim = claim.DeepCopy()
		claim.Status.Allocation = pending
	}
	return claim
}

// Get returns a claim.
func (c *imagined) Get(namespace, name string) (*resourcev1.ResourceClaim, error) {
	c.i.mu.RLock()
	claim := c.i.created[namespace+"/"+name]
	c.i.mu.RUnlock()
	if claim == nil {
		var err error
		if claim, err = c.ResourceClaimTracker.Get(namespace, name); err != nil {
			return nil, err
		}
	}
	return c.seen(claim), nil
}

// released calls f with the claims of the cluster whose devices are free in the question.
func (c *imagined) released(f func(*resourcev1.ResourceClaim)) error {
	c.i.mu.RLock()
	free := maps.Clone(c.i.free)
	c.i.mu.RUnlock()
	if len(free) == 0 {
		return nil
	}
	all, err := c.ResourceClaimTracker.List()
	for _, claim := range all {
		if free[claim.UID] && claim.Status.Allocation != nil {
			f(claim)
		}
	}
	return err
}

// List returns all claims.
func (c *imagined) List() ([]*resourcev1.ResourceClaim, error) {
	all, err := c.ResourceClaimTracker.List()
	all = slices.Clone(all)
	for k, claim := range all {
		all[k] = c.seen(claim)
	}
	return all, err
}

// ListAllAllocatedDevices returns the devices that claims have, whole or in part.
func (c *imagined) ListAllAllocatedDevices() (sets.Set[structured.DeviceID], error) {
	all, err := c.ResourceClaimTracker.ListAllAllocatedDevices()
	if err != nil {
		return nil, err
	}
	all = all.Clone()
	err = c.released(func(claim *resourcev1.ResourceClaim) {
		for k := range claim.Status.Allocation.Devices.Results {
			if d := &claim.Status.Allocation.Devices.Results[k]; d.ShareID == nil && !ptr.Deref(d.AdminAccess, false) {
				all.Delete(structured.MakeDeviceID(d.Driver, d.Pool, d.Device))
			}
		}
	})
	c.each(func(id structured.DeviceID, _ *resourcev1.DeviceRequestAllocationResult) { all.Insert(id) })
	return all, err
}

// GatherAllocatedState returns the devices that claims have, and the shares of devices.
func (c *imagined) GatherAllocatedState() (*structured.AllocatedState, error) {
	state, err := c.ResourceClaimTracker.GatherAllocatedState()
	if err != nil {
		return nil, err
	}
	all := copied(state)
	err = c.released(func(claim *resourcev1.ResourceClaim) { release(all, claim.Status.Allocation) })
	c.each(func(id structured.DeviceID, d *resourcev1.DeviceRequestAllocationResult) {
		if d.ShareID == nil {
			all.AllocatedDevices.Insert(id)
			return
		}
		all.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, d.ShareID))
		if d.ConsumedCapacity != nil {
			all.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, d.ConsumedCapacity))
		}
	})
	return all, err
}

// each calls f for each device that a pod of the question would get. Administrators' access takes no device.
func (c *imagined) each(f func(structured.DeviceID, *resourcev1.DeviceRequestAllocationResult)) {
	c.i.mu.RLock()
	defer c.i.mu.RUnlock()
	for _, claim := range c.i.granted {
		for k := range claim.Status.Allocation.Devices.Results {
			d := &claim.Status.Allocation.Devices.Results[k]
			if !ptr.Deref(d.AdminAccess, false) {
				f(structured.MakeDeviceID(d.Driver, d.Pool, d.Device), d)
			}
		}
	}
}

// SignalClaimPendingAllocation grants a claim to a pod of the question.
func (c *imagined) SignalClaimPendingAllocation(uid types.UID, claim *resourcev1.ResourceClaim) error {
	c.i.mu.Lock()
	defer c.i.mu.Unlock()
	c.i.granted[uid] = claim
	return nil
}

// GetPendingAllocation returns nil: see seen.
func (*imagined) GetPendingAllocation(types.UID) *resourcev1.AllocationResult { return nil }

// MaybeRemoveClaimPendingAllocation does nothing: a question ends with Reset.
func (*imagined) MaybeRemoveClaimPendingAllocation(types.UID, bool) bool { return false }

// AssumeClaimAfterAPICall does nothing: no pod of a question is bound.
func (*imagined) AssumeClaimAfterAPICall(*resourcev1.ResourceClaim) error { return nil }

// AssumedClaimRestore does nothing.
func (*imagined) AssumedClaimRestore(string, string) {}
