package kube

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/tenon-project/tenon/internal/core/claim"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Claims makes ResourceClaims holders in the accounts of nodes: an allocated claim has the cards that its devices are,
// whichever scheduler allocated it, and whether a pod uses it or not. A share of a device counts as the whole card, for
// others than its driver cannot divide it. Administrators' access takes nothing.
//
//	claim ─ status.allocation ─► DRIVER/POOL/DEVICE ─ ResourceSlice ─► node, UUID, PCI address ─► entry of the node
//
// A device of a claim that no slice lists, as while its driver starts, may be any card of the node. All methods may be
// called from any goroutine.
type Claims struct {
	// Order makes the changes that follow from writes of this process, see Reservations. It is set before the first
	// claim.
	Order func(change OwnChange, o metav1.Object, apply func())

	store *Store

	mu     sync.Mutex // guards what is below, and that entries reach the store in order
	slices map[string]slice
	// pools are the devices of each DRIVER/POOL/. lossy are those that have lost devices, and users the claims with a
	// device of it.
	pools map[string]*claim.Pool[listed]
	lossy map[string]bool
	users map[string]map[types.UID]bool
	// claims are those with an allocation that is written, pending those of which it is not yet.
	claims, pending map[types.UID]*resourcev1.ResourceClaim
	// nodes are where a claim has an entry.
	nodes map[types.UID]map[string]bool
	// negative are the claims that are written with a negative share of a capacity.
	negative map[types.UID]*resourcev1.ResourceClaim
	// published has the devices of each node whose drivers say which cards they are, in the order of their slices. It
	// is nil after a change, and is replaced, never changed.
	published map[string][]convert.Published
}

// slice is what is kept of a ResourceSlice.
type slice struct {
	pool    string // DRIVER/POOL/
	devices []convert.Published
}

// listed is a device of a slice.
type listed struct {
	published *convert.Published
	slice     *resourcev1.ResourceSliceSpec
	index     int
}

// LostDevice is a device that a claim has, as its driver last published it.
type LostDevice struct {
	Driver, Pool string
	NodeName     *string // of its slice
	Device       *resourcev1.Device
}

// NewClaims returns an account that writes to the accounts of store; nil for no store.
func NewClaims(store *Store) *Claims {
	if store == nil {
		return nil
	}
	return &Claims{
		store: store, slices: map[string]slice{}, pools: map[string]*claim.Pool[listed]{},
		lossy: map[string]bool{}, negative: map[types.UID]*resourcev1.ResourceClaim{},
		users: map[string]map[types.UID]bool{}, claims: map[types.UID]*resourcev1.ResourceClaim{},
		pending: map[types.UID]*resourcev1.ResourceClaim{}, nodes: map[types.UID]map[string]bool{},
	}
}

// poolName is the part of a device's name that its pool has.
func poolName(driver, pool string) string { return convert.DeviceName(driver, pool, "") }

// PutSlice records a ResourceSlice.
func (c *Claims) PutSlice(s *resourcev1.ResourceSlice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := slice{poolName(s.Spec.Driver, s.Spec.Pool.Name), convert.PublishedBy(s)}
	now := claim.Slice[listed]{Generation: s.Spec.Pool.Generation}
	for i := range one.devices {
		now.Devices = append(now.Devices, claim.Listed[listed]{
			Name: one.devices[i].Name, Counted: len(s.Spec.Devices[i].ConsumesCounters) > 0,
			Device: listed{&one.devices[i], &s.Spec, i},
		})
	}
	if was := c.slices[s.Name].pool; was != one.pool {
		c.dropSlice(s.Name)
	}
	if c.pools[one.pool] == nil {
		c.pools[one.pool] = &claim.Pool[listed]{}
	}
	c.slices[s.Name], c.published = one, nil
	c.pools[one.pool].Put(s.Name, now, c.heldOf(one.pool))
	c.noteLost(one.pool)
	c.refreshPool(one.pool)
}

// RemoveSlice forgets a ResourceSlice.
func (c *Claims) RemoveSlice(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropSlice(name)
}

func (c *Claims) dropSlice(name string) {
	was, known := c.slices[name]
	if !known {
		return
	}
	delete(c.slices, name)
	c.published = nil
	c.pools[was.pool].Remove(name, c.heldOf(was.pool))
	c.noteLost(was.pool)
	c.refreshPool(was.pool)
}

// noteLost notes whether a pool that has changed has lost devices, and forgets an empty one.
func (c *Claims) noteLost(pool string) {
	p := c.pools[pool]
	if delete(c.lossy, pool); len(p.Lost()) > 0 {
		c.lossy[pool] = true
	}
	if p.IsEmpty() {
		delete(c.pools, pool)
	}
}

// heldOf returns which devices of a pool claims have.
func (c *Claims) heldOf(pool string) func(name string) bool {
	names := map[string]bool{}
	for uid := range c.users[pool] { // that have one, or had one
		held := c.held(uid)
		if held == nil {
			continue
		}
		results := held.Status.Allocation.Devices.Results
		for i := range results {
			if d := &results[i]; d.AdminAccess == nil || !*d.AdminAccess {
				names[convert.DeviceName(d.Driver, d.Pool, d.Device)] = true
			}
		}
	}
	return func(name string) bool { return names[name] }
}

