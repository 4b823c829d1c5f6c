package view

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/internal/core/device"
)

// Device is what a pod holds of one device of its node.
type Device struct {
	// Minor is the number of the device file; -1 where it is not known.
	Minor int32 `json:"minor"`
	// ID is the UUID or the PCI address; absent where an old annotation has the minor alone.
	ID string `json:"id,omitempty"`
	// Resources are canonical Kubernetes strings by resource.
	Resources map[string]string `json:"resources"`
}

// DevicesOf returns what a pod holds, by type, then minor.
func DevicesOf(grants []device.Grant) map[string][]Device {
	out := map[string][]Device{}
	for i := range grants {
		g := &grants[i]
		d := Device{Minor: g.Minor, ID: g.ID, Resources: map[string]string{}}
		for name, n := range g.Amount.Amounts(g.Type, g.Ratio) {
			if d.Resources[name] = CountText(n); name == device.GPUMemory {
				d.Resources[name] = BytesText(n)
			}
		}
		out[string(g.Type)] = append(out[string(g.Type)], d)
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b Device) int {
			return cmp.Or(cmp.Compare(a.Minor, b.Minor), cmp.Compare(a.ID, b.ID))
		})
	}
	return out
}
