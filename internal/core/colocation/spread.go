package colocation

import "math/bits"

// Zone is a NUMA node: what batch pods could have of it if nothing else ran, and what is used of it by all.
type Zone struct{ Capacity, Use Amounts }

// Spread divides what batch pods are granted of a node over its NUMA nodes, in proportion to what others leave there.
// batchUse is what batch pods use of the node; they run on all NUMA nodes alike. No NUMA node gets more than others
// leave, so that the parts may be less together than what is granted.
func Spread(granted, batchUse Amounts, zones []Zone) []Amounts {
	parts := make([]Amounts, len(zones))
	for r := range resources {
		var capacity, left int64
		for i := range zones {
			capacity += zones[i].Capacity[r]
		}
		for i, z := range zones {
			others := max(z.Use[r]-proportion(batchUse[r], z.Capacity[r], capacity), 0)
			parts[i][r] = max(z.Capacity[r]-others, 0)
			left += parts[i][r]
		}
		// Each zone gets what its room is of the room that is left, of what is left to grant: the sum is exact.
		for i, rest := 0, min(max(granted[r], 0), left); i < len(parts); i++ {
			room := parts[i][r]
			parts[i][r] = proportion(rest, room, left)
			rest, left = rest-parts[i][r], left-room
		}
	}
	return parts
}

// proportion returns n · part / whole, rounded down, without overflow; 0 of nothing. part is at most whole.
func proportion(n, part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(n), uint64(part))
	quotient, _ := bits.Div64(high, low, uint64(whole))
	return int64(quotient)
}
