package gang

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/core/why"
)

// Composite is what a State reads of a CompositePodGroup: an inner node of a tree whose leaves are PodGroups.
type Composite struct {
	Exists bool   // else others refer to it alone
	Parent string // namespace/name of the one above it; empty for a root
	Least  int    // of its child groups, that start together; 0 where each starts on its own
	Whole  bool   // all pods below it are evicted together
	Fault  string // what cannot be read of it; names the field
}

// branch is a node of a tree. Invariant: its object exists, or others are below it.
type branch struct {
	Composite                    // of a PodGroup the Parent
	name      string             // kind and name
	gang      *gang              // of a PodGroup
	below     map[string]*branch // by name
}

// tree is the part of a tree that starts together.
type tree struct {
	group   []string // PodGroups
	whole   bool
	refused Refusal // why none of them may start
}

// PutComposite records a CompositePodGroup, by namespace/name. One that does not exist holds back what is below it.
func (s *State) PutComposite(id string, c Composite) Effects {
	return s.refresh(s.attach(compositeName(id), nil, c)...)
}

// compositeName is the name of a CompositePodGroup among the branches.
func compositeName(id string) string { return "CompositePodGroup " + id }

// branch returns the branch of a name, and creates it if there is none.
func (s *State) branch(name string) *branch {
	if s.branches[name] == nil {
		s.branches[name] = &branch{name: name, below: map[string]*branch{}}
	}
	return s.branches[name]
}

// attach puts a branch into its place, and returns the gangs of the trees that it leaves and joins.
func (s *State) attach(name string, g *gang, composite Composite) (gangs []*gang) {
	b := s.branch(name)
	from := compositeName(b.Parent)
	delete(s.branch(from).below, name)
	if b.Composite, b.gang = composite, g; b.Parent != "" {
		s.branch(compositeName(b.Parent)).below[name] = b
	}
	for _, name := range []string{from, name} {
		top := s.branch(name)
		if !top.Exists && len(top.below) == 0 {
			delete(s.branches, name)
		} else {
			for seen := map[*branch]bool{}; top.Parent != "" && !seen[top]; top = s.branch(compositeName(top.Parent)) {
				seen[top] = true
			}
			gangs = append(gangs, top.grow(top, nil, 1)...)
		}
	}
	return gangs
}

// grow finds out what starts together at and below a branch; t is nil where what is above lets it start on its own.
func (b *branch) grow(top *branch, t *tree, level int) (gangs []*gang) {
	if refused := b.refusal(t != nil, level); t != nil || b.Least > 0 || refused.Code != why.None {
		t = cmp.Or(t, &tree{})
		if t.whole = t.whole || b.Whole; t.refused.Code == why.None {
			t.refused = refused
		}
	}
	if b.gang != nil {
		if b.gang.tree = t; t != nil {
			t.group = append(t.group, b.gang.id)
		}
		return []*gang{b.gang}
	}
	for _, name := range slices.Sorted(maps.Keys(b.below)) {
		if o := b.below[name]; o != top {
			gangs = append(gangs, o.grow(top, t, level+1)...)
		}
	}
	return gangs
}

// refusal is why nothing at or below a branch may start. together says that it starts with what is beside it.
func (b *branch) refusal(together bool, level int) Refusal {
	refused := func(code why.Code, format string, args ...any) Refusal {
		return Refusal{Code: code, Text: b.name + fmt.Sprintf(format, args...)}
	}
	switch n := len(b.below); {
	case !b.Exists:
		return refused(why.GangNotFound, " does not exist")
	case b.Fault != "":
		return Refusal{Code: why.BadAnnotation, Text: b.Fault}
	case level == 1 && b.Parent != "", level > 4:
		return refused(why.BadAnnotation, ": spec.parentCompositePodGroupName: must lead to a root, with at most 4 "+
			"levels from there to PodGroups, is %s", b.Parent)
	case together && (b.gang == nil && b.Least == 0 || b.gang != nil && b.gang.isPlain()):
		return refused(why.BadAnnotation, ": spec.schedulingPolicy: must be gang, as that of %s is, is basic", b.Parent)
	case b.Whole && b.Least == 0:
		return refused(why.BadAnnotation, ": spec.disruptionMode: must be single with the policy basic, is all")
	case n < b.Least:
		return refused(why.GangNotFound, " has %d of the %d child groups that must start together", n, b.Least)
	case n > b.Least && b.Least > 0:
		return refused(why.BadAnnotation, ": spec.schedulingPolicy.gang.minGroupCount: must be the number of its "+
			"child groups, %d, is %d", n, b.Least)
	}
	return Refusal{}
}
