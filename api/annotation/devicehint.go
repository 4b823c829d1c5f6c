package annotation

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How a request for devices is spread (DeviceHint.AllocateStrategy).
const (
	// ApplyForAll takes the amount from every matching device.
	ApplyForAll = "ApplyForAll"
	// RequestsAsCount reads the amount as a number of devices.
	RequestsAsCount = "RequestsAsCount"
)

// Scopes that hold all devices of a type (DeviceHint.RequiredTopologyScope), the narrowest first.
const (
	ScopeDevice   = "Device"
	ScopePCIe     = "PCIe"
	ScopeNUMANode = "NUMANode"
	ScopeNode     = "Node"
)

// Which devices are too much used already (DeviceHint.ExclusivePolicy).
const (
	// ExclusiveDevice allows devices alone that no pod uses.
	ExclusiveDevice = "DeviceLevel"
	// ExclusivePCIe allows devices alone below a pcieID where no pod uses a device of the type.
	ExclusivePCIe = "PCIeLevel"
)

// DeviceAllocateHints are what a pod demands of its devices beside amounts, by type (DeviceAllocateHintKey).
type DeviceAllocateHints map[DeviceType]DeviceHint

// DeviceHint is what a pod demands of the devices of one type. Each field is a condition that must hold.
type DeviceHint struct {
	// Selector selects devices by their labels.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// VFSelector demands a virtual function, of a group with these labels. An empty selector selects every group.
	VFSelector *metav1.LabelSelector `json:"vfSelector,omitempty"`
	// AllocateStrategy is ApplyForAll or RequestsAsCount; not for GPUs.
	AllocateStrategy string `json:"allocateStrategy,omitempty"`
	// RequiredTopologyScope is the scope that all devices must be in together.
	RequiredTopologyScope string `json:"requiredTopologyScope,omitempty"`
	// ExclusivePolicy is ExclusiveDevice or ExclusivePCIe.
	ExclusivePolicy string `json:"exclusivePolicy,omitempty"`
}

// String returns the canonical JSON.
func (h DeviceAllocateHints) String() string {
	if h == nil {
		h = DeviceAllocateHints{}
	}
	return encode(h)
}

// ParseDeviceAllocateHints returns what reads DeviceAllocateHints where Device objects list other types of device, too.
// An unknown field is refused: no demand may be lost.
func ParseDeviceAllocateHints(others ...DeviceType) func(string) (DeviceAllocateHints, []Warning, error) {
	types := append([]DeviceType{DeviceGPU, DeviceRDMA, DeviceFPGA}, others...)
	return reads(func(r *reader, hints *DeviceAllocateHints) {
		r.refuseUnknown()
		for _, kind := range sorted(*hints) {
			if !slices.Contains(types, kind) {
				r.refuse(kind, Error{Value: kind, Allowed: types, Text: Unsupported(kind, types...)})
			}
			h := (*hints)[kind]
			r.selector(kind+".selector", h.Selector)
			r.selector(kind+".vfSelector", h.VFSelector)
			r.word(kind+".allocateStrategy", &h.AllocateStrategy, []string{ApplyForAll, RequestsAsCount})
			r.word(kind+".requiredTopologyScope", &h.RequiredTopologyScope,
				[]string{ScopeDevice, ScopePCIe, ScopeNUMANode, ScopeNode})
			r.word(kind+".exclusivePolicy", &h.ExclusivePolicy, []string{ExclusiveDevice, ExclusivePCIe})
			if kind == DeviceGPU && h.AllocateStrategy != "" {
				h.AllocateStrategy = ""
				r.warnings = append(r.warnings, Warning{"gpu.allocateStrategy", "has no effect: it is not for GPUs"})
			}
			(*hints)[kind] = h
		}
	})
}

// refuseUnknown refuses the unknown fields that decode has warned of.
func (r *reader) refuseUnknown() {
	for _, w := range r.warnings {
		if strings.HasPrefix(w.Text, "unknown field") {
			r.refuse(w.Field, Error{Text: w.Text})
		}
	}
}

func (r *reader) selector(field string, s *metav1.LabelSelector) {
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		r.refuse(field, Error{Text: err.Error()})
	}
}

// Scopes of DeviceJointAllocate.
const (
	// SamePCIe demands devices below the same root complexes.
	SamePCIe = "SamePCIe"
	// SamePCIeSwitch demands a common bridge below the root complex. It is Tenon's own.
	SamePCIeSwitch = "SamePCIeSwitch"
)

// DeviceJointAllocate is which types of device a pod wants close to each other (DeviceJointAllocateKey).
type DeviceJointAllocate struct {
	// DeviceTypes are the types, each once. The first one is chosen, the others follow it.
	DeviceTypes []DeviceType `json:"deviceTypes,omitempty"`
	// RequiredScope is SamePCIe or SamePCIeSwitch; "" prefers close devices, and takes others.
	RequiredScope string `json:"requiredScope,omitempty"`
}

// ParseDeviceJointAllocate returns what reads a DeviceJointAllocate where Device objects list other types of device,
// too. An unknown field is refused: no demand may be lost.
func ParseDeviceJointAllocate(others ...DeviceType) func(string) (DeviceJointAllocate, []Warning, error) {
	types := append([]DeviceType{DeviceGPU, DeviceRDMA, DeviceFPGA}, others...)
	return reads(func(r *reader, j *DeviceJointAllocate) {
		r.refuseUnknown()
		for i := range j.DeviceTypes {
			if j.DeviceTypes[i] == "" {
				r.refuse("deviceTypes", *invalid("", "must be one of "+strings.Join(types, ", ")))
			}
			r.word("deviceTypes", &j.DeviceTypes[i], types)
		}
		if kind, bad := repeated(j.DeviceTypes); bad {
			r.refuse("deviceTypes", *invalid(kind, "must be listed once"))
		}
		r.word("requiredScope", &j.RequiredScope, []string{SamePCIe, SamePCIeSwitch})
		if j.RequiredScope != "" && len(j.DeviceTypes) < 2 {
			j.RequiredScope = ""
			const text = "has no effect: deviceTypes names fewer than two types"
			r.warnings = append(r.warnings, Warning{"requiredScope", text})
		}
	})
}
