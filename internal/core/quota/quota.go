package quota

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenon-project/tenon/internal/core/amount"
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

// Names of quotas that exist without an object and that users neither create nor delete.
const (
	// Root is the virtual top of the default tree.
	Root = "koordinator-root-quota"
	// System is the quota of system pods: never limited.
	System = "koordinator-system-quota"
	// Default is the quota of pods that belong to no other: limited by its max only.
	Default = "koordinator-default-quota"
)

// Spec is one quota as its object says, before any rule was applied to it. A tree accepts every Spec (Check names what
// is wrong with it); what cannot be followed is replaced as the field's comment says.
//
// Dimensions are resource names. An absent one and a zero are different where the field says so.
type Spec struct {
	// Name is unique in the cluster. Namespace and Group are those of the object.
	Name, Namespace, Group string
	// Parent is the quota above; empty means Root. A parent that does not exist, or a cycle, hangs the quota under
	// Root.
	Parent string
	// Tree is the id of an extra tree; empty is the default tree.
	Tree string
	// IsParent quotas have children and no pods.
	IsParent bool
	// IsRoot marks the top of an extra tree: its runtime is Total.
	IsRoot bool
	// IgnoreDefaultTree leaves the Total of this tree in the default tree's total as well.
	IgnoreDefaultTree bool
	// ForceUpdate skips the rules on sums of min.
	ForceUpdate bool
	// KeepsMin quotas do not lend what they do not use of min.
	KeepsMin bool
	// FixedMin quotas keep their min where those of their siblings are scaled to the total.
	FixedMin bool
	// Namespaces are those whose pods belong to this quota unless they name another.
	Namespaces []string

	// Min is guaranteed. A dimension in Max and absent here is 0; one above Max counts as Max.
	Min amount.List
	// Max is the ceiling. A dimension absent here is not limited by this quota and not divided among its children.
	Max amount.List
	// Weight is the strength when borrowing; an absent dimension is that of Max, an explicit 0 never borrows.
	Weight amount.List
	// Total is what the top of an extra tree divides.
	Total amount.List
	// Strict are the dimensions whose Max may not be set below what is used.
	Strict []string

	// RunTime is how long the pods of this quota and of those below it run that declare nothing; 0 for unknown.
	RunTime time.Duration
}

// clone returns a copy that shares no map or slice with s.
func (s Spec) clone() Spec {
	s.Namespaces, s.Strict = slices.Clone(s.Namespaces), slices.Clone(s.Strict)
	s.Min, s.Max, s.Weight, s.Total = maps.Clone(s.Min), maps.Clone(s.Max), maps.Clone(s.Weight), maps.Clone(s.Total)
	return s
}

// fault is why a quota hangs under Root and not where its spec says, as words about the parent.
type fault string

const (
	unknownParent fault = "does not exist"
	parentCycle   fault = "is below it"
)

// Problems lists what the forest replaced in the quota's spec, in the place that it has now, each as a sentence with
// what counts instead.
func (q *Quota) Problems() []string {
	s := &q.spec
	var out []string
	report := func(what, instead string) {
		out = append(out, fmt.Sprintf("quota %q: %s; %s", s.Name, what, instead))
	}
	if q.misplaced != "" {
		report(fmt.Sprintf("parent %q %s", s.Parent, q.misplaced), "it counts under "+Root)
	}
	for _, field := range []struct {
		name    string
		amounts amount.List
	}{{"max", s.Max}, {"min", s.Min}, {"weight", s.Weight}, {"total", s.Total}} {
		for _, dimension := range keys(field.amounts) {
			value := field.amounts[dimension]
			ceiling, named := s.Max[dimension]
			text := fmt.Sprintf("%s of %s is %d", field.name, dimension, value)
			switch {
			case value < 0:
				report(text+", must not be negative", "0 counts")
			case !named && field.name != "total":
				report(text+" without a max", "it is ignored")
			case field.name == "min" && value > max(ceiling, 0):
				report(text+", must not exceed max", "max counts")
			}
		}
	}
	return out
}
