package kube

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

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
	store *Store

	mu     sync.Mutex // guards what is below, and that entries reach the store in order
	slices map[string]slice
	// pools are the names of the slices of each DRIVER/POOL/. users are the claims with a device of it.
	pools map[string]map[string]bool
	users map[string]map[types.UID]bool
	// claims are those with an allocation that is written, pending those of which it is not yet.
	claims, pending map[types.UID]*resourcev1.ResourceClaim
	// nodes are where a claim has an entry.
	nodes map[types.UID]map[string]bool
	// published has the devices of each node whose drivers say which cards they are, in the order of their slices. It
	// is nil after a change, and is replaced, never changed.
	published map[string][]convert.Published
}

// slice is what is kept of a ResourceSlice.
type slice struct {
	pool       string // DRIVER/POOL/
	generation int64
	devices    []convert.Published
}

// NewClaims returns an account that writes to the accounts of store; nil for no store.
func NewClaims(store *Store) *Claims {
	if store == nil {
		return nil
	}
	return &Claims{
		store: store, slices: map[string]slice{}, pools: map[string]map[string]bool{},
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
	was := c.dropSlice(s.Name)
	one := slice{poolName(s.Spec.Driver, s.Spec.Pool.Name), s.Spec.Pool.Generation, convert.PublishedBy(s)}
	c.slices[s.Name] = one
	add(c.pools, one.pool, s.Name)
	c.refreshPool(one.pool)
	if was != one.pool {
		c.refreshPool(was)
	}
}

// RemoveSlice forgets a ResourceSlice.
func (c *Claims) RemoveSlice(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refreshPool(c.dropSlice(name))
}

// dropSlice returns the pool of the slice, "" for an unknown one.
func (c *Claims) dropSlice(name string) (pool string) {
	was := c.slices[name]
	delete(c.slices, name)
	remove(c.pools, was.pool, name)
	c.published = nil
	return was.pool
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
	if claim.Status.Allocation == nil {
		c.use(claim.UID, c.claims, nil)
	} else {
		delete(c.pending, claim.UID)
		c.use(claim.UID, c.claims, claim)
	}
}

// RemoveClaim forgets a claim.
func (c *Claims) RemoveClaim(claim *resourcev1.ResourceClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, claim.UID)
	c.use(claim.UID, c.claims, nil)
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
	for pool := range c.poolsOf(uid) {
		remove(c.users, pool, uid)
	}
	if delete(among, uid); claim != nil {
		among[uid] = claim
	}
	for pool := range c.poolsOf(uid) {
		add(c.users, pool, uid)
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
		}
		return e
	}
	for i := range a.Devices.Results {
		d := &a.Devices.Results[i]
		if d.AdminAccess != nil && *d.AdminAccess {
			continue
		}
		found := c.find(poolName(d.Driver, d.Pool), convert.DeviceName(d.Driver, d.Pool, d.Device))
		for _, p := range found {
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

// find returns the devices of a name in the newest generation of a pool that has one: while a driver replaces the
// slices of a pool, those of the last generation count too.
func (c *Claims) find(pool, name string) (found []convert.Published) {
	newest := int64(-1)
	for _, s := range slices.Sorted(maps.Keys(c.pools[pool])) {
		one := c.slices[s]
		if one.generation < newest {
			continue
		}
		for _, d := range one.devices {
			if d.Name != name {
				continue
			}
			if one.generation > newest {
				newest, found = one.generation, nil
			}
			found = append(found, d)
		}
	}
	return found
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

// AnyPending reports whether a claim is pending.
func (c *Claims) AnyPending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) > 0
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
