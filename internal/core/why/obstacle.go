package why

import (
	"cmp"
	"maps"
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
func Obstacles(findings []Finding) []Obstacle {
	type key struct {
		code       Code
		preemption bool
	}
	type objectKey struct {
		key
		object string
	}
	index := map[key]int{}
	seen := map[objectKey]bool{}
	var out []Obstacle
	for _, f := range distinct(findings) {
		if f.OK() {
			continue
		}
		k := key{f.Code, f.Phase == Preemption}
		i, ok := index[k]
		if !ok {
			i = len(out)
			index[k] = i
			out = append(out, Obstacle{Finding: f})
		} else if closer(f, out[i].Finding) < 0 {
			out[i].Finding = f
		}
		if o := (objectKey{k, f.Object}); f.Object != "" && !seen[o] {
			seen[o] = true
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
	short := map[string]bool{}
	for _, f := range findings {
		if f.Code == InsufficientCPU && f.Phase != Preemption {
			short[f.Object] = true
		}
	}
	if len(short) == 0 {
		return findings
	}
	return slices.DeleteFunc(slices.Clone(findings),
		func(f Finding) bool { return f.Code == SharedPoolFloor && short[f.Object] })
}

// closer orders findings of one code: the smallest relative shortfall first, then by all their fields, so that the
// first one does not depend on the order in which nodes were asked.
func closer(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(a.shortfall(), b.shortfall()),
		cmp.Compare(a.Object, b.Object),
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
func (r Reason) shortfall() float64 {
	if !r.Code.Entry().Amount || r.Asked <= 0 {
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

	shortfall float64 // of the node with the smallest shortfall; of one node the largest over its codes
}

// MinimalSets returns the inclusion-minimal sets of codes among the nodes, most nodes first, at most five. Lifting a
// proper subset of one admits the pod nowhere.
func MinimalSets(findings []Finding) []Set {
	sets := minimal(byNode(findings))
	slices.SortFunc(sets, func(a, b Set) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), compareNames(a.Codes, b.Codes))
	})
	return sets[:min(len(sets), 5)]
}

// byNode returns the filter findings of each node, one for each code, by code name.
func byNode(findings []Finding) map[string][]Finding {
	nodes := map[string][]Finding{}
	for _, f := range distinct(findings) {
		if f.OK() || f.Object == "" || f.Phase == Preemption || f.Code.askedOnce(f.Phase) {
			continue
		}
		nodes[f.Object] = append(nodes[f.Object], f)
	}
	for _, list := range nodes {
		slices.SortFunc(list, func(a, b Finding) int {
			return cmp.Or(cmp.Compare(a.Code.String(), b.Code.String()), -cmp.Compare(a.shortfall(), b.shortfall()),
				closer(a, b))
		})
	}
	for node, list := range nodes {
		// Of two findings with one code the larger shortfall is what must be lifted.
		nodes[node] = slices.CompactFunc(list, func(a, b Finding) bool { return a.Code == b.Code })
	}
	return nodes
}

// minimal groups nodes by their set of codes and keeps the sets of which no other is a proper subset.
func minimal(nodes map[string][]Finding) []Set {
	var sets []Set
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		codes := make([]Code, len(nodes[node]))
		set := Set{Codes: codes, Nodes: 1}
		for i, f := range nodes[node] {
			codes[i] = f.Code
			set.shortfall = max(set.shortfall, f.shortfall())
			if f.Code.Entry().Amount {
				set.Missing = append(set.Missing, f.Reason)
			}
		}
		i := slices.IndexFunc(sets, func(s Set) bool { return slices.Equal(s.Codes, codes) })
		if i < 0 {
			sets = append(sets, set)
			continue
		}
		sets[i].Nodes++
		if set.shortfall < sets[i].shortfall {
			sets[i].shortfall, sets[i].Missing = set.shortfall, set.Missing
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

// compareNames orders lists of codes by the codes' names.
func compareNames(a, b []Code) int {
	return slices.CompareFunc(a, b, func(x, y Code) int { return cmp.Compare(x.String(), y.String()) })
}
