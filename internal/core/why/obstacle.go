package why

import (
	"cmp"
	"slices"
)

// Obstacle is one code with all the nodes that it refused in one phase.
type Obstacle struct {
	Finding // of the example: the node with the smallest shortfall
	// Nodes counts the nodes, 0 for a code that is asked once per pod.
	Nodes int
}

// Obstacles counts findings by phase kind (preemption apart from the rest) and code, most nodes first, then by name.
// The order of the findings does not matter.
func Obstacles(findings []Finding) []Obstacle { return number(findings).obstacles() }

// numbered is findings with a number for each object: to look up names takes longer than all else that is done with
// findings.
type numbered struct {
	findings []Finding
	object   []int32 // by finding
	objects  int
}

// number gives each object a number.
func number(findings []Finding) numbered {
	n := numbered{findings: distinct(findings)}
	n.object = make([]int32, len(n.findings))
	numbers := make(map[string]int32, len(n.findings))
	for i := range n.findings {
		name := n.findings[i].Object
		if i > 0 && name == n.findings[i-1].Object {
			n.object[i] = n.object[i-1]
			continue
		}
		at, known := numbers[name]
		if !known {
			at = int32(len(numbers))
			numbers[name] = at
		}
		n.object[i] = at
	}
	n.objects = len(numbers)
	return n
}

// obstacles is Obstacles.
func (n numbered) obstacles() []Obstacle {
	type key struct {
		code       Code
		preemption bool
	}
	index := map[key]int{}
	var out []Obstacle
	var seen [][]bool // by obstacle and object
	for k := range n.findings {
		f := &n.findings[k]
		if f.OK() {
			continue
		}
		i, ok := index[key{f.Code, f.Phase == Preemption}]
		if !ok {
			i = len(out)
			index[key{f.Code, f.Phase == Preemption}] = i
			out, seen = append(out, Obstacle{Finding: *f}), append(seen, make([]bool, n.objects))
		} else if closer(f, &out[i].Finding) < 0 {
			out[i].Finding = *f
		}
		if at := n.object[k]; f.Object != "" && !seen[i][at] {
			seen[i][at] = true
			out[i].Nodes++
		}
	}
	slices.SortFunc(out, func(a, b Obstacle) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Code.String(), b.Code.String()),
			cmp.Compare(a.Phase, b.Phase))
	})
	return out
}

// distinct leaves out the floor of a shared pool on nodes that have too few CPUs at all: that is one cause.
func distinct(findings []Finding) []Finding {
	if !slices.ContainsFunc(findings, func(f Finding) bool { return f.Code == SharedPoolFloor }) {
		return findings
	}
	short := map[string]bool{}
	for _, f := range findings {
		if f.Code == InsufficientCPU && f.Phase != Preemption {
			short[f.Object] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(findings),
		func(f Finding) bool { return f.Code == SharedPoolFloor && short[f.Object] })
}

// Closest adds a finding to those of other codes. Of two with one code, which Obstacles would count as one obstacle, it
// keeps the example.
func Closest(some []Finding, f *Finding) []Finding {
	for i := range some {
		s := &some[i]
		if s.Code != f.Code || (s.Phase == Preemption) != (f.Phase == Preemption) {
			continue
		}
		if closer(f, s) < 0 {
			*s = *f
		}
		return some
	}
	return append(some, *f)
}

// closer orders findings of one code: the smallest relative shortfall first, then by all their fields, so that the
// first one does not depend on the order in which nodes were asked.
func closer(a, b *Finding) int {
	if order := cmp.Compare(a.shortfall(), b.shortfall()); order != 0 {
		return order
	}
	if order := cmp.Compare(a.Object, b.Object); order != 0 {
		return order
	}
	return cmp.Or(
		cmp.Compare(a.Plugin, b.Plugin),
		cmp.Compare(a.Phase, b.Phase),
		cmp.Compare(a.Detail, b.Detail),
		cmp.Compare(a.Asked, b.Asked),
		cmp.Compare(a.Free, b.Free),
		cmp.Compare(a.Extra, b.Extra),
		cmp.Compare(a.Resource, b.Resource),
		cmp.Compare(a.Unit, b.Unit),
		cmp.Compare(a.Where.Scope, b.Where.Scope),
		cmp.Compare(a.Where.Index, b.Where.Index),
	)
}

// shortfall is the missing part of what was asked, 0…1; 1 for a code that is not about an amount.
func (r *Reason) shortfall() float64 {
	if !r.Code.isAmount() || r.Asked <= 0 {
		return 1
	}
	return float64(r.Asked-max(r.Free, 0)) / float64(r.Asked)
}

// Set is a set of codes that refuse some nodes together: lifting all of them admits the pod there.
type Set struct {
	Codes []Code // ascending by name
	Nodes int
	// Missing lists what the node with the smallest shortfall lacks, one for each code about an amount.
	Missing []Reason

	// shortfall is that of node, which has the smallest; of one node the largest over its codes.
	shortfall float64
	node      string
}

// MinimalSets returns the inclusion-minimal sets of codes among the nodes, most nodes first, at most five. Lifting a
// proper subset of one admits the pod nowhere.
func MinimalSets(findings []Finding) []Set {
	sets := minimal(number(findings).byNode())
	slices.SortFunc(sets, func(a, b Set) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), compareNames(a.Codes, b.Codes))
	})
	return sets[:min(len(sets), 5)]
}

