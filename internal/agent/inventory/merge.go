package inventory

import (
	"encoding/json"

	"github.com/tenon-project/tenon/internal/agent/host"
)

// Find returns the devices of a machine as they are at this moment, without a memory of their health.
func Find(root host.Root, drivers []Driver) (found []host.Dropped, faults []error) {
	for _, d := range drivers {
		list, err := d.Devices()
		found, faults = merge(found, list), append(faults, err)
	}
	dropped, err := host.ReadDropped(root)
	return merge(found, dropped), append(faults, err)
}

// merge adds to a list what another source says of its devices, and the devices that it alone has. Devices of a type
// are the same by their UUID, and by their PCI address where both lists have one device there. Of two facts the second
// counts, but for the UUID, by which the files of the driver are found, and for the health, of which the worse counts.
func merge(list, other []host.Dropped) []host.Dropped {
	type name [2]string // type, and UUID or PCI address
	uuids, there := map[name]int{}, map[name]int{}
	first := map[name]int{}
	for i := range list {
		bus := name{list[i].Type, list[i].Topology.BusID}
		uuids[name{list[i].Type, list[i].UUID}], first[bus] = i, i
		there[bus]++
	}
	here := map[name]int{}
	for i := range other {
		here[name{other[i].Type, other[i].Topology.BusID}]++
	}
	for _, d := range other {
		bus := name{d.Type, d.Topology.BusID}
		i, known := uuids[name{d.Type, d.UUID}]
		if !known && bus[1] != "" && there[bus] == 1 && here[bus] == 1 {
			i, known = first[bus], true
		}
		if !known {
			list = append(list, d)
			continue
		}
		was := list[i]
		list[i] = host.Dropped{} // so that no source shares what is written below
		for _, text := range [][]byte{encoded(was), encoded(d)} {
			if err := json.Unmarshal(text, &list[i]); err != nil {
				panic(err) // it is a value of the same type
			}
		}
		list[i].UUID, list[i].Status = was.UUID, worse(was.Status, d.Status)
	}
	return list
}

// encoded has what is known of a device alone.
func encoded(d host.Dropped) []byte {
	text, err := json.Marshal(d)
	if err != nil {
		panic(err) // there are only numbers and words
	}
	return text
}

// worse returns the status of the device that works less.
func worse(a, b *host.DroppedStatus) *host.DroppedStatus {
	if b == nil || a != nil && (!a.Healthy || a.Degraded && b.Healthy) {
		return a
	}
	return b
}
