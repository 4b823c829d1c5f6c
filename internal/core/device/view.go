package device

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/core/why"
)

// Grant is what a pod has of one device. Amount and Ratio are those of the pod: the most that its containers have of
// the device at one time.
type Grant struct {
	Type   Type
	ID     string // "" where an old annotation says the minor alone
	Minor  int32
	Amount Vector // without slots: they follow from the containers
	Ratio  int64  // percent of a GPU's memory; counts where Amount has no bytes
	// Containers are sorted by name; nil where it is not known who has what.
	Containers []ContainerGrant
	VFs        []string // PCI addresses
	Template   string
	// Hardware is set, and nothing else, where a ResourceClaim has the device: its holding takes the whole card, also
	// for a share of it. nil for what pods hold.
	Hardware *Hardware
}

// IsOf reports whether a grant is a part of a device: an old annotation names its minor alone.
func (g *Grant) IsOf(d *Status) bool {
	return g.Type == d.Type && (g.ID == d.ID || g.ID == "" && g.Minor == d.Minor)
}

// ContainerGrant is what one container has of a device.
type ContainerGrant struct {
	Name   string
	Amount Vector
	Ratio  int64
}

// Holding is what a pod holds, by its UID: names come back, UIDs do not.
type Holding struct {
	UID    string
	Grants []Grant
}

// state is what pods hold of a unit.
type state struct {
	used    Vector
	holders int      // grants
	vfs     []string // in use
}

// View is an immutable account of a node's devices: what its pods hold, and what follows. Holdings of devices that the
// inventory does not have are kept, so that a device that comes back is not given twice.
type View struct {
	*Inventory
	holdings []*Holding // Invariant: ascending UID, each once.
	states   []state    // of units
}

// NewView returns the account of an inventory with the holdings of its pods. Of two of one pod the last counts.
func NewView(inv *Inventory, holdings iter.Seq[*Holding]) *View {
	v := &View{Inventory: inv, states: inv.states()}
	last := map[string]*Holding{}
	for h := range holdings {
		last[h.UID] = h
	}
	if len(last) > 0 {
		v.states = slices.Clone(v.states)
	}
	for _, uid := range slices.Sorted(maps.Keys(last)) {
		v.holdings = append(v.holdings, last[uid])
		v.charge(last[uid], 1)
	}
	return v
}

// On returns the account of the same holdings on another inventory.
func (v *View) On(inv *Inventory) *View { return NewView(inv, slices.Values(v.holdings)) }

// With returns an account in which a pod holds h, and nothing else. v does not change.
func (v *View) With(h *Holding) *View {
	next := &View{Inventory: v.Inventory, states: slices.Clone(v.states)}
	i, known := v.find(h.UID)
	if known {
		next.holdings = slices.Clone(v.holdings)
		next.charge(v.holdings[i], -1)
		next.holdings[i] = h
	} else {
		next.holdings = slices.Concat(v.holdings[:i], []*Holding{h}, v.holdings[i:])
	}
	next.charge(h, 1)
	return next
}

// Without returns an account in which a pod holds nothing: v itself where it holds nothing already.
func (v *View) Without(uid string) *View {
	i, known := v.find(uid)
	if !known {
		return v
	}
	next := &View{Inventory: v.Inventory, states: slices.Clone(v.states)}
	next.holdings = slices.Concat(v.holdings[:i], v.holdings[i+1:])
	next.charge(v.holdings[i], -1)
	return next
}

// find returns the index of a pod's holding, or the one where it would be inserted and false.
func (v *View) find(uid string) (int, bool) {
	return slices.BinarySearchFunc(v.holdings, uid, func(h *Holding, uid string) int { return cmp.Compare(h.UID, uid) })
}

// charge adds a holding to the states, or takes it off. Lists of VFs are replaced, never changed: views share them.
func (v *View) charge(h *Holding, sign int) {
	for i := range h.Grants {
		g := &h.Grants[i]
		for _, at := range v.named(g) {
			s := &v.states[at]
			amount := v.units[at].debit(g)
			s.used.add(&amount, int64(sign))
			s.holders += sign
			if len(g.VFs) == 0 {
				continue
			}
			s.vfs = slices.Clone(s.vfs)
			for _, vf := range g.VFs {
				j, _ := slices.BinarySearch(s.vfs, vf)
				if sign > 0 {
					s.vfs = slices.Insert(s.vfs, j, vf)
				} else {
					s.vfs = slices.Delete(s.vfs, j, j+1)
				}
			}
			if len(s.vfs) == 0 {
				s.vfs = nil
			}
		}
	}
}

