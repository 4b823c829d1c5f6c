package annotation

import (
	gojson "encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// MaxLanes bounds the lanes of a link; today's most is 18.
const MaxLanes = 1000

// DeviceLinks are the connections between the devices of a node (DeviceLinksKey). They are an annotation, for
// Koordinator's definition of a Device has no field for them.
type DeviceLinks struct {
	// Links connect two devices. Of both directions of a pair the smaller one counts.
	Links []DeviceLink `json:"links,omitempty"`
	// Switches connect each of their devices with each other one.
	Switches []DeviceLink `json:"switches,omitempty"`
	// Bridges are the PCI bridges from the root complex to a device, by the device's PCI address.
	Bridges map[string][]string `json:"bridges,omitempty"`
	// LaneBandwidth is what a lane between GPUs carries in one direction, in bytes per second; nil = not known.
	LaneBandwidth *resource.Quantity `json:"laneBandwidth,omitempty"`
}

// DeviceLink is a connection between devices.
type DeviceLink struct {
	// IDs are the ids of the devices in the Device object.
	IDs []string `json:"ids"`
	// Type is NVLink, XGMI, HCCS or another.
	Type string `json:"type,omitempty"`
	// Count is the number of lanes, of each device at a switch: 1…1000. Default: 1.
	Count int32 `json:"count"`
}

// UnmarshalJSON sets the default.
func (l *DeviceLink) UnmarshalJSON(text []byte) error {
	type plain DeviceLink
	p := plain{Count: 1}
	if err := gojson.Unmarshal(text, &p); err != nil {
		return err
	}
	*l = DeviceLink(p)
	return nil
}

// String returns the canonical JSON.
func (l DeviceLinks) String() string { return encode(l) }

// ParseDeviceLinks reads DeviceLinks.
func ParseDeviceLinks(text string) (DeviceLinks, []Warning, error) {
	return readAmounts(text, func(r *reader, l *DeviceLinks) {
		r.amount("laneBandwidth", l.LaneBandwidth)
		for _, one := range l.Links {
			if len(one.IDs) != 2 {
				r.refuse("links.ids", Error{Text: fmt.Sprintf("must be 2 devices, got %d", len(one.IDs))})
			}
			r.link("links", one)
		}
		for _, one := range l.Switches {
			r.link("switches", one)
		}
		for _, device := range sorted(l.Bridges) {
			if bridge, bad := repeated(l.Bridges[device]); bad || device == "" {
				r.refuse("bridges", *invalid(bridge, "must be addresses, each once, below the address of a device"))
			}
		}
	})
}

func (r *reader) link(field string, l DeviceLink) {
	if id, bad := repeated(l.IDs); bad {
		r.refuse(field+".ids", *invalid(id, "must be ids of devices, each once"))
	}
	if l.Count < 1 || l.Count > MaxLanes {
		r.refuse(field+".count", Error{Text: fmt.Sprintf("must be 1…%d, got %d", MaxLanes, l.Count)})
	}
}
