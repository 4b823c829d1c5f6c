package hint

import (
	"math/bits"
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// ranking orders hints that are not preferred: of size best, then below it from large to small, then above it from
// small to large.
type ranking struct {
	rule *Rule
	best int
}

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

func (k ranking) before(a, b topo.NodeSet) bool {
	if ca, cb := k.class(a), k.class(b); ca != cb {
		return ca < cb
	}
	return k.rule.closer(a, b)
}

// reachable returns the best of all masks that come out of one hint of each list; false: all of them are empty, or they
// are of more than WalkNodes nodes.
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
	f := w.folded(active)
	for _, l := range lists {
		for _, h := range l {
			f.add(h.Mask)
		}
		f.meet()
	}
	return f.pick(key)
}

// fold is the set of masks that lists come to, one after the other. Nodes that some list never has are left out: masks
// inside are of the active nodes only, closed up.
type fold struct {
	active topo.NodeSet
	fresh  bool // no list yet
	masks  []uint32
	list   []uint32 // of the list that is being added, without duplicates
	out    []uint32
	seen   []uint32 // Invariant: seen[m] = 1 for m in list while a list is added, else all 0
	x, y   []uint32
}

// folded returns the fold of no list. active are at most WalkNodes nodes.
func (w *Scratch) folded(active topo.NodeSet) *fold {
	f := &w.fold
	f.active, f.fresh = active, true
	f.masks, f.list = f.masks[:0], f.list[:0]
	f.seen = grow(f.seen, 1<<active.Len())
	return f
}

// add adds a mask to the list that is being added; 0 = any nodes.
func (f *fold) add(m topo.NodeSet) {
	if m == 0 {
		m = f.active
	}
	f.addClosed(f.closeUp(m & f.active))
}

// addClosed adds a mask of closed-up nodes.
func (f *fold) addClosed(m uint32) {
	if m != 0 && f.seen[m] == 0 {
		f.seen[m] = 1
		f.list = append(f.list, m)
	}
}

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

func (f *fold) spreadOut(closed uint32) topo.NodeSet {
	if f.active&(f.active+1) == 0 {
		return topo.NodeSet(closed)
	}
	var m topo.NodeSet
	for rest := f.active; rest != 0; rest &= rest - 1 {
		m |= topo.NodeSet(closed&1) << rest.First()
		closed >>= 1
	}
	return m
}

// meet ends the list: the set becomes all intersections of one of its masks with one of the list.
func (f *fold) meet() {
	for _, m := range f.list {
		f.seen[m] = 0
	}
	n := bits.Len(uint(len(f.seen))) - 1
	switch {
	case f.fresh:
		f.fresh = false
		f.masks, f.list = f.list, f.masks
	case len(f.masks)*len(f.list) <= 3*n<<n:
		f.meetPairs()
	default:
		f.meetVectors()
	}
	f.list = f.list[:0]
}

func (f *fold) meetPairs() {
	f.out = f.out[:0]
	for _, a := range f.masks {
		for _, b := range f.list {
			if m := a & b; m != 0 && f.seen[m] == 0 {
				f.seen[m] = 1
				f.out = append(f.out, m)
			}
		}
	}
	for _, m := range f.out {
		f.seen[m] = 0
	}
	f.masks, f.out = f.out, f.masks
}

// meetVectors counts, mask by mask, the pairs that contain it, and from these the pairs that come to it. Counts are
// exact modulo 2^32, and below 2^30 for every mask but the empty one.
func (f *fold) meetVectors() {
	f.x, f.y = grow(f.x, len(f.seen)), grow(f.y, len(f.seen))
	clear(f.x)
	clear(f.y)
	for _, m := range f.masks {
		f.x[m] = 1
	}
	for _, m := range f.list {
		f.y[m] = 1
	}
	sumSupersets(f.x, 1)
	sumSupersets(f.y, 1)
	for m := range f.x {
		f.x[m] *= f.y[m]
	}
	sumSupersets(f.x, ^uint32(0))
	f.masks = f.masks[:0]
	for m := 1; m < len(f.x); m++ {
		if f.x[m] != 0 {
			f.masks = append(f.masks, uint32(m))
		}
	}
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

// pick returns the best mask of the set.
func (f *fold) pick(key ranking) (topo.NodeSet, bool) {
	best, found := topo.NodeSet(0), false
	for _, closed := range f.masks {
		if m := f.spreadOut(closed); !found || key.before(m, best) {
			best, found = m, true
		}
	}
	return best, found
}
