package device

import (
	"math/bits"
	"slices"
)

// closeness reads how close two devices are from where they are connected.
func closeness(a, b *unit) int64 {
	common := 0
	for common < min(len(a.Bridges), len(b.Bridges)) && a.Bridges[common] == b.Bridges[common] {
		common++
	}
	switch {
	case common > 1 && len(a.Bridges)-common <= 1 && len(b.Bridges)-common <= 1:
		return SameSwitch
	case common > 1:
		return SameBridges
	case common == 1, a.pcie >= 0 && a.pcie == b.pcie:
		return SameRoot
	case a.node != 0 && a.node == b.node:
		return SameNode
	}
	return Remote
}

// weights are the links of a group: entry i·n+j is 100 · lanes + closeness, in the weaker direction, and 0 for a device
// with itself.
func (inv *Inventory) weights(r *typeGroup, s *Spec) []int32 {
	local := func(t Type, id string) int {
		if i, ok := inv.locate(t, id); ok && t == r.kind {
			return i - r.first
		}
		return -1
	}
	n := r.n
	directed, switched := slices.Repeat([]int64{-1}, n*n), make([]int64, n*n)
	for _, l := range s.Links {
		if a, b := local(l.Type, l.A), local(l.Type, l.B); a >= 0 && b >= 0 {
			directed[a*n+b] = max(directed[a*n+b], 0) + bounded(l.Lanes)
		}
	}
	for _, sw := range s.Switches {
		for a, lanes := range sw.Lanes {
			for b, to := range sw.Lanes {
				if i, j := local(sw.Type, a), local(sw.Type, b); i >= 0 && j >= 0 {
					switched[i*n+j] += bounded(min(lanes, to))
				}
			}
		}
	}
	w := make([]int32, n*n)
	for i := range n {
		for j := range n {
			if i == j {
				continue
			}
			there, back := directed[i*n+j], directed[j*n+i]
			lanes := min(there, back)
			if lanes < 0 { // no link says one direction, or both
				lanes = max(there, back, 0)
			}
			w[i*n+j] = int32(lane*bounded(lanes+switched[i*n+j]) +
				closeness(&inv.units[r.first+i], &inv.units[r.first+j]))
		}
	}
	return w
}

// mostLanes bounds the lanes between two devices, so that sums over 64 devices are exact in 32 bits.
const mostLanes = 10_000

// bounded returns a number of lanes from 0 to mostLanes.
func bounded(lanes int64) int64 { return min(max(lanes, 0), mostLanes) }

// Lanes returns the direct links between the devices of a type: entry i·n+j is the number of lanes between devices i
// and j of the n, in the order of View.Devices.
func (inv *Inventory) Lanes(t Type) []int64 {
	r := inv.group(t)
	if r == nil {
		return nil
	}
	lanes := make([]int64, len(r.class.w))
	for i, w := range r.class.w {
		lanes[i] = int64(w / lane)
	}
	return lanes
}

// LinkRegret compares the links of the GPUs of some grants with those of the best set of as many: how much heavier
// these are where the node has no pods. k is their number, 0 where it is less than two or the node has too many GPUs to
// know.
func (v *View) LinkRegret(grants []Grant) (model string, k int, regret int64) {
	r, mask := v.group(GPU), uint64(0)
	for i := range grants {
		if at, ok := v.locate(GPU, grants[i].ID); ok && grants[i].Type == GPU {
			mask |= 1 << (at - r.first)
		}
	}
	if k = bits.OnesCount64(mask); k < 2 || r.class.order == nil {
		return "", 0, 0
	}
	best, has := r.class.keys(uint64(r.class.order[k][0])), r.class.keys(mask)
	return v.units[r.first].Model, k, max(best.Links+best.Levels-has.Links-has.Levels, 0)
}
