package convert

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/core/device"
)

// Published is a device of a ResourceSlice.
type Published struct {
	// Node is "" for a device that several nodes can use.
	Node string
	device.Hardware
}

// DeviceName is the name of a device of a pool, as Hardware has it.
func DeviceName(driver, pool, name string) string { return driver + "/" + pool + "/" + name }

// PublishedBy returns the devices of a slice, in its order.
func PublishedBy(s *resourcev1.ResourceSlice) []Published {
	list := make([]Published, len(s.Spec.Devices))
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		list[i] = Published{ptr.Deref(s.Spec.NodeName, ""), hardware(s.Spec.Driver, s.Spec.Pool.Name, d)}
		if ptr.Deref(s.Spec.PerDeviceNodeSelection, false) {
			list[i].Node = ptr.Deref(d.NodeName, "")
		}
	}
	return list
}

// Attributes of a card. Drivers write them with their own domain, or without one; AMD's writes pciAddr, and DraNet
// pciAddress.
var (
	uuidAttributes   = []string{"uuid"}
	parentAttributes = []string{"parentUUID"}
	busAttributes    = []string{"pciBusID", "pciAddress", "pciAddr"}
)

// hardware reads which card a device is.
func hardware(driver, pool string, d *resourcev1.Device) device.Hardware {
	h := device.Hardware{Name: DeviceName(driver, pool, d.Name)}
	names := slices.Sorted(maps.Keys(d.Attributes))
	read := func(attributes []string, accept func(string) bool) string {
		for _, attribute := range attributes {
			for _, name := range names {
				text := ptr.Deref(d.Attributes[name].StringValue, "")
				local := string(name)[strings.LastIndexByte(string(name), '/')+1:]
				if local == attribute && accept(text) {
					return text
				}
			}
		}
		return ""
	}
	h.UUID = read(uuidAttributes, func(text string) bool { return text != "" })
	h.Parent = read(parentAttributes, func(text string) bool { return text != "" })
	h.Bus = read(busAttributes, func(text string) bool { _, ok := device.ParseBus(text); return ok })
	return h
}

// OnlyNode returns the name of the node that a selector of an allocation selects by name; "" for another selector.
func OnlyNode(s *corev1.NodeSelector) string {
	if s == nil || len(s.NodeSelectorTerms) != 1 {
		return ""
	}
	for _, r := range s.NodeSelectorTerms[0].MatchFields {
		if r.Key == "metadata.name" && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 {
			return r.Values[0]
		}
	}
	return ""
}