// Lost returns the devices with counters that claims have and that are no longer published, by name.
func (c *Claims) Lost() (list []LostDevice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pool := range slices.Sorted(maps.Keys(c.lossy)) {
		for _, d := range c.pools[pool].Lost() {
			list = append(list, LostDevice{
				d.slice.Driver, d.slice.Pool.Name, d.slice.NodeName, &d.slice.Devices[d.index],
			})
		}
	}
	return list
}

func (c *Claims) refreshPool(pool string) {
	for uid := range c.users[pool] {
		c.refresh(uid)
	}
}

// add and remove change a set by key.
func add[K, V comparable](sets map[K]map[V]bool, key K, value V) {
	if sets[key] == nil {
		sets[key] = map[V]bool{}
	}
	sets[key][value] = true
}

func remove[K, V comparable](sets map[K]map[V]bool, key K, value V) {
	if delete(sets[key], value); len(sets[key]) == 0 {
		delete(sets, key)
	}
}

// PutClaim records what the API server says of a claim. An older state than the known one counts for nothing.
func (c *Claims) PutClaim(claim *resourcev1.ResourceClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.claims[claim.UID]; known != nil {
		order, err := resourceversion.CompareResourceVersion(claim.ResourceVersion, known.ResourceVersion)
		if err == nil && order < 0 {
			return
		}
	}
	c.put(claim)
}

// Restore is PutClaim for a state that is to count although a newer one was put, which was not written after all.
func (c *Claims) Restore(claim *resourcev1.ResourceClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(claim)
}

func (c *Claims) put(claim *resourcev1.ResourceClaim) {
	if delete(c.negative, claim.UID); anyNegative(claim) {
		c.negative[claim.UID] = claim
	}
	if claim.Status.Allocation == nil {
		c.use(claim.UID, c.claims, nil)
	} else {
		delete(c.pending, claim.UID)
		c.use(claim.UID, c.claims, claim)
	}
}

// Written calls apply, which makes known what this process has written of a claim before its event comes.
func (c *Claims) Written(claim *resourcev1.ResourceClaim, apply func()) {
	if c.Order != nil {
		c.Order(Written, claim, apply)
	} else {
		apply()
	}
}

// RemoveClaim forgets a claim.
func (c *Claims) RemoveClaim(claim *resourcev1.ResourceClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.negative, claim.UID)
	c.use(claim.UID, c.pending, nil)
	c.use(claim.UID, c.claims, nil)
}

// anyNegative reports whether a claim has a negative share of a capacity, which the API server stores.
func anyNegative(claim *resourcev1.ResourceClaim) bool {
	if claim.Status.Allocation == nil {
		return false
	}
	for i := range claim.Status.Allocation.Devices.Results {
		for _, amount := range claim.Status.Allocation.Devices.Results[i].ConsumedCapacity {
			if amount.Sign() < 0 {
				return true
			}
		}
	}
	return false
}

// Negative returns the claims that are written with a negative share of a capacity.
func (c *Claims) Negative() []*resourcev1.ResourceClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.negative))
}

// Pend records what a claim is going to get, until PutClaim says so or Unpend.
func (c *Claims) Pend(claim *resourcev1.ResourceClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.use(claim.UID, c.pending, claim)
}

// Unpend ends Pend: the claim has what is written of it.
func (c *Claims) Unpend(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.use(uid, c.pending, nil)
}

// use records a state of a claim in one of the maps, nil for none.
func (c *Claims) use(uid types.UID, among map[types.UID]*resourcev1.ResourceClaim, claim *resourcev1.ResourceClaim) {
	was := c.poolsOf(uid)
	for pool := range was {
		remove(c.users, pool, uid)
	}
	if delete(among, uid); claim != nil {
		among[uid] = claim
	}
	for pool := range c.poolsOf(uid) {
		add(c.users, pool, uid)
	}
	for pool := range was {
		if c.lossy[pool] {
			c.pools[pool].Release(c.heldOf(pool))
			c.noteLost(pool)
		}
	}
	c.refresh(uid)
}

// held returns what a claim has, nil for nothing: what is written goes before what is pending.
func (c *Claims) held(uid types.UID) *resourcev1.ResourceClaim {
	return cmp.Or(c.claims[uid], c.pending[uid])
}

// poolsOf returns the pools of the devices of a claim.
func (c *Claims) poolsOf(uid types.UID) map[string]bool {
	pools := map[string]bool{}
	if claim := c.held(uid); claim != nil {
		for i := range claim.Status.Allocation.Devices.Results {
			d := &claim.Status.Allocation.Devices.Results[i]
			pools[poolName(d.Driver, d.Pool)] = true
		}
	}
	return pools
}

