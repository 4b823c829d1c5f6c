package quota

import "slices"

// wanted returns the quota that q's spec names as parent: nil for the tops of trees and where it does not exist.
func (f *Forest) wanted(q *Quota) *Quota {
	if q.spec.IsRoot || q.spec.Parent == "" || q.spec.Parent == Root {
		return nil
	}
	if p := f.quotas[q.spec.Parent]; p != f.system && p != f.fallback {
		return p
	}
	return nil
}

// cycle returns the quotas on the cycle of wanted parents that q is on: none where it is on none.
func (f *Forest) cycle(q *Quota) []*Quota {
	var on []*Quota
	for n := q; n != nil && len(on) <= len(f.quotas); n = f.wanted(n) {
		if n == q && len(on) > 0 {
			return on
		}
		on = append(on, n)
	}
	return nil
}

// home returns where q hangs, and why not where its spec says. It depends on the specs alone, not on their order.
func (f *Forest) home(q *Quota) (*Quota, fault) {
	p := f.wanted(q)
	switch {
	case q.spec.IsRoot:
		return nil, ""
	case p == nil && (q.spec.Parent == "" || q.spec.Parent == Root):
		return f.root, ""
	case p == nil:
		return f.root, unknownParent
	case f.cycle(q) != nil:
		return f.root, parentCycle
	default:
		return p, ""
	}
}

// place hangs quotas where their specs say. Those that go to the top go first, so that no order of moves makes a
// cycle.
func (f *Forest) place(quotas []*Quota) {
	var below []*Quota
	for _, q := range quotas {
		if home, _ := f.home(q); home == nil || home == f.root {
			f.move(q)
		} else {
			below = append(below, q)
		}
	}
	for _, q := range below {
		f.move(q)
	}
}

// move puts a quota below the parent that it names, or among the tops of the trees if it has none.
func (f *Forest) move(q *Quota) {
	home, misplaced := f.home(q)
	q.misplaced = misplaced
	top := slices.Index(f.tops, q)
	switch {
	case home == nil && top < 0:
		f.tops = append(f.tops, q)
	case home != nil && top >= 0:
		f.tops = slices.Delete(f.tops, top, top+1)
	}
	if q.parent != home {
		f.detach(q)
		if home != nil {
			f.attach(q, home)
		}
	}
}

// attach adds a quota to a parent's children, which are sorted by name, and its sums to those above it.
func (f *Forest) attach(q, parent *Quota) {
	i, _ := parent.index(q.spec.Name)
	parent.children = slices.Insert(parent.children, i, q)
	q.parent = parent
	f.transfer(q, parent, sum.plus)
}

// detach reverts attach. It does nothing for a quota without parent.
func (f *Forest) detach(q *Quota) {
	if parent := q.parent; parent != nil {
		i, _ := parent.index(q.spec.Name)
		parent.children = slices.Delete(parent.children, i, i+1)
		q.parent = nil
		f.transfer(q, parent, sum.minus)
	}
}

// transfer adds what q passes on to another quota, or takes it back.
func (f *Forest) transfer(q, to *Quota, sign func(zero, delta sum) sum) {
	for i := range q.cells {
		c, d := &q.cells[i], Dimension(i)
		to.at(d).stale = true
		f.addRequest(to, d, sign(sum{}, sumOf(c.pass())))
		for m := Used; m < measures; m++ {
			f.addSum(to, m, d, sign(sum{}, c.sums[m]))
		}
	}
}
