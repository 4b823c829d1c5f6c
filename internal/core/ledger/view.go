package ledger

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// View is an immutable state of the account. Everything but facts and entries is derived, once, in derive.
type View struct {
	// Filter reads the fields up to summary, which come first for the CPU's caches.
	*frame
	devices *device.View // nil without devices
	unknown int          // see UnknownHolders
	summary Summary

	accounts []*account // Invariant: ascending UID, each once.
	version  uint64
	// given is that of the facts, each with the UID of its pod as far as the pod is known. Invariant: sorted by UID.
	given []tenancy.Grant

	lse, lsr, kubeletStatic cpuset.Set
	// unplaced is zero unless another exporter reports what pods use of NUMA nodes.
	unplaced unplaced
	// tenancy is nil while the kubelet is not predicted.
	tenancy *tenancy.State
}

// hypothetical is the version of views that no ledger had: offers computed on them cannot be committed.
const hypothetical = 0

// Version identifies a state of one ledger; it never repeats. It is 0 for views made by With and Without.
func (v *View) Version() uint64 { return v.version }

// Facts returns the facts; they must not be changed.
func (v *View) Facts() *Facts { return &v.facts }

// Machine returns the machine, nil while no valid topology is known.
func (v *View) Machine() *topo.Machine { return v.facts.Machine }

// SharedPool returns the LS pool: online CPUs without ISOLATED, RESERVED_N, SYSTEM, KSTATIC, LSE and LSR. It contains
// the kubelet's reservation, unless strict-cpu-reservation asks otherwise (seed 000).
func (v *View) SharedPool() cpuset.Set {
	return v.base.Minus(v.kubeletStatic).Minus(v.lse).Minus(v.lsr)
}

// BEPool returns the BE pool: the LS pool and the CPUs of LSR pods.
func (v *View) BEPool() cpuset.Set { return v.base.Minus(v.kubeletStatic).Minus(v.lse) }

// Allocatable returns what new LSE and LSR pods may get: the LS pool without the kubelet's reservation.
func (v *View) Allocatable() cpuset.Set { return v.SharedPool().Minus(v.kubeletReserved) }

// FreeIsolated returns what new LSE and LSR pods may get that ask for isolated CPUs: those that no pod has. Isolated
// CPUs that the kubelet's static policy reserves are not among them.
func (v *View) FreeIsolated() cpuset.Set {
	return v.isolated.Minus(v.kubeletStatic).Minus(v.lse).Minus(v.lsr)
}

// KubeletStatic returns KSTATIC: what the kubelet pinned for pods that Tenon does not decide about.
func (v *View) KubeletStatic() cpuset.Set { return v.kubeletStatic }

// Pins yields the pods of which the node reports CPUs alone, and those CPUs, each with the UID of its pod as far as the
// pod is known, by UID.
func (v *View) Pins() iter.Seq[tenancy.Grant] {
	return func(yield func(tenancy.Grant) bool) {
		for _, g := range v.given {
			if g.UID+g.Name != "" && g.Placement == nil && !yield(g) {
				return
			}
		}
	}
}

// Tenancy returns what the node's kubelet has given to whom; nil while the kubelet is not predicted.
func (v *View) Tenancy() *tenancy.State {
	if !v.facts.Model.Predicts() {
		return nil
	}
	return v.tenancy
}

// Kubelet returns the state of the node's kubelet; nil while it is not predicted.
func (v *View) Kubelet() *kubelet.State { return v.Tenancy().Kubelet() }

// Devices returns the account of the node's devices; nil where the node has no usable Device object. Pods that hold
// devices are kept meanwhile.
func (v *View) Devices() *device.View { return v.devices }

// UnknownHolders counts what may have any device of the node, so that none can be given: pods that request devices and
// have none of Tenon, while the Device object does not say what they have, and names in it that no device has.
func (v *View) UnknownHolders() int { return v.unknown }

// AnyUnknownPod is whether pods are among the UnknownHolders, and not ResourceClaims alone.
func (v *View) AnyUnknownPod() bool {
	claims := 0
	for _, a := range v.accounts {
		if a.Unallocated && a.IsClaim() {
			claims++
		}
	}
	return v.unknown > claims
}

