package hint

// Named is the list of one resource.
type Named struct {
	Resource string
	List     List
}

// Line tells of one resource in a Table.
type Line struct {
	Resource string
	// Care is false for a resource that takes any nodes.
	Care bool
	// Hints counts what the provider offers; 0 of a resource that cares = impossible.
	Hints int
	// Least is the size of the smallest mask that it prefers, 0 if it prefers none; Smallest that of all its masks.
	Least, Smallest int
	// Preferred are the masks it prefers, ascending by size and number.
	Preferred []Mask
}

// Cause is why nothing preferred came out of a merge.
type Cause uint8

// Causes.
const (
	NoCause Cause = iota
	// Impossible: Resources[0] fits nowhere.
	Impossible
	// NothingPreferred: Resources[0] fits, but only where it has no preference for: on more nodes than an empty machine needs.
	NothingPreferred
	// SizesDiffer: two resources prefer masks of different sizes.
	SizesDiffer
	// Disjoint: two resources prefer masks of one size, but no common one.
	Disjoint
	// NoCommon: any two have a common preferred mask, all together do not.
	NoCommon
	// NotOneNode: single-numa-node, and the resource prefers no mask of one node.
	NotOneNode
)

// Table explains a merge.
type Table struct {
	Policy    Policy
	Lines     []Line // in the order of the lists
	Answer    Answer
	Cause     Cause
	Resources []string // whom Cause is about
}

// Explain merges named lists and tells what came of each.
func (r *Rule) Explain(lists []Named) Table { panic("not built") }

// String is one line: "restricted: cpu needs 1 node, gpu needs 2: no common preferred mask".
func (t *Table) String() string { panic("not built") }
