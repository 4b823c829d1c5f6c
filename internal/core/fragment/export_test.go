package fragment

import "slices"

// Sequences returns the specs of each sequence.
func (g *Generation) Sequences() (all [][]Spec) {
	for from := 0; from < len(g.sequences); from += length {
		var specs []Spec
		for _, at := range g.sequences[from : from+length] {
			specs = append(specs, g.specs[at].Spec)
		}
		all = append(all, specs)
	}
	return all
}

// Remembers reports whether the value of a state is remembered.
func (g *Generation) Remembers(s State) bool {
	var h shape
	h.set(s, Spec{}, 0)
	for i := range g.memo.slots {
		if e := g.memo.slots[i].Load(); e != nil && e.milliCPU == h.milliCPU && slices.Equal(e.free, h.free[:h.n]) {
			return true
		}
	}
	return false
}

// Keep keeps a value of a state as if all had the same hash, and Recall returns it.
func (g *Generation) Keep(s State, value int64) {
	var h shape
	h.set(s, Spec{}, 0)
	g.memo.keep(&h, 0, value, true)
}

// Recall returns what Keep has kept.
func (g *Generation) Recall(s State) (int64, bool) {
	var h shape
	h.set(s, Spec{}, 0)
	return g.memo.recall(&h, 0)
}
