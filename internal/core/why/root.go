package why

import (
	"cmp"
	"slices"
)

// Root returns the cause to report first, of the findings of one attempt on one snapshot. It does not
// depend on their order:
//
//  1. A code that is checked once per pod wins, the lowest class first.
//  2. Otherwise nodes that the pod's own selection excludes are ignored, unless it excludes all.
//  3. Of the others, nodes that a Constraint code refuses are ignored. If no node remains, the Constraint code with
//     most nodes wins.
//  4. Of those, nodes that have nothing at all of a device or resource that the pod asks for are ignored, unless all
//     are such nodes.
//  5. Among the rest, the set of codes that refuses some node with the fewest codes, then most nodes, then the smallest
//     relative shortfall, then names; of that set the code of the lowest class, and of one class a code that neither
//     waiting nor preemption resolves. If all nodes have nothing of what the pod asks for, that comes before other
//     placements and amounts.
//
// Findings of the preemption phase count only when there are no others. The zero Obstacle means that nothing refused.
func Root(findings []Finding) Obstacle { return number(findings).root() }

// root is Root.
func (n numbered) root() Obstacle {
	obstacles := n.obstacles()
	filter := slices.DeleteFunc(slices.Clone(obstacles), func(o Obstacle) bool { return o.Phase == Preemption })
	if len(filter) == 0 {
		return first(obstacles, byNodes)
	}
	if once := keep(filter, func(o Obstacle) bool { return o.Nodes == 0 || o.Code.askedOnce(o.Phase) }); len(once) > 0 {
		return first(once, byRank)
	}
	if len(filter) == 1 && filter[0].Code.Class() != Constraint {
		return filter[0] // as on a full cluster, of which the rest would read each node
	}
	nodes := n.byNode()
	if selected := without(nodes, func(f Finding) bool {
		return f.Code == NodeAffinity || f.Code == NodeName
	}); len(selected) > 0 {
		nodes = selected
	}
	open := without(nodes, func(f Finding) bool { return f.Code.Class() == Constraint })
	if len(open) == 0 {
		return first(keep(Obstacles(slices.Concat(nodes...)), func(o Obstacle) bool {
			return o.Code.Class() == Constraint
		}), byNodes)
	}
	order := byLack
	if having := without(open, func(f Finding) bool { return f.Reason.LacksAll() }); len(having) > 0 {
		open, order = having, byRank
	}
	sets := minimal(open)
	slices.SortFunc(sets, func(a, b Set) int {
		return cmp.Or(cmp.Compare(len(a.Codes), len(b.Codes)), cmp.Compare(b.Nodes, a.Nodes),
			cmp.Compare(a.shortfall, b.shortfall), compareNames(a.Codes, b.Codes))
	})
	return first(keep(filter, func(o Obstacle) bool { return slices.Contains(sets[0].Codes, o.Code) }), order)
}

// RootFirst returns Obstacles with that of Root before the others.
func RootFirst(findings []Finding) []Obstacle {
	obstacles, root := Obstacles(findings), Root(findings)
	i := slices.IndexFunc(obstacles, func(o Obstacle) bool {
		return o.Code == root.Code && (o.Phase == Preemption) == (root.Phase == Preemption)
	})
	if i > 0 {
		o := obstacles[i]
		copy(obstacles[1:i+1], obstacles[:i])
		obstacles[0] = o
	}
	return obstacles
}

// without returns the nodes of which no finding refuses.
func without(nodes [][]Finding, refuses func(Finding) bool) [][]Finding {
	return slices.DeleteFunc(slices.Clone(nodes), func(list []Finding) bool {
		return slices.ContainsFunc(list, refuses)
	})
}

// LacksAll reports whether the node has nothing of what was asked for, whatever other pods give back.
func (r Reason) LacksAll() bool {
	return r.Code == DeviceMissing || r.Code == InsufficientExtended && r.Unit == Count && r.Extra == 0
}

// askedOnce reports whether a code is about the pod as a whole. Filter asks for each node, also what other steps ask
// once: a pod may bind on some nodes alone.
func (c Code) askedOnce(p Phase) bool { return c.Class().OncePerPod() && p != Filter }

// keep returns the obstacles that are wanted. It does not change its argument.
func keep(obstacles []Obstacle, wanted func(Obstacle) bool) []Obstacle {
	return slices.DeleteFunc(slices.Clone(obstacles), func(o Obstacle) bool { return !wanted(o) })
}

// first returns the least obstacle in an order; the zero value for an empty list.
func first(obstacles []Obstacle, order func(a, b Obstacle) int) Obstacle {
	if len(obstacles) == 0 {
		return Obstacle{}
	}
	return slices.MinFunc(obstacles, order)
}

// byRank orders by class, then codes that waiting cannot resolve before those that it can, then by name.
func byRank(a, b Obstacle) int {
	resolvable := func(o Obstacle) int {
		if o.Code.Resolvable() {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.Code.Class(), b.Code.Class()), cmp.Compare(resolvable(a), resolvable(b)),
		cmp.Compare(a.Code.String(), b.Code.String()))
}

// byLack is byRank, with what no node has at all before other placements and amounts.
func byLack(a, b Obstacle) int {
	rank := func(o Obstacle) Class {
		if o.LacksAll() {
			return Placement - 1
		}
		return o.Code.Class()
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), byRank(a, b))
}

// byNodes orders by the number of nodes, most first, then by name.
func byNodes(a, b Obstacle) int {
	return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Code.String(), b.Code.String()))
}
