package annotation

import (
	"cmp"
	gojson "encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
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

// DevicesCheckpoints are the devices that a kubelet gave to pods that have none of a scheduler (DevicesCheckpointsKey).
type DevicesCheckpoints []DevicesCheckpoint

// DevicesCheckpoint is what one container got of one resource.
type DevicesCheckpoint struct {
	PodUID        types.UID `json:"podUID"`
	ContainerName string    `json:"containerName,omitempty"`
	ResourceName  string    `json:"resourceName,omitempty"`
	// DeviceIDs are as the device plugin names devices: a UUID, a UUID and the number of a replica, or an index.
	DeviceIDs []string `json:"deviceIDs"`
	// AllocResp is the plugin's answer to the kubelet, in base64. Nothing is read of it.
	AllocResp string `json:"allocResp,omitempty"`
}

// String returns the canonical JSON.
func (c DevicesCheckpoints) String() string {
	if c == nil {
		c = DevicesCheckpoints{}
	}
	return encode([]DevicesCheckpoint(c))
}

// checkpointInput is a DevicesCheckpoint as it may be found: with the ids by NUMA node, as kubelets write them.
type checkpointInput struct {
	DevicesCheckpoint
	DeviceIDs idsOrMap `json:"deviceIDs"`
}

type idsOrMap []string

func (ids *idsOrMap) UnmarshalJSON(text []byte) error {
	var list []string
	if gojson.Unmarshal(text, &list) != nil {
		var byNode map[int32][]string
		if err := gojson.Unmarshal(text, &byNode); err != nil {
			return fmt.Errorf("want a list of ids, or lists by NUMA node, got %.64s", gojson.RawMessage(text))
		}
		for _, node := range sorted(byNode) {
			list = append(list, byNode[node]...)
		}
	}
	*ids = nil
	listed := map[string]bool{}
	for _, id := range list {
		if id == "" {
			return fmt.Errorf("want ids that are not empty, got %.64s", gojson.RawMessage(text))
		}
		if !listed[id] {
			*ids = append(*ids, id)
		}
		listed[id] = true
	}
	return nil
}

// ParseDevicesCheckpoints reads DevicesCheckpoints; deviceIDs may be lists by NUMA node.
func ParseDevicesCheckpoints(text string) (DevicesCheckpoints, []Warning, error) {
	out := DevicesCheckpoints{}
	_, warnings, err := read(text, func(r *reader, in *[]checkpointInput) {
		for i, c := range *in {
			if c.PodUID == "" {
				r.refuse(fmt.Sprintf("[%d].podUID", i), *invalid("", "must be the UID of a pod"))
			}
			c.DevicesCheckpoint.DeviceIDs = append([]string{}, c.DeviceIDs...) // none is written as an empty list
			out = append(out, c.DevicesCheckpoint)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	return out, warnings, nil
}
