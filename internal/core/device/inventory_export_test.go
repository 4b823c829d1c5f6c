package device

import "slices"

// Weights returns the links of the GPUs of a node.
func (inv *Inventory) Weights() []int32 { return inv.rack(GPU).class.w }

// Untabled returns the account on classes without tables.
func (v *View) Untabled() *View {
	inv := *v.Inventory
	inv.racks = slices.Clone(inv.racks)
	for i := range inv.racks {
		inv.racks[i].class = inv.racks[i].class.Untabled()
	}
	return v.On(&inv)
}
