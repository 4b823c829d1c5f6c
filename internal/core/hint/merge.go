package hint

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// Answer returns the best hint of the lists and whether the policy admits it, exactly as the kubelet's merge does, also
// of hints that it refuses. Under None the answer is the empty hint, which is not preferred, and true. Lists with masks
// of more than WalkNodes nodes count as having no common mask that is not preferred. w may be nil.
func (r *Rule) Answer(lists []List, w *Scratch) Answer {
	if r.Policy == None {
		return Answer{Admitted: true}
	}
	if w == nil {
		w = new(Scratch)
	}
	if m, found := r.preferred(lists, w); found {
		return r.finish(Hint{Mask: m, Preferred: true}, true)
	}
	if r.Policy == SingleNUMANode { // what is left of the lists is preferred or disjoint
		return r.finish(Hint{}, false)
	}
	best, found := r.reachable(lists, w)
	return r.finish(Hint{Mask: best}, found)
}

// takes reports whether the policy uses a hint at all.
func (r *Rule) takes(h Hint) bool {
	return r.Policy != SingleNUMANode || h.Preferred && h.Mask.Len() <= 1
}

// indifferent reports whether a list has a preferred hint for any nodes: it imposes nothing on a preferred answer.
func indifferent(l List) bool {
	return l == nil || slices.Contains(l, Hint{Preferred: true})
}

// preferred returns the best mask that every list prefers. The kubelet compares masks before it drops nodes that the
// machine does not have, so masks are compared as they come.
func (r *Rule) preferred(lists []List, w *Scratch) (topo.NodeSet, bool) {
	all := topo.FirstNodes(r.Nodes)
	common, own, imposed := w.common[:0], w.own[:0], false
	defer func() { w.common, w.own = common, own }()
	for _, l := range lists {
		if indifferent(l) {
			continue
		}
		own = own[:0]
		for _, h := range l {
			if h.Preferred && r.takes(h) {
				own = append(own, h.Mask)
			}
		}
		if !imposed {
			common, own, imposed = own, common, true
			continue
		}
		slices.Sort(own)
		common = slices.DeleteFunc(common, func(m topo.NodeSet) bool {
			_, wanted := slices.BinarySearch(own, m)
			return !wanted
		})
	}
	if !imposed {
		common = append(common, all)
		for _, l := range lists {
			for _, h := range l {
				if h.Preferred && h.Mask != 0 && r.takes(h) {
					common = append(common, h.Mask)
				}
			}
		}
	}
	best, found := topo.NodeSet(0), false
	for _, m := range common {
		if m &= all; m != 0 && (!found || r.better(m, best)) {
			best, found = m, true
		}
	}
	return best, found
}

// better reports whether a mask is smaller, or as large and closer.
func (r *Rule) better(a, b topo.NodeSet) bool {
	if la, lb := a.Len(), b.Len(); la != lb {
		return la < lb
	}
	return r.closer(a, b)
}

// Scratch holds the buffers of a merge, so that the next one allocates nothing. The zero value is ready. One goroutine
// at a time.
type Scratch struct {
	fold  fold
	table []int64 // of a walk
	sums  []int64 // of one resource, mask by mask
	short []bool  // masks without the memory
	// Of lists: the masks that those so far prefer in common, and those of one list.
	common, own []topo.NodeSet
}

// WalkNodes is the number of nodes up to which a kubelet walks all masks within half a minute: at 256 CPUs it takes
// 46 µs for a mask, so 24 s for all masks of 19 nodes, and twice that for each node more. Up to there a set of masks
// is a vector with one place for each mask.
const WalkNodes = 19

// grow returns s with n places; new ones are zero.
func grow[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	return make([]T, n)
}
