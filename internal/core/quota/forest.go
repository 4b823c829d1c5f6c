package quota

import (
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/core/amount"
)

// Config is what holds for all quotas of a forest.
type Config struct {
	// ScaleMin shares the total in proportion to min where it is smaller than the sum of mins. Without it, runtimes
	// can exceed the total together.
	ScaleMin bool
	// DefaultMax is the max of Default while no spec sets one. A dimension that it lacks is not limited.
	DefaultMax amount.List
	// Classes has the names under which the devices of DeviceClasses count, by class; the others count under
	// ClassDimension.
	Classes map[string]string
}

// Forest is all quotas: the default tree under Root, the extra trees, System and Default. It accepts every Spec and
// every order of events, and its state depends on what it was given last and not on the order. It is not safe for
// concurrent use: reading divides what is out of date.
type Forest struct {
	config     Config
	names      []string
	dimensions map[string]Dimension

	quotas           map[string]*Quota // by name, with System and Default, without Root
	root             *Quota
	system, fallback *Quota
	tops             []*Quota // of extra trees

	nodes   []int64 // amounts of the counted nodes, by dimension
	divider divider
}

// New returns a forest without quotas and nodes.
func New(c Config) *Forest {
	f := &Forest{
		config: c, dimensions: map[string]Dimension{},
		root: &Quota{spec: Spec{Name: Root, IsParent: true}}, system: &Quota{spec: Spec{Name: System}},
		fallback: &Quota{},
	}
	f.quotas = map[string]*Quota{System: f.system, Default: f.fallback}
	f.setDefault(c.DefaultMax)
	return f
}

// Set adds a quota or replaces its spec. The specs of Root and System are ignored, of that of Default only max counts.
func (f *Forest) Set(s Spec) {
	switch s.Name {
	case Root, System:
		return
	case Default:
		f.setDefault(s.Max)
		return
	}
	q := f.quotas[s.Name]
	var moved []*Quota
	if q == nil {
		q = &Quota{}
		f.quotas[s.Name] = q
		for _, o := range f.root.children {
			if o.spec.Parent == s.Name {
				moved = append(moved, o)
			}
		}
	} else {
		moved = f.cycle(q)
	}
	q.spec = s.clone()
	moved = append(append(moved, f.cycle(q)...), q)
	f.place(moved)
	f.limit(q)
}

// Remove forgets a quota: its children hang under Root, and what its own pods ask for and use counts with Default.
// Default gets its first max back.
func (f *Forest) Remove(name string) {
	q := f.quotas[name]
	switch q {
	case nil, f.system:
		return
	case f.fallback:
		f.setDefault(f.config.DefaultMax)
		return
	}
	moved := slices.DeleteFunc(slices.Concat(f.cycle(q), q.children), func(o *Quota) bool { return o == q })
	delete(f.quotas, name)
	f.place(moved)
	f.detach(q)
	f.tops = slices.DeleteFunc(f.tops, func(o *Quota) bool { return o == q })
	q.removed = true
	q.spec = Spec{Name: name}
	f.limit(q) // without limits it passes all that its pods ask for
	f.transfer(q, f.fallback, sum.plus)
}

// Find returns the quota of a name: nil where there is none.
func (f *Forest) Find(name string) *Quota {
	if name == Root {
		return f.root
	}
	return f.quotas[name]
}

// SetNodes sets what the counted nodes have together. The default tree divides what System, Default and the extra
// trees leave of it, never less than 0.
func (f *Forest) SetNodes(amounts amount.List) {
	clear(f.nodes)
	for _, a := range f.Vector(amounts) {
		f.nodes = append(f.nodes, make([]int64, max(int(a.Dimension)+1-len(f.nodes), 0))...)
		f.nodes[a.Dimension] = a.N
	}
	f.updateTotals()
}

// Add counts what a pod of the quota asks for or uses, up to the top of the tree. The work is in the depth of the
// quota; a request stops where it is above max.
func (f *Forest) Add(q *Quota, m Measure, v Vector) { f.change(q, m, v, 1) }

// Subtract takes back what Add counted.
func (f *Forest) Subtract(q *Quota, m Measure, v Vector) { f.change(q, m, v, -1) }

// change adds a vector, sign times, to one measure of a quota and of those above it. A request propagates only as far
// as limits let it.
func (f *Forest) change(q *Quota, m Measure, v Vector, sign int64) {
	q = f.live(q)
	for _, a := range v {
		if delta := sumOf(sign * a.N); m == Request {
			f.addRequest(q, a.Dimension, delta)
		} else {
			f.addSum(q, m, a.Dimension, delta)
		}
	}
}

// Runtime returns what the quota may use in a dimension; false where it is not limited. Only those sets of siblings on
// the quota's path are divided whose inputs have changed.
func (f *Forest) Runtime(q *Quota, d Dimension) (int64, bool) {
	q = f.live(q)
	if int(d) >= len(q.cells) || !q.cells[d].named {
		return 0, false
	}
	if q.parent != nil {
		f.updateRuntime(q.parent, d)
	}
	return q.cells[d].runtime, true
}

// live returns the quota, or Default for one that was removed.
func (f *Forest) live(q *Quota) *Quota {
	if q.removed {
		return f.fallback
	}
	return q
}

