package annotation

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// DeviceAllocations are the devices that a pod got, one entry for each (DeviceAllocatedKey). They travel in the
// Binding.
type DeviceAllocations map[DeviceType][]DeviceAllocation

// DeviceAllocation is what a pod got of one device.
type DeviceAllocation struct {
	// Minor is informational beside an ID. Annotations of older versions have no ID: there it identifies the device.
	Minor *int32 `json:"minor,omitempty"`
	// ID is the UUID of a GPU, the PCI address of another device.
	ID string `json:"id,omitempty"`
	// Resources are the sum over the pod's containers.
	Resources DeviceAmounts    `json:"resources"`
	Extension *DeviceExtension `json:"extension,omitempty"`
}

// DeviceExtension is what a pod got of one device beside amounts.
type DeviceExtension struct {
	VFs []VirtualFunction `json:"vfs,omitempty"`
	// GPUSharedResourceTemplate names the template of an Ascend device.
	GPUSharedResourceTemplate string `json:"gpuSharedResourceTemplate,omitempty"`
	// Containers is the part of each container, by name. It is Tenon's own.
	Containers map[string]DeviceAmounts `json:"containers,omitempty"`
}

// VirtualFunction is a virtual function of a device.
type VirtualFunction struct {
	Minor int32 `json:"minor"`
	// BusID is the PCI address.
	BusID string `json:"busID"`
}

// String returns the canonical JSON: the devices of a type by id, then minor.
func (a DeviceAllocations) String() string {
	out := make(DeviceAllocations, len(a))
	for kind, devices := range a {
		out[kind] = slices.SortedStableFunc(slices.Values(devices), func(a, b DeviceAllocation) int {
			return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(minorOf(a), minorOf(b)))
		})
		for i, d := range out[kind] {
			if d.Resources == nil {
				out[kind][i].Resources = DeviceAmounts{}
			}
		}
	}
	return encode(out)
}

func minorOf(d DeviceAllocation) int64 {
	if d.Minor == nil {
		return math.MinInt64
	}
	return int64(*d.Minor)
}

// ParseDeviceAllocations reads DeviceAllocations. Every device needs an id or a minor, and is listed once.
func ParseDeviceAllocations(text string) (DeviceAllocations, []Warning, error) {
	return read(text, func(r *reader, a *DeviceAllocations) {
		for _, kind := range sorted(*a) {
			var devices, functions []string
			for i, d := range (*a)[kind] {
				switch {
				case d.ID != "":
					devices = append(devices, "id "+d.ID)
				case d.Minor != nil:
					devices = append(devices, fmt.Sprintf("minor %d without id", *d.Minor))
				default:
					r.refuse(kind, Error{Text: fmt.Sprintf("device %d of the list must have an id or a minor", i)})
				}
				if d.Extension != nil {
					for _, vf := range d.Extension.VFs {
						functions = append(functions, vf.BusID)
					}
				}
			}
			if device, bad := repeated(devices); bad {
				r.refuse(kind, Error{Text: fmt.Sprintf("%.64s is listed twice: must be listed once", device)})
			}
			if vf, bad := repeated(functions); bad {
				r.refuse(kind, *invalid(vf, "the busID of each of extension.vfs must be set, and listed once"))
			}
			if len((*a)[kind]) == 0 {
				delete(*a, kind)
			}
		}
	})
}

// GPUMinors are minors of GPUs (GPUMinorsKey).
type GPUMinors []int32

// String returns the minors, separated by commas.
func (m GPUMinors) String() string {
	var out []string
	for _, minor := range m {
		out = append(out, strconv.Itoa(int(minor)))
	}
	return strings.Join(out, ",")
}
