package device

import "math/bits"

// LinkRegret compares the links of the GPUs of some grants with those of the best set of as many: how much heavier
// these are where the node has no pods. k is their number, 0 where it is less than two or the node has too many GPUs to
// know.
func (v *View) LinkRegret(grants []Grant) (model string, k int, regret int64) {
	r, mask := v.group(GPU), uint64(0)
	for i := range grants {
		if at, ok := v.at[identity{GPU, grants[i].ID}]; ok && grants[i].Type == GPU {
			mask |= 1 << (at - r.first)
		}
	}
	if k = bits.OnesCount64(mask); k < 2 || r.class.order == nil {
		return "", 0, 0
	}
	best, has := r.class.keys(uint64(r.class.order[k][0])), r.class.keys(mask)
	return v.units[r.first].Model, k, max(best.Links+best.Levels-has.Links-has.Levels, 0)
}