// refresh writes the entries of a claim anew.
func (c *Claims) refresh(uid types.UID) {
	entries := map[string]ledger.Entry{}
	if claim := c.held(uid); claim != nil {
		entries = c.entries(claim)
	}
	for node := range c.nodes[uid] {
		if _, remains := entries[node]; !remains {
			c.store.change(node, func(r *record) { r.ledger.Remove(ledger.OfClaim + string(uid)) })
		}
	}
	delete(c.nodes, uid)
	for node, e := range entries {
		c.store.create(node, func(r *record) { r.ledger.Put(e) })
		add(c.nodes, uid, node)
	}
}

// Entries returns what a claim with its allocation has of the cards of nodes.
func (c *Claims) Entries(claim *resourcev1.ResourceClaim) map[string]ledger.Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries(claim)
}

func (c *Claims) entries(claim *resourcev1.ResourceClaim) map[string]ledger.Entry {
	entries, a := map[string]ledger.Entry{}, claim.Status.Allocation
	entry := func(node string) ledger.Entry {
		e, known := entries[node]
		if !known {
			e.UID, e.Namespace, e.Name = ledger.OfClaim+string(claim.UID), claim.Namespace, claim.Name
			for i := range claim.Status.ReservedFor {
				e.Users = append(e.Users, string(claim.Status.ReservedFor[i].UID))
			}
		}
		return e
	}
	for i := range a.Devices.Results {
		d := &a.Devices.Results[i]
		if d.AdminAccess != nil && *d.AdminAccess {
			continue
		}
		var found []listed
		if pool := c.pools[poolName(d.Driver, d.Pool)]; pool != nil {
			found = pool.Find(convert.DeviceName(d.Driver, d.Pool, d.Device))
		}
		for i := range found {
			p := found[i].published
			if p.Node != "" && p.IsKnown() {
				e := entry(p.Node)
				e.Devices = append(e.Devices, device.Grant{Hardware: &p.Hardware})
				entries[p.Node] = e
			}
		}
		if node := convert.OnlyNode(a.NodeSelector); len(found) == 0 && node != "" {
			e := entry(node)
			e.Unallocated = true
			entries[node] = e
		}
	}
	for node, e := range entries {
		if e.Unallocated {
			e.Devices = nil // any card of the node may be held
			entries[node] = e
		}
	}
	return entries
}

// Published returns the devices of each node whose drivers say which cards they are, in the order of their slices. The
// result must not be changed.
func (c *Claims) Published() map[string][]convert.Published {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.published == nil {
		c.published = map[string][]convert.Published{}
		for _, s := range slices.Sorted(maps.Keys(c.slices)) {
			for _, d := range c.slices[s].devices {
				if d.Node != "" && d.IsKnown() {
					c.published[d.Node] = append(c.published[d.Node], d)
				}
			}
		}
	}
	return c.published
}

// AnyCards reports whether a node has cards that pods can have without claims.
func (c *Claims) AnyCards() bool { return c.store.AnyInventory() }

// AnyPending reports whether a claim is pending.
func (c *Claims) AnyPending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) > 0
}

// PendingOf returns those of some claims that are pending, and the one that is made for extended resources of a pod.
func (c *Claims) PendingOf(pod types.UID, claims ...*resourcev1.ResourceClaim) (list []*resourcev1.ResourceClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, claim := range c.pending {
		owner := metav1.GetControllerOfNoCopy(claim)
		isOf := func(one *resourcev1.ResourceClaim) bool { return one.UID == claim.UID }
		if owner != nil && owner.UID == pod || slices.ContainsFunc(claims, isOf) {
			list = append(list, claim)
		}
	}
	slices.SortFunc(list, func(a, b *resourcev1.ResourceClaim) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Pending returns the entries on a node of the claims that are pending, by UID.
func (c *Claims) Pending(node string) (entries []ledger.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, claim := range c.pending {
		if c.nodes[uid][node] {
			entries = append(entries, c.entries(claim)[node])
		}
	}
	slices.SortFunc(entries, func(a, b ledger.Entry) int { return cmp.Compare(a.UID, b.UID) })
	return entries
}

// Contested returns the first card of claims that a pod has as well, or a part of it, by the account of the node; ""
// for none. Both holders are named.
func Contested(v *ledger.View, claims []ledger.Entry) string {
	if len(claims) == 0 || v == nil || v.Devices() == nil {
		return ""
	}
	users := v.Devices().Users()
	for i := range claims {
		e := &claims[i]
		for j := range e.Devices {
			if pods, _ := users.Of(e.Devices[j].Hardware); len(pods) > 0 {
				return fmt.Sprintf("device %s, allocated to claim %s/%s, is held outside DRA by %s",
					e.Devices[j].Hardware.Name, e.Namespace, e.Name, HolderName(v, pods[0]))
			}
		}
	}
	return ""
}

// HolderName returns the namespace and name of a holder of a node; its UID where it has no entry.
func HolderName(v *ledger.View, uid string) string {
	if e, known := v.Entry(uid); known {
		return e.Namespace + "/" + e.Name
	}
	return uid
}