// byNode returns the filter findings of each node that has some, one for each code, by code name.
func (n numbered) byNode() [][]Finding {
	counts, kept := make([]int, n.objects), make([]int, 0, len(n.findings))
	for i := range n.findings {
		f := &n.findings[i]
		if f.OK() || f.Object == "" || f.Phase == Preemption || f.Code.askedOnce(f.Phase) {
			continue
		}
		counts[n.object[i]]++
		kept = append(kept, i)
	}
	nodes, all := make([][]Finding, n.objects), make([]Finding, len(kept))
	for i, count := range counts {
		nodes[i], all = all[:0:count], all[count:]
	}
	for _, i := range kept {
		nodes[n.object[i]] = append(nodes[n.object[i]], n.findings[i])
	}
	for i, list := range nodes {
		if len(list) < 2 {
			continue
		}
		slices.SortFunc(list, func(a, b Finding) int {
			return cmp.Or(cmp.Compare(a.Code.String(), b.Code.String()), -cmp.Compare(a.shortfall(), b.shortfall()),
				closer(&a, &b))
		})
		// Of two findings with one code the larger shortfall is what must be lifted.
		nodes[i] = slices.CompactFunc(list, func(a, b Finding) bool { return a.Code == b.Code })
	}
	return slices.DeleteFunc(nodes, func(list []Finding) bool { return len(list) == 0 })
}

// minimal groups nodes by their set of codes and keeps the sets of which no other is a proper subset.
func minimal(nodes [][]Finding) []Set {
	var sets []Set
	for _, list := range nodes {
		shortfall := 0.0
		for i := range list {
			shortfall = max(shortfall, list[i].shortfall())
		}
		i := slices.IndexFunc(sets, func(s Set) bool {
			return slices.EqualFunc(s.Codes, list, func(c Code, f Finding) bool { return c == f.Code })
		})
		if i < 0 {
			i = len(sets)
			sets = append(sets, Set{shortfall: shortfall, node: list[0].Object})
			for k := range list {
				sets[i].Codes = append(sets[i].Codes, list[k].Code)
			}
			sets[i].lack(list)
		}
		s := &sets[i]
		s.Nodes++
		if order := cmp.Compare(shortfall, s.shortfall); order < 0 || order == 0 && list[0].Object < s.node {
			s.shortfall, s.node = shortfall, list[0].Object
			s.lack(list)
		}
	}
	all := slices.Clone(sets)
	return slices.DeleteFunc(sets, func(s Set) bool {
		missing := func(c Code) bool { return !slices.Contains(s.Codes, c) }
		return slices.ContainsFunc(all, func(o Set) bool {
			return len(o.Codes) < len(s.Codes) && !slices.ContainsFunc(o.Codes, missing)
		})
	})
}

// lack sets Missing to the amounts among findings.
func (s *Set) lack(list []Finding) {
	s.Missing = s.Missing[:0]
	for i := range list {
		if list[i].Code.isAmount() {
			s.Missing = append(s.Missing, list[i].Reason)
		}
	}
}

// compareNames orders lists of codes by the codes' names.
func compareNames(a, b []Code) int {
	return slices.CompareFunc(a, b, func(x, y Code) int { return cmp.Compare(x.String(), y.String()) })
}
