package device

import "slices"

// Weights returns the links of the GPUs of a node.
func (inv *Inventory) Weights() []int32 { return inv.group(GPU).class.w }

// Untabled returns the account on classes without tables.
func (v *View) Untabled() *View {
	inv, equal := *v.Inventory, *v.server
	inv.server = &equal
	inv.groups = slices.Clone(inv.groups)
	for i := range inv.groups {
		inv.groups[i].class = inv.groups[i].class.Untabled()
	}
	return v.On(&inv)
}
