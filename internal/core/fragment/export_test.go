package fragment

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

// ShapeOf returns the shape of a state.
func ShapeOf(s State) (h Shape) {
	h.set(s, Spec{}, 0)
	return h
}

// Fragmentation is Lost over the specs of the generation.
func (g *Generation) Fragmentation(s State) int64 { return Lost(g.specs, s) }
