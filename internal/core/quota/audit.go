package quota

import (
	"maps"
	"slices"
)

// Miscounted returns the quotas whose use is not what the pods of their trees hold together, by name. There are none:
// one that it names is a mistake of this package, which Rebuilt ends. The work is in the number of pods.
func (a *Account) Miscounted() []string {
	own, held := map[*Quota][]sum{}, map[*Quota][]sum{}
	for _, e := range a.pods {
		if q := a.forest.live(e.group.quota); e.state != Pending {
			own[q] = e.vector.addTo(own[q])
		}
	}
	for q, sums := range own {
		for ; q != nil; q = q.parent {
			held[q] = append(held[q], make([]sum, max(len(sums)-len(held[q]), 0))...)
			for d, n := range sums {
				held[q][d] = held[q][d].plus(n)
			}
		}
	}
	var names []string
	check := func(q *Quota) {
		sums := held[q]
		for d := range max(len(q.cells), len(sums)) {
			var have, want sum
			if d < len(q.cells) {
				have = q.cells[d].sums[Used]
			}
			if d < len(sums) {
				want = sums[d]
			}
			if have != want {
				names = append(names, q.Name())
				return
			}
		}
	}
	check(a.root)
	for _, q := range a.forest.quotas {
		check(q)
	}
	slices.Sort(names)
	return names
}

// Rebuilt returns an account of the same quotas, nodes, pods and reservations, computed anew.
func (a *Account) Rebuilt() *Account {
	b := NewAccount(a.forest.config, a.rules)
	for _, name := range slices.Sorted(maps.Keys(a.forest.quotas)) {
		b.Set(a.forest.quotas[name].spec)
	}
	nodes := Amounts{}
	for d, n := range a.forest.nodes {
		nodes[a.forest.names[d]] = n
	}
	b.SetNodes(nodes)
	for id, bond := range a.bonds {
		b.SetGang(id, bond)
	}
	for uid, e := range a.pods {
		b.Put(e.pod)
		if e.state == Reserved {
			b.turn(b.pods[uid], Reserved)
		}
	}
	return b
}

// addTo returns sums with the amounts of v, by dimension.
func (v Vector) addTo(sums []sum) []sum {
	for _, n := range v {
		sums = append(sums, make([]sum, max(int(n.Dimension)+1-len(sums), 0))...)
		sums[n.Dimension] = sums[n.Dimension].plus(sumOf(n.N))
	}
	return sums
}