// setDefault sets the limits of the quota Default.
func (f *Forest) setDefault(ceilings amount.List) {
	f.fallback.spec = Spec{Name: Default, Max: maps.Clone(ceilings)}
	f.limit(f.fallback)
}

// addRequest changes the request of a quota and, as far as that changes what it asks of its parent, of those above.
func (f *Forest) addRequest(q *Quota, d Dimension, delta sum) {
	for ; q != nil && delta != (sum{}); q = q.parent {
		c := q.at(d)
		limited, pass := c.limited(), c.pass()
		c.sums[Request] = c.sums[Request].plus(delta)
		if c.named && c.limited() != limited && q.parent != nil {
			q.parent.cells[d].stale = true
		}
		delta = sumOf(c.pass() - pass)
	}
}

// addSum changes a sum of a quota and of those above.
func (f *Forest) addSum(q *Quota, m Measure, d Dimension, delta sum) {
	if delta == (sum{}) {
		return
	}
	for n := q; n != nil; n = n.parent {
		c := n.at(d)
		c.sums[m] = c.sums[m].plus(delta)
		if n.parent != nil && m == Used {
			set := &n.parent.cells[d]
			set.stale = set.stale || set.tied
		}
	}
	if m == Used && (q == f.system || q == f.fallback) {
		f.updateTotal(d)
	}
}

// limit makes the cells of a quota say what its spec says.
func (f *Forest) limit(q *Quota) {
	s := &q.spec
	for _, amounts := range []amount.List{s.Max, s.Total} {
		for _, a := range f.Vector(amounts) {
			q.at(a.Dimension)
		}
	}
	for i := range q.cells {
		c, d := &q.cells[i], Dimension(i)
		was, passed := c.limits, c.pass()
		c.limits = s.limits(f.names[i])
		if q.parent != nil {
			set := &q.parent.cells[i]
			set.stale = set.stale || c.limits != was
			f.addRequest(q.parent, d, sumOf(c.pass()-passed))
			continue
		}
		c.runtime = c.ceiling
		if s.IsRoot {
			if c.runtime = max(s.Total[f.names[i]], 0); c.named {
				c.runtime = min(c.runtime, c.ceiling)
			}
		}
		c.effective, c.stale = c.runtime, true
	}
	f.updateTotals()
}

// updateTotals computes what the trees divide, in every dimension.
func (f *Forest) updateTotals() {
	for d := range f.names {
		f.updateTotal(Dimension(d))
	}
}

// updateTotal computes what the default tree divides.
func (f *Forest) updateTotal(d Dimension) {
	total := sum{}
	if int(d) < len(f.nodes) {
		total = sumOf(f.nodes[d])
	}
	mapped := f.config.isMapped(f.names[d])
	named := total != sum{} && !mapped
	if !named && (mapped || isClass(f.names[d])) {
		total = sumOf(undivided)
	}
	total = total.minus(sumOf(f.system.Amount(Used, d))).minus(sumOf(f.fallback.Amount(Used, d)))
	for _, q := range f.tops {
		if !q.spec.IgnoreDefaultTree {
			total = total.minus(sumOf(max(q.spec.Total[f.names[d]], 0)))
		}
	}
	c, n := f.root.at(d), total.amount()
	c.stale = c.stale || c.runtime != n
	c.limits, c.runtime, c.effective = limits{named: named, floor: n, ceiling: n, weight: n}, n, n
}

// updateRuntime divides what is out of date of the sets of children on the path down to, and with, that of q.
func (f *Forest) updateRuntime(q *Quota, d Dimension) {
	if q.parent != nil {
		f.updateRuntime(q.parent, d)
	}
	if q.cells[d].stale {
		f.divide(q, d)
	}
}

// divide hands the runtime of a quota down to its children.
func (f *Forest) divide(q *Quota, d Dimension) {
	set := &q.cells[d]
	rounds, tied := f.division(q, d)
	set.stale, set.tied, set.rounds = false, tied, rounds
	next := f.divider.members
	for _, child := range q.children {
		if int(d) >= len(child.cells) {
			continue
		}
		c := &child.cells[d]
		runtime, effective := set.runtime, set.effective
		if c.named {
			runtime, effective = next[0].given, next[0].effective
			next = next[1:]
		}
		c.stale = c.stale || c.runtime != runtime || c.effective != effective
		c.runtime, c.effective = runtime, effective
	}
}

// division computes what the children of q get; the divider has the result, of the children with a max by name.
func (f *Forest) division(q *Quota, d Dimension) (rounds int, tied bool) {
	v, set := &f.divider, &q.cells[d]
	f.gather(q, d)
	scaled := false
	if f.config.ScaleMin {
		scaled, tied = v.scale(max(set.effective, set.runtime))
	}
	rounds, cut := v.lend(set.runtime)
	if scaled {
		rounds++
	}
	return rounds, tied || cut
}

// gather makes the divider's members the children of q that have a max, with their mins before scaling.
func (f *Forest) gather(q *Quota, d Dimension) {
	v := &f.divider
	v.members = v.members[:0]
	for _, child := range q.children {
		if int(d) < len(child.cells) && child.cells[d].named {
			c := &child.cells[d]
			v.members = append(v.members, member{
				effective: c.floor, limited: c.limited(), weight: c.weight, used: c.amount(Used),
				keeps: c.keeps, fixed: c.fixed,
			})
		}
	}
}
