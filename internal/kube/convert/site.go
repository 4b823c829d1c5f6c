package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/core/claim"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Attributes of places. Drivers write them with their own domain, the standard one, or without one: numaNodeID is that
// of drivers for CPUs, numa that of older drivers for GPUs.
var (
	numaAttributes = []string{"numaNode", "numaNodeID", "numa"}
	rootAttributes = []string{"pcieRoot"}
	// sortAttributes tell models and kinds of devices apart.
	sortAttributes = []string{"type", "productName", "model", "family", "brand", "architecture", "profile", "partition"}
)

// Site is a device of a ResourceSlice with its place on a node.
type Site struct {
	device.Hardware
	claim.Device
	// Index is that of the device in its slice.
	Index int
}

// SitesOf returns the devices of a slice that are those of one node, by the account of the node, with how close they
// are to other devices as Closeness of the node's inventory has it: cards are its indexes, -1 for a device of no card.
func SitesOf(s *resourcev1.ResourceSlice, node string, v *ledger.View) (sites []Site, cards []int) {
	perDevice := ptr.Deref(s.Spec.PerDeviceNodeSelection, false)
	if !perDevice && ptr.Deref(s.Spec.NodeName, "") != node {
		return nil, nil
	}
	var machine *topo.Machine
	var inventory *device.Inventory
	if v != nil {
		if machine = v.Machine(); v.Devices() != nil {
			inventory = v.Devices().Inventory
		}
	}
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		if perDevice && ptr.Deref(d.NodeName, "") != node {
			continue
		}
		site := Site{Hardware: hardware(s.Spec.Driver, s.Spec.Pool.Name, d), Index: i}
		at, onCard, root, known := inventory.Site(&site.Hardware)
		if !known {
			at = -1
		}
		site.Device = claim.Device{
			Pool: DeviceName(s.Spec.Driver, s.Spec.Pool.Name, ""), Sort: sortOf(s.Spec.Driver, d),
			Nodes: claim.NodesOf(machine, numbers(d), onCard), Root: text(d, rootAttributes, root),
			Counted: len(d.ConsumesCounters) > 0,
		}
		for j := range d.ConsumesCounters {
			site.Card += d.ConsumesCounters[j].CounterSet + " "
		}
		sites, cards = append(sites, site), append(cards, at)
	}
	return sites, cards
}

// attributes yields the values of a device's attributes with a local name, in the order of their full names.
func attributes(d *resourcev1.Device, local string, yield func(resourcev1.DeviceAttribute)) {
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		if string(name)[strings.LastIndexByte(string(name), '/')+1:] == local {
			yield(d.Attributes[name])
		}
	}
}

// numbers are the NUMA nodes that attributes name, each attribute with a list.
func numbers(d *resourcev1.Device) (all [][]int) {
	for _, local := range numaAttributes {
		attributes(d, local, func(a resourcev1.DeviceAttribute) {
			var list []int
			if a.IntValue != nil {
				list = append(list, int(*a.IntValue))
			}
			for _, n := range a.IntValues {
				list = append(list, int(n))
			}
			all = append(all, list)
		})
	}
	return all
}

// text is the first text of the attributes with some local names, the first of a list; otherwise where there is none.
func text(d *resourcev1.Device, names []string, otherwise string) string {
	found := ""
	for _, local := range names {
		attributes(d, local, func(a resourcev1.DeviceAttribute) {
			list := a.StringValues
			if a.StringValue != nil {
				list = []string{*a.StringValue}
			}
			if found == "" && len(list) > 0 {
				found = list[0]
			}
		})
	}
	if found == "" {
		return otherwise
	}
	return found
}

// sortOf is equal for devices that requests are not expected to distinguish: of one driver, one model, one capacity.
func sortOf(driver string, d *resourcev1.Device) string {
	sort := driver
	for _, local := range sortAttributes {
		attributes(d, local, func(a resourcev1.DeviceAttribute) {
			if a.StringValue != nil {
				sort += " " + local + "=" + *a.StringValue
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		value := d.Capacity[name].Value
		sort += fmt.Sprint(" ", name, "=", value.String())
	}
	return sort
}
