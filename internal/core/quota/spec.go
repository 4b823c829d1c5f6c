package quota

import (
	"maps"
	"slices"
)

// Names of quotas that exist without an object and that users neither create nor delete.
const (
	// Root is the virtual top of the default tree.
	Root = "koordinator-root-quota"
	// System is the quota of system pods: never limited.
	System = "koordinator-system-quota"
	// Default is the quota of pods that belong to no other: limited by its max only.
	Default = "koordinator-default-quota"
)

// Amounts are quantities by dimension (resource name): CPU in milli-CPU, everything else in its own unit. An absent
// dimension and a zero are different where the field says so.
type Amounts map[string]int64

// Spec is one quota as its object says, before any rule was applied to it. A tree accepts every Spec (Check names what
// is wrong with it); what cannot be followed is replaced as the field's comment says.
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
	Min Amounts
	// Max is the ceiling. A dimension absent here is not limited by this quota and not divided among its children.
	Max Amounts
	// Weight is the strength when borrowing; an absent dimension is that of Max, an explicit 0 never borrows.
	Weight Amounts
	// Total is what the top of an extra tree divides.
	Total Amounts
	// Strict are the dimensions whose Max may not be set below what is used.
	Strict []string
}

// clone returns a copy that shares no map or slice with s.
func (s Spec) clone() Spec {
	s.Namespaces, s.Strict = slices.Clone(s.Namespaces), slices.Clone(s.Strict)
	s.Min, s.Max, s.Weight, s.Total = maps.Clone(s.Min), maps.Clone(s.Max), maps.Clone(s.Weight), maps.Clone(s.Total)
	return s
}
