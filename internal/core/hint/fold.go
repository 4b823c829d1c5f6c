package hint

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// ranking orders masks that are not preferred: masks of size best, then smaller ones from large to small, then larger
// ones from small to large. Masks of one size are ordered by Rule.closer.
type ranking struct {
	rule *Rule
	// best is the largest, over all lists, of the sizes of their narrowest masks.
	best int
}

// class orders masks by size: the best size first, then smaller ones, the largest first, then larger ones, the smallest
// first.
func (k ranking) class(m topo.NodeSet) int {
	switch n := m.Len(); {
	case n == k.best:
		return 0
	case n < k.best:
		return 1 + topo.MaxNodes - n
	default:
		return 1 + topo.MaxNodes + n
	}
}

// before reports whether the kubelet prefers a to b.
func (k ranking) before(a, b topo.NodeSet) bool {
	if ca, cb := k.class(a), k.class(b); ca != cb {
		return ca < cb
	}
	return k.rule.closer(a, b)
}

// reachable returns the best mask, by ranking, of all combinations of one hint of each list (M2 in doc.go). It returns
// false if all masks are empty, or the lists have more than WalkNodes nodes in common.
func (r *Rule) reachable(lists []List, w *Scratch) (topo.NodeSet, bool) {
	lists = slices.DeleteFunc(slices.Clone(lists), func(l List) bool { return len(l) == 0 })
	active, key := topo.FirstNodes(r.Nodes), ranking{rule: r}
	for _, l := range lists {
		union, narrowest := topo.NodeSet(0), 0
		for _, h := range l {
			if h.Mask == 0 {
				union = ^topo.NodeSet(0)
				continue
			}
			union |= h.Mask
			if n := h.Mask.Len(); narrowest == 0 || n < narrowest {
				narrowest = n
			}
		}
		active &= union
		key.best = max(key.best, narrowest)
	}
	if len(lists) == 0 {
		return active, active != 0
	}
	if active.Len() > WalkNodes {
		return 0, false
	}
	f := w.newFold(active)
	for _, l := range lists {
		for _, h := range l {
			f.addMask(h.Mask)
		}
		f.intersectList()
	}
	return f.best(key)
}

// fold is the set of masks that combinations of lists come to, extended list by list. Nodes that some list never has
// are left out: a mask is stored as a number whose bits are the active nodes in ascending order.
type fold struct {
	// active are the nodes that every list has; all masks are cut to them.
	active topo.NodeSet
	// fresh is true until the first list has been added.
	fresh bool
	// masks is 1 at the place of each mask in the set, else 0.
	masks []uint32
	// list is the same for the list that is being added. It is all 0 between two lists.
	list []uint32
}

// newFold returns the fold of no list, in buffers of w. active are at most WalkNodes nodes.
func (w *Scratch) newFold(active topo.NodeSet) *fold {
	f := &w.fold
	f.active, f.fresh = active, true
	f.masks, f.list = grow(f.masks, 1<<active.Len()), grow(f.list, 1<<active.Len())
	clear(f.list)
	return f
}

// addMask adds a mask to the list that is being added; 0 stands for any nodes.
func (f *fold) addMask(m topo.NodeSet) {
	if m == 0 {
		m = f.active
	}
	f.list[f.closeUp(m&f.active)] = 1
}

// closeUp returns the number under which a mask of active nodes is stored.
func (f *fold) closeUp(m topo.NodeSet) uint32 {
	if f.active&(f.active+1) == 0 {
		return uint32(m)
	}
	var closed uint32
	place := 0
	for rest := f.active; rest != 0; rest &= rest - 1 {
		closed |= uint32(m>>rest.First()&1) << place
		place++
	}
	return closed
}

// spreadOut returns those of the nodes whose places are in closed.
func spreadOut(nodes topo.NodeSet, closed uint32) topo.NodeSet {
	var m topo.NodeSet
	for rest := nodes; closed != 0; rest &= rest - 1 {
		m |= topo.NodeSet(closed&1) << rest.First()
		closed >>= 1
	}
	return m
}

// intersectList ends the list: the set becomes all intersections of one of its masks with one of the list's. It counts,
// for each mask, the pairs whose masks both contain it, and from these the pairs whose intersection it is (M3 in
// doc.go).
func (f *fold) intersectList() {
	if f.fresh {
		f.fresh = false
		f.masks, f.list = f.list, f.masks
	} else {
		sumSupersets(f.masks, 1)
		sumSupersets(f.list, 1)
		for m := range f.masks {
			f.masks[m] *= f.list[m]
		}
		sumSupersets(f.masks, ^uint32(0))
		for m, pairs := range f.masks {
			f.masks[m] = min(pairs, 1)
		}
	}
	clear(f.list)
}

// sumSupersets replaces v[m] by the sum over all masks that contain m, with sign 1; with sign 2^32-1 it undoes that.
func sumSupersets(v []uint32, sign uint32) {
	for half := 1; half < len(v); half <<= 1 {
		for at := 0; at < len(v); at += 2 * half {
			without, with := v[at:at+half], v[at+half:at+2*half]
			for i := range without {
				without[i] += sign * with[i]
			}
		}
	}
}

// best returns the best mask of the set by ranking; false if the set has no mask but the empty one.
func (f *fold) best(key ranking) (topo.NodeSet, bool) {
	best, found := topo.NodeSet(0), false
	for closed := 1; closed < len(f.masks); closed++ {
		if f.masks[closed] == 0 {
			continue
		}
		if m := spreadOut(f.active, uint32(closed)); !found || key.before(m, best) {
			best, found = m, true
		}
	}
	return best, found
}