// named returns the units that a grant is about. A minor alone may mean several: all are charged, since none of them
// may be given twice.
func (inv *Inventory) named(g *Grant) []int {
	if g.Hardware != nil {
		return inv.cards(g.Hardware)
	}
	if g.ID != "" {
		if i, ok := inv.locate(g.Type, g.ID); ok {
			return []int{i}
		}
		return nil
	}
	var found []int
	if r := inv.group(g.Type); r != nil {
		for i := r.first; i < r.first+r.n; i++ {
			if inv.units[i].Minor == g.Minor {
				found = append(found, i)
			}
		}
	}
	return found
}

// debit is what a grant takes of a unit. Memory is charged in bytes; where they are not known on one side, as a ratio.
func (u *unit) debit(g *Grant) Vector {
	if g.Hardware != nil {
		return u.Total
	}
	amount := g.Amount
	switch {
	case u.blind:
		amount[Bytes] = g.Ratio
	case amount[Bytes] == 0 && g.Ratio > 0:
		amount[Bytes] = BytesOf(u.Total[Bytes], g.Ratio)
	}
	if amount[Slots] = 0; u.Total[Slots] > 0 {
		amount[Slots] = max(int64(len(g.Containers)), 1)
	}
	return amount
}

// offers reports whether pods may have some of a unit: it works and has no slices. A slice also needs that its GPU
// works and that no pod has that: one may have got it whole before it was sliced.
func (v *View) offers(i int) bool {
	u := &v.units[i]
	return u.Healthy && u.offered &&
		(u.parent < 0 || v.units[u.parent].Healthy && v.states[u.parent].holders == 0)
}

// free is what pods may still have of a unit.
func (v *View) free(i int) Vector {
	if v.offers(i) {
		return v.units[i].Total.minus(&v.states[i].used)
	}
	return Vector{}
}

// Status is the account of one device.
type Status struct {
	ID         string
	*Device    // without its ID
	Used, Free Vector
	Holders    int
	Offered    bool // pods may have it; see Device.Parent
	// Foreign are UIDs of pods that have the device whole, of another program.
	Foreign []string
	// MemoryUnknown: Bytes count percent.
	MemoryUnknown bool
}

// Amounts are what the device has, what pods have of it, and what is free, by resource name, without zeros.
func (s *Status) Amounts() (total, used, free map[string]int64) {
	ratio := [3]int64{}
	if all := s.Total[Bytes]; s.Type == GPU {
		ratio = [3]int64{UsedRatio(all, all), UsedRatio(all, s.Used[Bytes]), FreeRatio(all, s.Free[Bytes])}
	}
	var out [3]map[string]int64
	for i, v := range [3]Vector{s.Total, s.Used, s.Free} {
		if s.MemoryUnknown {
			v[Bytes] = 0
		}
		out[i] = v.Amounts(s.Type, ratio[i])
	}
	return out[0], out[1], out[2]
}

// UsedPercent is the part of the device that pods have: of a GPU the larger of cores and memory.
func (s *Status) UsedPercent() (percent int64) {
	for _, d := range [...]Dim{Cores, Bytes, Share} {
		if s.Total[d] > 0 {
			percent = max(percent, UsedRatio(s.Total[d], s.Used[d]))
		}
	}
	return percent
}

// Devices yields the devices by type, PCI address and ID.
func (v *View) Devices() iter.Seq[Status] {
	return func(yield func(Status) bool) {
		for i := range v.units {
			u, s := &v.units[i], &v.states[i]
			if !yield(Status{u.ID, &u.Device, s.used, v.free(i), s.holders, u.offered, u.foreign, u.blind}) {
				return
			}
		}
	}
}

// Admits says why a pod cannot hold h in addition to what other pods hold: a device that is not there, not healthy or
// not free. It is asked before a choice that was made on an older account is committed.
// The account of a node without devices admits nothing.
func (v *View) Admits(h *Holding) Reason {
	if h == nil {
		return Reason{}
	}
	if v == nil {
		return Reason{Code: why.DeviceMissing, Type: h.Grants[0].Type}
	}
	v = v.Without(h.UID)
	next := &View{Inventory: v.Inventory, states: slices.Clone(v.states)}
	for _, g := range h.Grants {
		units := next.named(&g)
		if len(units) == 0 {
			return Reason{Code: why.DeviceMissing, Type: g.Type}
		}
		for _, at := range units {
			amount, free := next.units[at].debit(&g), next.free(at)
			taken := func(vf string) bool { return slices.Contains(next.states[at].vfs, vf) }
			if !amount.Within(&free) || slices.ContainsFunc(g.VFs, taken) {
				return Reason{Code: why.InsufficientDevices, Type: g.Type, Asked: 1}
			}
		}
		// Two grants of one device must fit together.
		next.charge(&Holding{Grants: []Grant{g}}, 1)
	}
	return Reason{}
}

