package quota

import (
	"cmp"
	"slices"
)

// Quota is one node of a Forest: the handle by which pods, admission and revocation name it. It remains valid while
// its spec changes and while it moves; after Remove it means Default.
type Quota struct {
	spec     Spec
	parent   *Quota   // nil for the tops of trees, System and Default
	children []*Quota // Invariant: ascending name.
	cells    []cell   // by dimension. Invariant: no child has more.

	misplaced fault // why the quota hangs under Root and not where its spec says
	removed   bool
}

// limits are what a spec says of one dimension, as it counts.
type limits struct {
	// named reports that max names the dimension. Only then do the others mean something: min, max and weight.
	// Invariant: 0 ≤ floor ≤ ceiling.
	named                  bool
	floor, ceiling, weight int64
	keeps, fixed           bool // KeepsMin and FixedMin
}

// limits returns the limits of one dimension. A dimension that max does not name is not limited.
func (s *Spec) limits(dimension string) limits {
	ceiling, named := s.Max[dimension]
	if !named {
		return limits{}
	}
	ceiling = max(ceiling, 0)
	return limits{
		true, min(max(s.Min[dimension], 0), ceiling), ceiling, max(s.weight(dimension), 0), s.KeepsMin, s.FixedMin,
	}
}

// cell is a quota in one dimension, and the set of its children in it.
type cell struct {
	limits
	sums [measures]sum

	// runtime is what the quota may use, effective its min after scaling: results of the parent's last division. Where
	// max does not name the dimension they are those of the parent, so that a quota without a limit of its own hands
	// down the nearest limit above it: its children together are then held to no more than what the next ancestor with
	// a limit, or the whole tree, has, and admission holds that ancestor to its own runtime.
	runtime, effective int64

	// The set of children. stale: an input of its division has changed since the last one. tied: the cut of the last
	// division fell among equals, so that what they use decides. rounds are those of the last division, one more where
	// mins were scaled.
	stale, tied bool
	rounds      int
}

// amount returns one measure of the cell, cut to 64 bits.
func (c *cell) amount(m Measure) int64 { return c.sums[m].amount() }

// limited is what the quota would use if it could.
func (c *cell) limited() int64 { return min(c.amount(Request), c.ceiling) }

// pass is what the quota asks of its parent.
func (c *cell) pass() int64 {
	switch request := c.amount(Request); {
	case !c.named:
		return request
	case c.keeps:
		return min(max(request, c.floor), c.ceiling)
	default:
		return min(request, c.ceiling)
	}
}

// Name returns the quota's name.
func (q *Quota) Name() string { return q.spec.Name }

// Parent returns the quota that it hangs under: nil for Root, System, Default and the tops of extra trees.
func (q *Quota) Parent() *Quota { return q.parent }

// Spec returns the quota as it was set. It must not be changed.
func (q *Quota) Spec() *Spec { return &q.spec }

// Amount returns a sum of the quota, within 0 and the largest int64.
func (q *Quota) Amount(m Measure, d Dimension) int64 {
	if int(d) >= len(q.cells) {
		return 0
	}
	return q.cells[d].amount(m)
}

// Min returns the min that counts, before scaling.
func (q *Quota) Min(d Dimension) int64 {
	if int(d) >= len(q.cells) {
		return 0
	}
	return q.cells[d].floor
}

// Max returns the ceiling; false where the quota does not limit the dimension.
func (q *Quota) Max(d Dimension) (int64, bool) {
	if int(d) >= len(q.cells) {
		return 0, false
	}
	return q.cells[d].ceiling, q.cells[d].named
}

// at returns the cell of a dimension, which it makes where there is none yet.
func (q *Quota) at(d Dimension) *cell {
	if known := len(q.cells); int(d) >= known {
		q.cells = append(q.cells, make([]cell, int(d)+1-known)...)
		for i := known; q.parent != nil && i <= int(d); i++ {
			q.parent.at(Dimension(i)).stale = true
		}
	}
	return &q.cells[d]
}

// index returns where a child of this name is or would be.
func (q *Quota) index(child string) (int, bool) {
	return slices.BinarySearchFunc(q.children, child, func(c *Quota, name string) int {
		return cmp.Compare(c.spec.Name, name)
	})
}
