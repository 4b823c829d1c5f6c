package device

import (
	"math/bits"
	"reflect"
	"slices"

	"github.com/tenon-project/tenon/internal/core/why"
)

// Union returns the best-linked set of GPUs that several requests could have together, by ID, and its keys; ok is
// false where they do not all ask for whole GPUs of one kind, or so many are not free. A request that chooses within it
// leaves the others what is best linked of the rest.
func (v *View) Union(requests []*Request, o *Options) (ids map[string]bool, keys Keys, ok bool) {
	all := &Request{}
	for _, r := range requests {
		parts := r.partsOf(GPU)
		if len(parts) == 0 {
			continue
		}
		group := v.group(GPU)
		if group == nil || slices.ContainsFunc(parts, func(p Part) bool { return !p.Need.Whole }) {
			return nil, Keys{}, false
		}
		packed, _ := packings(parts, group.n)
		part := Part{Type: GPU, Need: parts[0].Need}
		switch {
		case len(packed) == 0:
			return nil, Keys{}, false
		case len(all.Parts) == 0:
			all.Parts = []Part{part}
			all.Hints = map[Type]Hint{GPU: r.Hints[GPU]}
		case part.Need != all.Parts[0].Need || !reflect.DeepEqual(r.Hints[GPU], all.Hints[GPU]):
			return nil, Keys{}, false
		}
		all.Parts[0].Count += int64(len(packed[0]))
	}
	if len(all.Parts) == 0 {
		return nil, Keys{}, false
	}
	chosen, refused := v.Choose(all, o)
	if refused.Code != why.None {
		return nil, Keys{}, false
	}
	ids = map[string]bool{}
	group := v.group(GPU)
	for mask := chosen.Keys.Mask; mask != 0; mask &= mask - 1 {
		ids[v.units[group.first+bits.TrailingZeros64(mask)].ID] = true
	}
	return ids, chosen.Keys, true
}

// within returns the devices of a group that are to be chosen.
func (s *search) within(r *typeGroup) uint64 {
	if s.opt.Within == nil || r.kind != GPU {
		return ^uint64(0)
	}
	return r.those(func(at int) bool { return s.opt.Within[s.view.units[at].ID] })
}
