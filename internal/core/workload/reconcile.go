package workload

import (
	"maps"
	"slices"
)

// Made is the object of a gang that was made earlier.
type Made struct {
	// Joined are the names of the objects that start together, this one among them; nil for one alone.
	Joined []string
	// Pods is how many pods name it that have not ended. Placed is how many of them are on nodes.
	Pods, Placed int
}

// Reconcile returns the objects that the gangs of a plan need, by name, and the names of those that are not needed any
// more. names has the name of each gang's object, and made has the objects of the owner, with names that pods have and
// no object does.
//
// All objects that start together must list each other, or none of their pods starts. Where pods of some of them are on
// nodes, a gang that comes later therefore starts alone, and one that is gone is listed no more. An object that the
// plan does not need remains while pods name it, with a minimum of 1: these pods start one by one.
func (p *Plan) Reconcile(names map[string]string, made map[string]Made) (want map[string]Gang, unused []string) {
	if p.Suspended {
		return nil, nil // its pods come back
	}
	want = map[string]Gang{}
	for _, g := range p.Gangs {
		g.Name = names[g.Name]
		g.Joined = joinedBy(&g, names, made)
		want[g.Name] = g
	}
	for _, name := range slices.Sorted(maps.Keys(made)) {
		if _, needed := want[name]; needed {
			continue
		}
		if n := made[name].Pods; n > 0 {
			want[name] = Gang{Name: name, Min: 1, Members: int64(n)}
		} else {
			unused = append(unused, name)
		}
	}
	return want, unused
}

// joinedBy returns the objects that start together with that of a gang.
func joinedBy(g *Gang, names map[string]string, made map[string]Made) (joined []string) {
	started := false
	for _, other := range g.Joined {
		joined = append(joined, names[other])
		started = started || made[names[other]].Placed > 0
	}
	if !started {
		return joined
	}
	joined = slices.DeleteFunc(joined, func(name string) bool { return len(made[name].Joined) < 2 })
	if len(joined) < 2 || !slices.Contains(joined, g.Name) {
		return nil
	}
	return joined
}
