package hint

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// Named is the list of one resource.
type Named struct {
	Resource string
	List     List
}

// Line describes one resource in a Table.
type Line struct {
	Resource string
	// Care is false for a resource that takes any nodes.
	Care bool
	// Hints counts the masks that the provider offers; 0 of a resource that cares = it fits nowhere.
	Hints int
	// Least is the size of the smallest mask that it prefers, 0 if it prefers none; Smallest that of all its masks.
	Least, Smallest int
	// Preferred are the masks that it prefers, by size and number, each once.
	Preferred []topo.NodeSet
}

// Cause is why nothing preferred came out of a merge.
type Cause uint8

// Causes.
const (
	NoCause Cause = iota
	// Impossible: Resources[0] fits nowhere.
	Impossible
	// NothingPreferred: Resources[0] fits only on more nodes than it would need if all its units were free.
	NothingPreferred
	// NotOneNode: the policy is single-numa-node, and Resources[0] prefers no single node.
	NotOneNode
	// SizesDiffer: the smallest masks that Resources[0] and Resources[1] prefer differ in size, and they have none in
	// common.
	SizesDiffer
	// Disjoint: Resources[0] and Resources[1] prefer masks of one size, but no common one.
	Disjoint
	// NoCommon: any two of Resources have a common preferred mask, all together have none.
	NoCommon
)

// String returns the cause's CamelCase name, "" for none.
func (c Cause) String() string {
	return [...]string{
		"", "Impossible", "NothingPreferred", "NotOneNode", "SizesDiffer", "Disjoint", "NoCommon",
	}[c]
}

// Table explains a merge.
type Table struct {
	Policy Policy
	Lines  []Line // in the order of the lists
	Answer Answer
	// Cause is set iff the answer is not preferred, and the policy is not None.
	Cause Cause
	// Resources are those that Cause is about, in the order of the lists.
	Resources []string
}

// Explain merges named lists and reports the outcome of each.
func (r *Rule) Explain(named []Named) Table {
	t := Table{Policy: r.Policy}
	lists := make([]List, len(named))
	for i, n := range named {
		lists[i] = n.List
		t.Lines = append(t.Lines, lineOf(n))
	}
	t.Answer = r.Answer(lists, nil)
	if r.Policy != None && !t.Answer.Hint.Preferred {
		t.blame()
	}
	return t
}

// lineOf summarizes the hints of a resource.
func lineOf(n Named) Line {
	l := Line{Resource: n.Resource, Care: !indifferent(n.List)}
	for _, h := range n.List {
		if h.Mask == 0 {
			continue
		}
		l.Hints++
		if size := h.Mask.Len(); l.Smallest == 0 || size < l.Smallest {
			l.Smallest = size
		}
		if h.Preferred {
			l.Preferred = append(l.Preferred, h.Mask)
		}
	}
	slices.SortFunc(l.Preferred, bySize)
	l.Preferred = slices.Compact(l.Preferred)
	if len(l.Preferred) > 0 {
		l.Least = l.Preferred[0].Len()
	}
	return l
}

// bySize orders masks by the number of nodes, then by value.
func bySize(a, b topo.NodeSet) int {
	return cmp.Or(cmp.Compare(a.Len(), b.Len()), cmp.Compare(a, b))
}

// blame finds the cause: what is wrong with one resource first, then with two, then with all.
func (t *Table) blame() {
	var lines []*Line
	for i := range t.Lines {
		if l := &t.Lines[i]; l.Care {
			lines = append(lines, l)
		}
	}
	for _, cause := range []Cause{Impossible, NothingPreferred, NotOneNode} {
		for _, l := range lines {
			if t.alone(cause, l) {
				t.Cause, t.Resources = cause, []string{l.Resource}
				return
			}
		}
	}
	for i, a := range lines {
		for _, b := range lines[i+1:] {
			if slices.ContainsFunc(t.wanted(a), func(m topo.NodeSet) bool {
				_, common := slices.BinarySearchFunc(t.wanted(b), m, bySize)
				return common
			}) {
				continue
			}
			t.Cause, t.Resources = Disjoint, []string{a.Resource, b.Resource}
			if a.Least != b.Least {
				t.Cause = SizesDiffer
			}
			return
		}
	}
	t.Cause = NoCommon
	for _, l := range lines {
		t.Resources = append(t.Resources, l.Resource)
	}
}

// alone reports whether a resource by itself explains a cause.
func (t *Table) alone(c Cause, l *Line) bool {
	switch c {
	case Impossible:
		return l.Hints == 0
	case NothingPreferred:
		return l.Least == 0
	default:
		return len(t.wanted(l)) == 0
	}
}

// wanted are the masks of the resource that can be preferred under the policy.
func (t *Table) wanted(l *Line) []topo.NodeSet {
	if t.Policy != SingleNUMANode {
		return l.Preferred
	}
	several := slices.IndexFunc(l.Preferred, func(m topo.NodeSet) bool { return m.Len() > 1 })
	if several < 0 {
		return l.Preferred
	}
	return l.Preferred[:several]
}

// String is one line: "restricted: cpu needs 1 node, gpu needs 2: no common preferred mask".
func (t *Table) String() string {
	text := t.Policy.String() + ": "
	hint := t.Answer.Hint
	switch {
	case t.Policy == None:
		return text + "admitted without hints"
	case !t.Answer.Admitted:
		return text + t.reason()
	case hint.Mask == 0:
		text += "any nodes"
	default:
		text += "nodes " + hint.Mask.String()
	}
	if hint.Preferred {
		return text + ", preferred"
	}
	return text + ", not preferred: " + t.reason()
}

// reason is a sentence about the resources of the cause.
func (t *Table) reason() string {
	about := func(i int) *Line {
		return &t.Lines[slices.IndexFunc(t.Lines, func(l Line) bool { return l.Resource == t.Resources[i] })]
	}
	switch t.Cause {
	case Impossible:
		return t.Resources[0] + " fits nowhere"
	case NothingPreferred:
		return fmt.Sprintf("%s fits on %s at least, where it would need fewer if all were free",
			t.Resources[0], nodes(about(0).Smallest))
	case NotOneNode:
		return fmt.Sprintf("%s needs %s", t.Resources[0], nodes(about(0).Least))
	case SizesDiffer:
		a, b := about(0), about(1)
		return fmt.Sprintf("%s needs %s, %s needs %d: no common preferred mask", a.Resource, nodes(a.Least), b.Resource,
			b.Least)
	case Disjoint:
		a, b := about(0), about(1)
		return fmt.Sprintf("%s prefers %s, %s prefers %s: no common preferred mask",
			a.Resource, some(t.wanted(a)), b.Resource, some(t.wanted(b)))
	default:
		return strings.Join(t.Resources, ", ") + " have no preferred mask that is common to all"
	}
}

// nodes writes a number of nodes.
func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return strconv.Itoa(n) + " nodes"
}

// some writes the first masks and how many more there are.
func some(masks []topo.NodeSet) string {
	const most = 4
	var words []string
	for _, m := range masks[:min(most, len(masks))] {
		words = append(words, m.String())
	}
	text := strings.Join(words, " ")
	if more := len(masks) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