// GrantsOf returns what the holder of an entry has of the devices of the node. Those of a ResourceClaim are the cards
// that its devices are.
func (v *View) GrantsOf(e *Entry) []device.Grant {
	if !e.IsClaim() {
		return e.Devices
	}
	if v.devices == nil {
		return nil
	}
	var cards []device.Grant
	for i := range e.Devices {
		for _, g := range v.devices.Whole(e.Devices[i].Hardware) {
			if !slices.ContainsFunc(cards, g.Equal) { // two shares of one card
				cards = append(cards, g)
			}
		}
	}
	return cards
}

// Admits says why the node's kubelet would not run p, as far as it is known: of some only the CPUs are counted.
func (v *View) Admits(p *kubelet.Pod) why.Reason {
	switch m := &v.facts.Model; {
	case !m.Gives(p):
		return why.Reason{}
	case m.Node == nil:
		return m.Fault
	}
	return v.tenancy.Kubelet().Fits(p)
}

// LSE returns the CPUs of LSE pods.
func (v *View) LSE() cpuset.Set { return v.lse }

// LSR returns the CPUs of LSR pods.
func (v *View) LSR() cpuset.Set { return v.lsr }

// Floor returns the number of CPUs that the LS pool must keep.
func (v *View) Floor() int { return v.floor }

// Summary returns the per-node figures; they must not be changed.
func (v *View) Summary() *Summary { return &v.summary }

// IsolatedState is State for pods that get isolated CPUs, which no other pod was promised a part of.
func (v *View) IsolatedState() cpualloc.State {
	s := v.State()
	s.Free, s.Caps = v.FreeIsolated(), nil
	return s
}

// State returns what the allocator works on for pods that get no isolated CPUs.
func (v *View) State() cpualloc.State {
	s := cpualloc.State{Machine: v.facts.Machine, Free: v.Allocatable(), NoTick: v.facts.NoTick}
	for _, a := range v.accounts {
		switch {
		case a.Exclusive == cpualloc.NUMANodeLevel:
			s.NUMAHeld = s.NUMAHeld.Union(a.cpus)
		case a.Exclusive == cpualloc.PCPULevel && !v.facts.ARM64: // does not exist on arm64 (seed 000)
			s.PCPUHeld = s.PCPUHeld.Union(a.cpus)
		}
	}
	if v.summary.Committed {
		s.Caps = make([]int, len(v.summary.Nodes))
		for i := range s.Caps {
			s.Caps[i] = int(v.summary.Nodes[i].PoolMilli / 1000)
		}
	}
	return s
}

// Entries yields the entries by UID.
func (v *View) Entries() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, a := range v.accounts {
			if !yield(a.Entry) {
				return
			}
		}
	}
}

// Entry returns the entry of a pod.
func (v *View) Entry(uid string) (Entry, bool) {
	if i, ok := v.find(uid); ok {
		return v.accounts[i].Entry, true
	}
	return Entry{}, false
}

// HasOwn reports whether a pod has CPUs, NUMA nodes or devices of its own, by Tenon or by the kubelet, or may have
// devices. Any other pod is counted by amounts alone.
func (v *View) HasOwn(uid string) bool {
	i, known := v.find(uid)
	if !known {
		return false
	}
	a, given := v.accounts[i], func(g tenancy.Grant) bool { return g.UID == uid }
	return a.CPUList != "" || a.NUMAIDs != nil || a.Devices != nil || a.Unallocated ||
		a.Guest != nil && (v.facts.Model.Gives(a.Guest.Pod) || slices.ContainsFunc(v.given, given))
}

// CPUsOf returns the exclusive CPUs that the pod really holds on this machine (unknown and offline ids left out).
func (v *View) CPUsOf(uid string) cpuset.Set {
	if i, ok := v.find(uid); ok {
		return v.accounts[i].cpus
	}
	return cpuset.Set{}
}

