package inventory

import (
	"encoding/json"
	"slices"

	"github.com/tenon-project/tenon/internal/agent/host"
)

// merge adds to a list what another source says of its devices, and the devices that it alone has. Devices of a type
// are the same by their UUID, and by their PCI address where both lists have one device there. Of two facts the second
// counts, but for the UUID, by which the files of the driver are found, and for the health, of which the worse counts.
func merge(list, other []host.Dropped) []host.Dropped {
	for _, d := range other {
		i := slices.IndexFunc(list, func(o host.Dropped) bool { return o.Type == d.Type && o.UUID == d.UUID })
		if i < 0 && only(other, &d) >= 0 {
			i = only(list, &d)
		}
		if i < 0 {
			list = append(list, d)
			continue
		}
		var both host.Dropped // shares nothing with what a driver said
		for _, one := range []host.Dropped{list[i], d} {
			text, err := json.Marshal(one)
			if err == nil {
				err = json.Unmarshal(text, &both)
			}
			if err != nil {
				panic(err) // there are only numbers and words
			}
		}
		both.UUID, both.Status = list[i].UUID, worse(list[i].Status, d.Status)
		list[i] = both
	}
	return list
}

// only returns the only device of a list with the type and PCI address of d; -1 where there is none, or another one.
func only(list []host.Dropped, d *host.Dropped) int {
	found := -1
	for i := range list {
		if d.Topology.BusID == "" || list[i].Type != d.Type || list[i].Topology.BusID != d.Topology.BusID {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = i
	}
	return found
}

// worse returns the status of the device that works less.
func worse(a, b *host.DroppedStatus) *host.DroppedStatus {
	if b == nil || a != nil && (!a.Healthy || a.Degraded && b.Healthy) {
		return a
	}
	return b
}
