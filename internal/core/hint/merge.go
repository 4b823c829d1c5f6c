package hint

import "github.com/tenon-project/tenon/internal/core/topo"

// Merge returns the best hint of the lists and whether the policy admits it, exactly as the kubelet's merge does, also
// of hints that it refuses. Under None the answer is the empty hint, which is not preferred, and true.
func (r *Rule) Merge(lists []List) (Hint, bool) {
	a := r.Answer(lists, nil)
	return a.Hint, a.Admitted
}

// Answer is Merge with its certainty: Exact, or Unknown where a mask that is not preferred is asked of more than
// WalkNodes nodes; w may be nil.
func (r *Rule) Answer(lists []List, w *Scratch) Answer {
	if r.Policy == None {
		return Answer{Admitted: true}
	}
	if w == nil {
		w = new(Scratch)
	}
	if m, found := r.preferred(lists, w); found {
		return r.finish(Hint{Mask: m, Preferred: true}, true, Exact)
	}
	if r.Policy == SingleNUMANode { // what is left of the lists is preferred or disjoint
		return r.finish(Hint{}, false, Exact)
	}
	best, found, c := r.reachable(lists, w)
	return r.finish(Hint{Mask: best}, found, c)
}

// takes reports whether the policy looks at the hint at all.
func (r *Rule) takes(h Hint) bool {
	return r.Policy != SingleNUMANode || h.Preferred && h.Mask.Len() <= 1
}

// indifferent reports whether a list has a preferred hint for any nodes: it imposes nothing on a preferred answer.
func indifferent(l List) bool {
	for _, h := range l {
		if h.Mask == 0 && h.Preferred {
			return true
		}
	}
	return l == nil
}

// preferred returns the best mask that every list prefers. The kubelet compares masks before it drops nodes that the
// machine does not have, so masks are counted as they come.
func (r *Rule) preferred(lists []List, w *Scratch) (topo.NodeSet, bool) {
	all := topo.FirstNodes(r.Nodes)
	imposing := 0
	votes := w.votes(r.Nodes)
	for _, l := range lists {
		if indifferent(l) {
			continue
		}
		for _, h := range l {
			if h.Preferred && r.takes(h) {
				votes.add(h.Mask, imposing)
			}
		}
		imposing++
	}
	best, found := topo.NodeSet(0), false
	offer := func(m topo.NodeSet) {
		if m &= all; m != 0 && (!found || r.better(m, best)) {
			best, found = m, true
		}
	}
	if imposing == 0 {
		offer(all)
	}
	for _, l := range lists {
		if imposing > 0 && indifferent(l) {
			continue
		}
		for _, h := range l {
			if h.Preferred && h.Mask != 0 && r.takes(h) && (imposing == 0 || votes.of(h.Mask) == imposing) {
				offer(h.Mask)
			}
		}
		if imposing > 0 {
			break // what all want is in the first
		}
	}
	votes.clear(lists)
	return best, found
}

// better ranks preferred masks.
func (r *Rule) better(a, b topo.NodeSet) bool {
	if la, lb := a.Len(), b.Len(); la != lb {
		return la < lb
	}
	return r.closer(a, b)
}

// Scratch holds the buffers of a merge, so that the next one allocates nothing. The zero value is ready. One goroutine
// at a time.
type Scratch struct {
	ballot ballot
	fold   fold
	sums   []int64 // of one resource, mask by mask
	units  []int64 // of requests with reusable units
	short  []bool  // masks without the memory
}

// WalkNodes is the number of nodes up to which a kubelet walks all masks in a time that anybody would wait: at 256 CPUs
// it takes 46 µs for a mask, so 24 s for all of 19 nodes, and twice that for each node more. Up to there a set of masks
// is a vector with one place for each mask.
const WalkNodes = 19

// ballot counts, mask by mask, how many lists in a row want it.
type ballot struct {
	small []uint32
	large map[topo.NodeSet]uint32
}

func (w *Scratch) votes(nodes int) *ballot {
	if nodes <= WalkNodes {
		w.ballot.small = grow(w.ballot.small, 1<<max(nodes, 0))
	} else {
		w.ballot.small = w.ballot.small[:0]
	}
	return &w.ballot
}

// add gives m the vote of the list after so many, once.
func (b *ballot) add(m topo.NodeSet, before int) {
	if b.of(m) != before {
		return
	}
	if uint64(m) < uint64(len(b.small)) {
		b.small[m]++
		return
	}
	if b.large == nil {
		b.large = map[topo.NodeSet]uint32{}
	}
	b.large[m]++
}

func (b *ballot) of(m topo.NodeSet) int {
	if uint64(m) < uint64(len(b.small)) {
		return int(b.small[m])
	}
	return int(b.large[m])
}

// clear takes every vote back.
func (b *ballot) clear(lists []List) {
	clear(b.large)
	for _, l := range lists {
		for _, h := range l {
			if uint64(h.Mask) < uint64(len(b.small)) {
				b.small[h.Mask] = 0
			}
		}
	}
}

// grow returns s with n places; new ones are zero.
func grow[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	return make([]T, n)
}
