package annotation

import (
	"cmp"
	gojson "encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Policies of GPUPartitionSpec.
const (
	// PartitionBestEffort tries partitions of a lower score too.
	PartitionBestEffort = "BestEffort"
	// PartitionRestricted allows partitions of the highest score alone.
	PartitionRestricted = "Restricted"
)

// GPUPartitionSpec is what a pod demands of its GPU partition (GPUPartitionSpecKey).
type GPUPartitionSpec struct {
	// AllocatePolicy is PartitionBestEffort or PartitionRestricted. Default: PartitionBestEffort.
	AllocatePolicy string `json:"allocatePolicy,omitempty"`
	// RingBusBandwidth is the least bandwidth between the GPUs, in bytes per second; nil = any.
	RingBusBandwidth *resource.Quantity `json:"ringBusBandwidth,omitempty"`
}

// ParseGPUPartitionSpec reads a GPUPartitionSpec.
func ParseGPUPartitionSpec(text string) (GPUPartitionSpec, []Warning, error) {
	return readAmounts(text, func(r *reader, s *GPUPartitionSpec) {
		s.AllocatePolicy = cmp.Or(s.AllocatePolicy, PartitionBestEffort)
		r.word("allocatePolicy", &s.AllocatePolicy, []string{PartitionBestEffort, PartitionRestricted})
		r.amount("ringBusBandwidth", s.RingBusBandwidth)
	})
}

func (r *reader) amount(field string, q *resource.Quantity) {
	if q != nil {
		r.atLeastZero(field, int64(q.Sign()))
	}
}

// GPUPartitions are the sets of GPUs that a node can give out together, by their number of GPUs (GPUPartitionsKey).
type GPUPartitions map[int][]GPUPartition

// GPUPartition is one set of GPUs.
type GPUPartition struct {
	// Minors of the GPUs. Where devices have a moduleID, it is meant: the fabric numbers GPUs by it.
	Minors []int32 `json:"minors"`
	// GPULinkType is NVLink or a vendor's own.
	GPULinkType string `json:"gpuLinkType,omitempty"`
	// RingBusBandwidth is the bandwidth between the GPUs, in bytes per second; nil = not known.
	RingBusBandwidth *resource.Quantity `json:"ringBusBandwidth,omitempty"`
	// AllocationScore: partitions of a higher score are tried before others of the same size.
	AllocationScore int32 `json:"allocationScore,omitempty"`
}

// String returns the canonical JSON.
func (p GPUPartitions) String() string {
	if p == nil {
		p = GPUPartitions{}
	}
	return encode(p)
}

// partitionInput is a GPUPartition as it may be found: with a misspelling of Koordinator's, with a score in quotes.
type partitionInput struct {
	GPUPartition
	RindBusBandwidth *resource.Quantity `json:"rindBusBandwidth"`
	AllocationScore  numberOrString     `json:"allocationScore"`
}

type numberOrString int32

func (n *numberOrString) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	v, err := strconv.ParseInt(strings.Trim(string(text), `"`), 10, 32)
	if err != nil {
		return fmt.Errorf("want a whole number that fits int32, got %.64s", gojson.RawMessage(text))
	}
	*n = numberOrString(v)
	return nil
}

// ParseGPUPartitions reads GPUPartitions; rindBusBandwidth is read for ringBusBandwidth, a score may be a string.
func ParseGPUPartitions(text string) (GPUPartitions, []Warning, error) {
	var table GPUPartitions
	_, warnings, err := readAmounts(text, func(r *reader, in *map[int][]partitionInput) {
		table = make(GPUPartitions, len(*in))
		for _, size := range sorted(*in) {
			field := strconv.Itoa(size)
			for _, p := range (*in)[size] {
				if p.GPUPartition.RingBusBandwidth == nil {
					p.GPUPartition.RingBusBandwidth = p.RindBusBandwidth
				}
				p.GPUPartition.AllocationScore = int32(p.AllocationScore)
				if len(p.Minors) != size || size == 0 {
					r.refuse(field, Error{Text: fmt.Sprintf("has a partition of %d minors: must be as many as the "+
						"key says, from 1 on", len(p.Minors))})
				}
				var minors []string
				for _, minor := range p.Minors {
					r.atLeastZero(field+".minors", int64(minor))
					minors = append(minors, strconv.Itoa(int(minor)))
				}
				if minor, bad := repeated(minors); bad {
					r.refuse(field+".minors", *invalid(minor, "must be listed once in a partition"))
				}
				r.amount(field+".ringBusBandwidth", p.GPUPartition.RingBusBandwidth)
				table[size] = append(table[size], p.GPUPartition)
			}
		}
	})
	if err != nil {
		return nil, nil, err
	}
	return table, warnings, nil
}

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