// Rest is all that is free of the devices of some types, as what one pod could hold.
func (v *View) Rest(types []Type) []Grant {
	var all []Grant
	for d := range v.Devices() {
		if g := (Grant{Type: d.Type, ID: d.ID, Minor: d.Minor, Amount: d.Free}); slices.Contains(types, d.Type) {
			g.Amount[Slots] = 0
			if g.Ratio = d.ratio(&g.Amount); d.MemoryUnknown {
				g.Amount[Bytes] = 0
			}
			if g.Amount != (Vector{}) || g.Ratio > 0 {
				all = append(all, g)
			}
		}
	}
	return all
}

// Likeness returns a text that two accounts share only if they give devices of equal kinds and places to the same
// requests, whatever the IDs of their devices are. It is "" where another program gives devices to pods.
func (v *View) Likeness() string {
	rest := v.spec
	if len(v.foreign) > 0 {
		return ""
	}
	// Classes know links and switches. Partitions name devices by their modules.
	rest.Links, rest.Switches = nil, nil
	out := fmt.Appendf(nil, "%+v", rest)
	for i := range v.groups {
		g := &v.groups[i]
		out = fmt.Appendf(out, " %v %p %v %v %v", g.kind, g.class, g.pcie, g.numa, g.degraded)
	}
	for i := range v.units {
		t := *v.units[i].traits
		t.Parent, t.listed = "", 0
		out = fmt.Appendf(out, " %+v %+v", t, v.states[i])
	}
	return string(out)
}

// Equal reports whether two accounts are the same, either of which may be nil.
func (v *View) Equal(o *View) bool {
	if v == nil || o == nil {
		return v == o
	}
	return v.Inventory.Equal(o.Inventory) && slices.EqualFunc(v.holdings, o.holdings, (*Holding).Equal) &&
		slices.EqualFunc(v.states, o.states, func(a, b state) bool {
			return a.used == b.used && a.holders == b.holders && slices.Equal(a.vfs, b.vfs)
		})
}

// Equal reports whether two holdings are the same.
func (h *Holding) Equal(o *Holding) bool {
	return h.UID == o.UID && slices.EqualFunc(h.Grants, o.Grants, Grant.Equal)
}

// Equal reports whether two grants are the same.
func (g Grant) Equal(o Grant) bool {
	return g.Type == o.Type && g.ID == o.ID && g.Minor == o.Minor && g.Amount == o.Amount && g.Ratio == o.Ratio &&
		g.Template == o.Template && slices.Equal(g.VFs, o.VFs) && slices.Equal(g.Containers, o.Containers) &&
		g.hardware() == o.hardware()
}

// hardware is Hardware; the zero value for nil.
func (g *Grant) hardware() Hardware {
	if g.Hardware == nil {
		return Hardware{}
	}
	return *g.Hardware
}

// Minus returns what is left of grants when a pod has taken others: of devices that both name, what the latter leave.
func Minus(list, taken []Grant) (left []Grant) {
	for _, g := range list {
		for _, t := range taken {
			if t.Type != g.Type || t.ID != g.ID || t.Minor != g.Minor {
				continue
			}
			g.Amount, g.Ratio = g.Amount.minus(&t.Amount), max(g.Ratio-t.Ratio, 0)
			g.VFs = slices.DeleteFunc(slices.Clone(g.VFs), func(vf string) bool { return slices.Contains(t.VFs, vf) })
			// The containers were those of the whole grant: it is not known which of them keep what.
			g.Containers = nil
		}
		if g.Amount != (Vector{}) || g.Ratio > 0 || len(g.VFs) > 0 {
			left = append(left, g)
		}
	}
	return left
}

// SortedGrants returns grants by type, ID and minor: list itself where they are.
func SortedGrants(list []Grant) []Grant {
	order := func(a, b Grant) int {
		return cmp.Or(compareTypes(a.Type, b.Type), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Minor, b.Minor),
			cmp.Compare(a.hardware().Name, b.hardware().Name))
	}
	if slices.IsSortedFunc(list, order) {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, order)
	return list
}
