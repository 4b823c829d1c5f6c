package device

import (
	"slices"
	"strconv"
	"strings"
)

// Foreign is what another program, such as the node's kubelet, gave to one pod: devices by the names that their plugin
// has for them. No names: the pod has none.
type Foreign struct {
	UID   string
	Names []string
}

// IsServed reports whether a device plugin or Tenon gives out devices by a name, also where a plugin writes .shared
// behind it because several pods get one device.
func IsServed(name string) bool { return IsDevice(strings.TrimSuffix(name, ".shared")) }

// hold charges devices that pods have of other programs. Such a pod has a device whole, whatever it asked for: a
// replica of a GPU says nothing about the others, and a GPU includes its MIG devices.
func (inv *Inventory) hold(list []Foreign) {
	if len(list) > 0 {
		inv.reported = make(map[string]bool, len(list))
	}
	for _, f := range list {
		inv.reported[f.UID] = true
		for _, name := range f.Names {
			at := inv.resolve(name)
			if at < 0 {
				inv.unknown = append(inv.unknown, name)
				continue
			}
			for i, unit := 0, &inv.units[at]; i < len(inv.units); i++ {
				u := &inv.units[i]
				part := i == at || u.Type == unit.Type && u.Parent == unit.ID
				if part && !slices.Contains(u.foreign, f.UID) {
					u.foreign = append(u.foreign, f.UID)
				}
			}
		}
	}
}

// Reports reports whether it is known what a pod has of other programs.
func (inv *Inventory) Reports(uid string) bool { return inv.reported[uid] }

// Unknown are the names of devices that pods have of other programs and that no device has.
func (inv *Inventory) Unknown() []string { return inv.unknown }

// Resolve returns the ID of the device that a device plugin has a name for: its ID or PCI address, that of one of its
// virtual functions, its ID with the number of a replica (ID::2, ID-2), or the index that NVIDIA's library gives it. ""
// for other names.
func (inv *Inventory) Resolve(name string) string {
	if i := inv.resolve(name); i >= 0 {
		return inv.units[i].ID
	}
	return ""
}

// resolve returns the index of the unit with a name, -1 if there is none.
func (inv *Inventory) resolve(name string) int {
	if i := inv.byID(name); i >= 0 {
		return i
	}
	at := max(strings.LastIndexByte(name, '-'), strings.LastIndexByte(name, ':'))
	number, err := strconv.ParseUint(name[at+1:], 10, 16)
	switch {
	case err != nil:
		return -1
	case at < 0:
		return inv.byIndex(int(number))
	}
	return inv.byID(strings.TrimSuffix(name[:at], ":"))
}

// byID finds a device by its ID, or else by an address of it.
func (inv *Inventory) byID(name string) int {
	at := -1
	for i := range inv.units {
		u := &inv.units[i]
		switch {
		case u.ID == name:
			return i
		case u.Parent == "" && u.Bus != "" && u.Bus == name,
			slices.ContainsFunc(u.VFs, func(vf VF) bool { return vf.Bus == name }):
			at = i
		}
	}
	return at
}

// byIndex finds a GPU of NVIDIA: its library numbers them in the order of their PCI addresses, without MIG devices.
func (inv *Inventory) byIndex(n int) int {
	for i := range inv.units {
		u := &inv.units[i]
		switch {
		case u.Type != GPU || u.Parent != "" || u.Vendor != NVIDIAGPU && u.Vendor != "":
		case u.Bus == "":
			return -1 // the order is not known
		case n == 0:
			return i
		default:
			n--
		}
	}
	return -1
}

// states are those of devices of which no pod of Tenon has a part. They must not be changed.
func (inv *Inventory) states() []state {
	if len(inv.foreign) == 0 {
		return inv.idle
	}
	all := make([]state, len(inv.units))
	for i := range inv.units {
		if u := &inv.units[i]; len(u.foreign) > 0 {
			all[i] = state{used: u.Total, holders: len(u.foreign)}
		}
	}
	return all
}