// DevicesOf returns what the pod really holds of devices: a reservation what the pods within it do not.
func (v *View) DevicesOf(uid string) []device.Grant {
	if i, ok := v.find(uid); ok {
		return v.accounts[i].devices
	}
	return nil
}

// find returns the position of a pod, or the one where it would be inserted and false.
func (v *View) find(uid string) (int, bool) {
	return slices.BinarySearchFunc(v.accounts, uid, func(a *account, uid string) int { return cmp.Compare(a.UID, uid) })
}

// With and Without return a view on which the entry is put or removed; v itself does not change (preemption, what-if).
func (v *View) With(e Entry) *View { return v.put(newAccount(v.facts.Machine, e), hypothetical) }

// Without returns v where it has no such entry.
func (v *View) Without(uid string) *View {
	if i, ok := v.find(uid); ok {
		return v.remove(i, hypothetical)
	}
	return v
}

// Leave is Without for a pod that leaves the node: ResourceClaims that only this pod still uses end with it.
func (v *View) Leave(uid string) *View {
	next := v.Without(uid)
	for _, a := range v.accounts {
		i := slices.Index(a.Users, uid)
		switch {
		case i < 0:
		case len(a.Users) == 1:
			next = next.Without(a.UID)
		default:
			e := a.Entry
			e.Users = slices.Delete(slices.Clone(e.Users), i, i+1)
			next = next.With(e)
		}
	}
	return next
}

// Return takes a pod back that has left, with its claims: what it has in the account from. It returns v where it has
// nothing there.
func (v *View) Return(uid string, from *View) *View {
	if e, ok := from.Entry(uid); ok {
		v = v.With(e)
	}
	for _, a := range from.accounts {
		if slices.Contains(a.Users, uid) {
			e := a.Entry
			if remains, _ := v.Entry(e.UID); !slices.Contains(remains.Users, uid) {
				e.Users = append(slices.Clone(remains.Users), uid)
				v = v.With(e)
			}
		}
	}
	return v
}

// put returns a view with an account, in place of the pod's last one. Reservations that the pod uses, or has used, are
// reduced anew.
func (v *View) put(a *account, version uint64) *View {
	if a.Reserves {
		a = a.beside(v.facts.Machine, v.accounts)
	}
	i, ok := v.find(a.UID)
	was := ""
	if ok {
		was = v.accounts[i].Within
	}
	return v.set(i, ok, a, version).deductUsers(version, was, a.Within)
}

// set inserts an account at a position, or replaces the one there.
func (v *View) set(i int, ok bool, a *account, version uint64) *View {
	if ok {
		accounts := slices.Clone(v.accounts)
		accounts[i] = a
		return derive(v.frame, accounts, version, change{v, v.accounts[i], a})
	}
	accounts := slices.Concat(v.accounts[:i], []*account{a}, v.accounts[i:])
	return derive(v.frame, accounts, version, change{v, nil, a})
}

// remove returns a view without the account at a position.
func (v *View) remove(i int, version uint64) *View {
	accounts := slices.Concat(v.accounts[:i], v.accounts[i+1:])
	return derive(v.frame, accounts, version, change{v, v.accounts[i], nil}).deductUsers(version, v.accounts[i].Within)
}

// Idle identifies the accounts without pods that differ in nothing but the IDs of their devices. Two equal ones are of
// such accounts; two that differ may be too.
type Idle struct {
	facts  *outline
	floor  int
	server device.Server
}

// Idle returns what identifies the account; false where pods have entries.
func (v *View) Idle() (Idle, bool) {
	return Idle{v.outline, v.floor, v.facts.Devices.Server()}, len(v.accounts) == 0
}

