package quota

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/core/amount"
)

// Report is what is known of one quota, by resource name. Min to Runtime have every dimension that max names, zeros
// too; the sums also have what is not 0 of others.
type Report struct {
	Name, Parent, Tree string
	Namespace, Group   string // of the object
	// Path is from below the top of the default tree, or from the top of an extra one, to the quota.
	Path            []string
	IsParent, Lends bool

	Min, Max, Weight amount.List // as they count
	EffectiveMin     amount.List // min after scaling
	// Guaranteed is min. Allocated is what a leaf uses; what the children
	// of a parent are guaranteed.
	Guaranteed, Allocated amount.List
	Runtime               amount.List

	Request, Used, NonPreemptibleRequest, NonPreemptibleUsed amount.List
	// Passed is what the quota asks of its parent: its request within max, lifted to min where it does not lend.
	Passed amount.List
}

// Report describes a quota. It does not change with the forest.
func (f *Forest) Report(q *Quota) Report {
	r := Report{
		Name: q.spec.Name, Namespace: q.spec.Namespace, Group: q.spec.Group, IsParent: q.spec.IsParent,
		Lends: !q.spec.KeepsMin,
	}
	if q.parent != nil {
		r.Parent = q.parent.spec.Name
	}
	for n := q; n != nil && n != f.root; n = n.parent {
		r.Path = append(r.Path, n.spec.Name)
		r.Tree = n.spec.Tree
	}
	slices.Reverse(r.Path)
	for i := range q.cells {
		d, c := Dimension(i), &q.cells[i]
		runtime, named := f.Runtime(q, d)
		for _, field := range []struct {
			amounts *amount.List
			n       int64
		}{
			{&r.Min, c.floor},
			{&r.Max, c.ceiling},
			{&r.Weight, c.weight},
			{&r.EffectiveMin, min(c.effective, c.ceiling)}, // without max, that of the parent
			{&r.Guaranteed, c.floor},
			{&r.Runtime, runtime},
			{&r.Allocated, f.allocated(q, d)},
			{&r.Passed, c.pass()},
			{&r.Request, c.amount(Request)},
			{&r.Used, c.amount(Used)},
			{&r.NonPreemptibleRequest, c.amount(NonPreemptibleRequest)},
			{&r.NonPreemptibleUsed, c.amount(NonPreemptibleUsed)},
		} {
			if *field.amounts == nil {
				*field.amounts = amount.List{}
			}
			if named || field.n > 0 {
				(*field.amounts)[f.names[i]] = field.n
			}
		}
	}
	return r
}

// Reports describes all quotas, by name, Root included.
func (f *Forest) Reports() []Report {
	reports := []Report{f.Report(f.root)}
	for _, q := range f.quotas {
		reports = append(reports, f.Report(q))
	}
	slices.SortFunc(reports, func(a, b Report) int { return cmp.Compare(a.Name, b.Name) })
	return reports
}

// allocated returns what of a quota is in use: by its pods or, if it has children, the sum of the children's floors.
func (f *Forest) allocated(q *Quota, d Dimension) int64 {
	if len(q.children) == 0 {
		return q.Amount(Used, d)
	}
	total := sum{}
	for _, child := range q.children {
		if int(d) < len(child.cells) {
			total = total.plus(sumOf(child.cells[d].floor))
		}
	}
	return total.amount()
}

// Trace is how the runtime of a quota comes about in one dimension, in the unit of the account: its base and what it
// got in each round that it took part in. People read it as JSON.
type Trace struct {
	// Total is what the quota and its siblings divide: the runtime of the parent.
	Total        int64 `json:"total"`
	EffectiveMin int64 `json:"effectiveMin"`
	// Limited is the request within max. Base is what the quota has before anything is lent: what it asks for within
	// EffectiveMin. Pool is what is left of Total above the bases of all siblings.
	Limited int64 `json:"limited"`
	Base    int64 `json:"base"`
	Pool    int64 `json:"pool"`
	// Rounds are never nil.
	Rounds []Round `json:"rounds"`
}

// Trace repeats the division that gave a quota its runtime; false where the dimension is not divided: the quota does
// not limit it, or has no siblings to divide with.
func (f *Forest) Trace(q *Quota, d Dimension) (Trace, bool) {
	if _, named := f.Runtime(q, d); !named || q.parent == nil {
		return Trace{}, false
	}
	v := &f.divider
	v.record, v.watched, v.rounds = true, 0, nil
	for _, sibling := range q.parent.children {
		if sibling == q {
			break
		}
		if int(d) < len(sibling.cells) && sibling.cells[d].named {
			v.watched++
		}
	}
	f.division(q.parent, d)
	m, rounds := v.members[v.watched], v.rounds
	v.record, v.rounds = false, nil
	base := m.given
	for _, r := range rounds {
		base -= r.Got - r.Returned
	}
	return Trace{q.parent.cells[d].runtime, m.effective, m.limited, base, v.pool, append([]Round{}, rounds...)}, true
}

// Miscounted returns the quotas whose use is not what the pods of their trees hold together, by name. There are none:
// one that it names is a mistake of this package, which Rebuilt ends. The work is in the number of pods.
func (a *Account) Miscounted() []string {
	own, held := map[*Quota][]sum{}, map[*Quota][]sum{}
	for _, e := range a.pods {
		if q := a.forest.live(e.group.quota); e.state != Pending {
			own[q] = e.vector.addTo(own[q])
		}
	}
	for _, c := range a.charges {
		if c.counts.state != Pending {
			q := a.forest.live(c.counts.group.quota)
			own[q] = c.counts.vector.addTo(own[q])
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
	nodes := amount.List{}
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
	for _, c := range a.charges {
		b.PutCharge(c.Charge)
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
