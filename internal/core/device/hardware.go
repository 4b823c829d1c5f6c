package device

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// Hardware is a device of a ResourceSlice, as far as its driver says which card it is.
type Hardware struct {
	// Name is DRIVER/POOL/DEVICE.
	Name string
	// UUID is that of the device, Parent that of the GPU that it is a slice of; "" where the driver does not say.
	UUID, Parent string
	// Bus is the PCI address, in any form that ParseBus reads; "" where the driver does not say.
	Bus string
}

// String returns all that is known of the device.
func (h *Hardware) String() string {
	return strings.Join([]string{h.Name, h.UUID, h.Parent, h.Bus}, " ")
}

// IsKnown reports whether the driver says which card a device is.
func (h *Hardware) IsKnown() bool { return h.UUID != "" || h.Parent != "" || h.Bus != "" }

// ParseBus reads a PCI address, [DOMAIN:]BUS:DEVICE.FUNCTION in hexadecimal digits of any case. Drivers write the
// domain with four digits, with eight, or leave it out. ok is false for another text.
func ParseBus(text string) (address uint64, ok bool) {
	parts := strings.Split(text, ":")
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 3 {
		return 0, false
	}
	slot, function, ok := strings.Cut(parts[2], ".")
	if !ok {
		return 0, false
	}
	for _, field := range [...]struct {
		text string
		bits int
	}{{parts[0], 32}, {parts[1], 8}, {slot, 5}, {function, 3}} {
		n, err := strconv.ParseUint(field.text, 16, field.bits)
		if err != nil {
			return 0, false
		}
		address = address<<field.bits | n
	}
	return address, true
}

// sameBus reports whether two texts are one PCI address.
func sameBus(a, b string) bool {
	x, xOK := ParseBus(a)
	y, yOK := ParseBus(b)
	return xOK && yOK && x == y
}

// cards returns the units that a device of a ResourceSlice is, ascending: the one with its UUID; or else the GPU that
// it is a slice of; or else all at its PCI address. A GPU includes its MIG devices.
func (inv *Inventory) cards(h *Hardware) (found []int) {
	add := func(matches func(u *unit) bool) {
		for i := range inv.units {
			if matches(&inv.units[i]) {
				found = append(found, i)
			}
		}
	}
	for _, id := range [...]string{h.UUID, h.Parent} {
		if id != "" && len(found) == 0 {
			add(func(u *unit) bool { return u.ID == id })
		}
	}
	if len(found) == 0 && h.Bus != "" {
		add(func(u *unit) bool {
			return u.Parent == "" && (sameBus(u.Bus, h.Bus) ||
				slices.ContainsFunc(u.VFs, func(vf VF) bool { return sameBus(vf.Bus, h.Bus) }))
		})
	}
	for _, at := range slices.Clone(found) {
		card := &inv.units[at]
		add(func(u *unit) bool { return u.Parent != "" && u.Parent == card.ID && u.Type == card.Type })
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// Whole returns the cards that a device of a ResourceSlice is, each as a grant of all that it has. It returns nil where
// the inventory has no such card.
func (inv *Inventory) Whole(h *Hardware) (list []Grant) {
	if inv == nil {
		return nil
	}
	for _, at := range inv.cards(h) {
		u := &inv.units[at]
		g := Grant{Type: u.Type, ID: u.ID, Minor: u.Minor, Amount: u.Total}
		if g.Amount[Slots] = 0; u.Type == GPU {
			g.Ratio = whole
		}
		if u.blind {
			g.Amount[Bytes] = 0
		}
		list = append(list, g)
	}
	return list
}

// Users are the UIDs of the pods that have a part of each unit: of Tenon, or of another program. Claims are not among
// them.
type Users struct {
	inv    *Inventory
	byUnit [][]string
}

// Users returns who has the devices.
func (v *View) Users() Users {
	users := Users{v.Inventory, make([][]string, len(v.units))}
	for i := range v.units {
		users.byUnit[i] = slices.Clone(v.units[i].foreign)
	}
	for _, h := range v.holdings {
		for i := range h.Grants {
			if h.Grants[i].Hardware != nil {
				continue
			}
			for _, at := range v.named(&h.Grants[i]) {
				users.byUnit[at] = append(users.byUnit[at], h.UID)
			}
		}
	}
	return users
}

// Of returns the UIDs of the pods that have a part of a device of a ResourceSlice, sorted. Who has a GPU as a whole has
// each of its slices. found is false where the node has no such card.
func (u Users) Of(h *Hardware) (uids []string, found bool) {
	for _, at := range u.inv.cards(h) {
		found, uids = true, append(uids, u.byUnit[at]...)
		if parent := u.inv.units[at].parent; parent >= 0 {
			uids = append(uids, u.byUnit[parent]...)
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids), found
}

// Site returns where the card is connected that a device of a ResourceSlice is: its index for Closeness, its NUMA node,
// 0 for an unknown one, and its root complex, "" for an unknown one. ok is false where the inventory has no such card.
func (inv *Inventory) Site(h *Hardware) (at int, node topo.NodeSet, root string, ok bool) {
	if inv == nil {
		return 0, 0, "", false
	}
	cards := inv.cards(h)
	if len(cards) == 0 {
		return 0, 0, "", false
	}
	u := &inv.units[cards[0]]
	return cards[0], u.node, u.PCIe, true
}

// Closeness returns how close two cards are, by their indexes: 100 for each lane between them, and how close they are
// on the PCI tree.
func (inv *Inventory) Closeness(a, b int) int64 {
	x, y := &inv.units[a], &inv.units[b]
	if r := inv.group(x.Type); x.Type == y.Type && r != nil && len(r.class.w) == r.n*r.n {
		return int64(r.class.w[(a-r.first)*r.n+b-r.first])
	}
	return closeness(x, y)
}