// Likeness returns a text that the accounts of two nodes share only if they grant and refuse the same to each pod,
// whatever the names of their pods and devices are. It is "" for an account that is compared with no other: where the
// answers of a kubelet count, and where Reservations know the pods that use them.
func (v *View) Likeness() string {
	facts, devices := v.facts, ""
	if facts.Model.Node != nil || len(facts.Given) > 0 || v.unknown > 0 {
		return ""
	}
	if v.devices != nil {
		if devices = v.devices.Likeness(); devices == "" {
			return ""
		}
	}
	facts.Devices = nil
	var entries []string
	for _, a := range v.accounts {
		e := a.Entry
		if e.Within != "" || e.Reserves {
			return ""
		}
		e.UID, e.Namespace, e.Name, e.Devices, e.Guest = "", "", "", nil, nil
		entries = append(entries, fmt.Sprintf("%+v", e))
	}
	slices.Sort(entries)
	return fmt.Sprintf("%+v %q %s", facts, entries, devices)
}

// Equal reports whether two views are the same account, whatever their versions.
func (v *View) Equal(o *View) bool {
	return v.facts.Equal(&o.facts) && v.base == o.base && v.floor == o.floor &&
		v.kubeletReserved == o.kubeletReserved && v.lse == o.lse && v.lsr == o.lsr &&
		v.kubeletStatic == o.kubeletStatic && v.summary.equal(&o.summary) && v.tenancy.Equal(o.tenancy) &&
		v.devices.Equal(o.devices) &&
		slices.EqualFunc(v.accounts, o.accounts, func(a, b *account) bool {
			return a == b || a.Entry.Equal(b.Entry) && a.cpus == b.cpus && a.nodes == b.nodes
		})
}

// Summary is what Filter reads: per NUMA node, those without CPUs too, and in total.
type Summary struct {
	// Usable is what exclusive pods may take of each NUMA node: what is free there, within what is left of its shared
	// pool beside the LS pods that are confined to NUMA nodes. Committed reports that the latter is less on some node
	// or on several together (Limits). UsableTotal is their sum.
	Usable      []cpualloc.NodeCount
	UsableTotal cpualloc.NodeCount
	// Isolated is what each NUMA node has of FreeIsolated; nil on a node that has no isolated CPUs for pods.
	Isolated []cpualloc.NodeCount
	// Rows are the resources that are known of the machine's NUMA nodes, ordinary memory first.
	Rows []align.Row
	// Limits bound what may still be taken of the pools of several NUMA nodes, by Group and Nodes; see Room.
	Limits    []Limit
	Committed bool
	// PoolCPUs is |LS pool|, PoolMilli 1000·PoolCPUs − Σ constrained requests.
	PoolCPUs  int
	PoolMilli int64
	Nodes     []NodeSummary
	// Confined are the NUMA nodes that pods use which use no other, Spanned those of pods that use several.
	Confined, Spanned  topo.NodeSet
	cpualloc.NodeCount // of all ALLOCATABLE CPUs
}

// Mixed returns the NUMA nodes on which a pod that uses span of them would meet a pod of the other kind: one that uses
// several, or for a pod that itself uses several one that is confined to one.
func (s *Summary) Mixed(span int) topo.NodeSet {
	if span > 1 {
		return s.Confined
	}
	return s.Spanned
}

// NodeSummary is one NUMA node of a Summary.
type NodeSummary struct {
	cpualloc.NodeCount // of ALLOCATABLE CPUs
	PoolCPUs           int
	// PoolMilli is the Room of this node: what may still be promised to a pod that is confined to it alone, or leave
	// the pool for exclusive pods. Never negative.
	PoolMilli int64
	// Promised is what LS pods were promised of this node: of a pod on several nodes a share in proportion to their
	// pools. It is for people; Room decides.
	Promised int64
}

// equal reports whether two summaries give the same answers.
func (s *Summary) equal(o *Summary) bool {
	return slices.Equal(s.Nodes, o.Nodes) && slices.Equal(s.Usable, o.Usable) && s.UsableTotal == o.UsableTotal &&
		slices.Equal(s.Isolated, o.Isolated) &&
		s.Committed == o.Committed && s.NodeCount == o.NodeCount && s.PoolCPUs == o.PoolCPUs &&
		s.PoolMilli == o.PoolMilli &&
		slices.Equal(s.Limits, o.Limits) && s.Confined == o.Confined && s.Spanned == o.Spanned &&
		slices.EqualFunc(s.Rows, o.Rows, func(a, b align.Row) bool { return a.Equal(&b) })
}
