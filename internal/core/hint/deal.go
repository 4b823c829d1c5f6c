package hint

import (
	"math"
	"slices"
)

// A mask M comes out of providers whose masks are closed upwards iff the other nodes can be dealt out: each to one
// provider that then does without it, while every provider keeps enough. The memory manager is such a provider on the
// nodes that nobody uses; its single nodes and groups are masks by themselves.

// dealBudget bounds the steps of dealing for one answer, and dealStates what is remembered of one deal.
const (
	dealBudget = 20_000
	dealStates = 128
)

// dealer looks for the best mask that providers come to.
type dealer struct {
	p      *problem
	active Mask
	key    ranking
	givers []giver // resources; those of memory follow while a mask is tried
	memory []Mask  // masks of the memory manager that are not of unused nodes only
	copies int     // the memory list enters once for each type
	spare  bool    // the memory manager offers the unused nodes
	left   int     // of dealBudget
	exact  bool
}

// giver is a provider that can do without some nodes.
type giver struct {
	rows []row
	// slack is how much of each row may be given away, and last how many nodes.
	slack []int64
	nodes int64
	must  Mask
}

// reachWide answers for more nodes than a vector has places for.
func (p *problem) reachWide(active Mask, offered uint32, key ranking, c Certainty) (Mask, bool, Certainty) {
	own := *p // a copy, so that the problem itself need not live on the heap
	d := dealer{p: &own, active: active, key: key, left: dealBudget, exact: true}
	d.gather(offered)
	best, found := d.search()
	if !d.exact {
		c = Approximate
	}
	if !found {
		best, c = d.guess(), Approximate
	}
	return best, best != 0, c
}

// gather reads the providers. offered are the rows of resources that have a hint.
func (d *dealer) gather(offered uint32) {
	p := d.p
	for i := range p.rows[:p.resources] {
		if offered>>i&1 == 0 {
			continue
		}
		r := &p.rows[i]
		if r.places != nil { // what a node adds depends on the others: it keeps all
			d.exact = false
			continue
		}
		walked := r.stock.walked
		d.givers = append(d.givers, giver{
			rows: p.rows[i : i+1], slack: []int64{r.of(walked) - r.need}, nodes: MaxNodes, must: r.must,
		})
	}
	if !p.memory {
		return
	}
	d.copies = p.n - p.resources
	d.spare = p.unused.Len() > 1 && p.holdsFree(p.unused)
	for i := range p.s.group {
		d.know(1 << i)
	}
	for _, g := range p.s.groups {
		d.know(g)
	}
	for _, b := range p.q.Blocks {
		d.know(b.Nodes)
	}
}

// holdsFree reports whether m has the memory of every type without blocks that can be used again.
func (p *problem) holdsFree(m Mask) bool { return fits(p.rows[p.resources:p.n], m) }

func (d *dealer) know(m Mask) {
	if d.p.offers(m) && !slices.Contains(d.memory, m) {
		d.memory = append(d.memory, m)
	}
}

// search tries masks in the order of their rank.
func (d *dealer) search() (Mask, bool) {
	n := d.active.Len()
	sizes := make([]int, 0, n+1)
	for k := min(d.key.best, n); k > 0; k-- {
		sizes = append(sizes, k)
	}
	for k := d.key.best + 1; k <= n; k++ {
		sizes = append(sizes, k)
	}
	combos := combinations{nodes: nodesOf(d.active)}
	for _, k := range sizes {
		best, found := Mask(0), false
		for m, ok := combos.first(k); ok; m, ok = combos.next() {
			if d.left--; d.left < 0 {
				d.exact = false
				return best, found
			}
			if found && !d.key.before(m, best) {
				continue
			}
			if !d.reaches(m, d.active&^m, d.copies, 0) {
				continue
			}
			if best, found = m, true; d.key.rule.Distances == nil {
				break
			}
		}
		if found {
			return best, true
		}
	}
	return 0, false
}

// reaches reports whether the providers come to m: the memory manager first, which so many times takes one of its masks
// from the given on, or does without some unused nodes; then others is dealt out.
func (d *dealer) reaches(m, others Mask, copies, from int) bool {
	if copies == 0 {
		return d.deal(others)
	}
	for i := from; i < len(d.memory); i++ {
		if m.Within(d.memory[i]) && d.reaches(m, others&d.memory[i], copies-1, i) {
			return true
		}
	}
	if !d.spare || !m.Within(d.p.unused) {
		return false
	}
	// All copies that are left do without unused nodes.
	before := len(d.givers)
	rows := d.p.rows[d.p.resources:d.p.n]
	slack := make([]int64, len(rows))
	for i := range rows {
		slack[i] = rows[i].of(d.p.unused) - rows[i].need
	}
	for range copies {
		d.givers = append(d.givers, giver{rows: rows, slack: slack, nodes: int64(d.p.unused.Len()) - 2})
	}
	ok := d.deal(others & d.p.unused)
	d.givers = d.givers[:before]
	return ok
}

// deal reports whether every node of others can be given away by some provider.
func (d *dealer) deal(others Mask) bool {
	width := 0
	for i := range d.givers {
		width += len(d.givers[i].rows) + 1
	}
	start := make([]int64, 0, width)
	for i := range d.givers {
		start = append(append(start, d.givers[i].slack...), d.givers[i].nodes)
	}
	if possible, done := d.dealSimply(others, slices.Clone(start)); !possible || done {
		return possible
	}
	states := [][]int64{start} // what may still be given, none of them at least another
	for rest := others; rest != 0; rest &= rest - 1 {
		node := rest.First()
		var next [][]int64
		for _, s := range states {
			at := 0
			for i := range d.givers {
				g := &d.givers[i]
				end := at + len(g.rows) + 1
				if t := g.without(node, s, at, end); t != nil {
					next = keep(next, t)
				}
				at = end
				d.left--
			}
		}
		if len(next) == 0 {
			return false
		}
		if len(next) > dealStates {
			next, d.exact = next[:dealStates], false
		}
		states = next
	}
	return true
}

// dealSimply gives every node to the provider that has most left by its own measure: done if that works. Impossible are
// others of which even the best shares come to more than all providers have.
func (d *dealer) dealSimply(others Mask, s []int64) (possible, done bool) {
	done = true
	var shares float64
	for rest := others; rest != 0; rest &= rest - 1 {
		node := rest.First()
		d.left--
		best, part, end, lightest := -1, 0.0, 0, math.Inf(1)
		for i, at := 0, 0; i < len(d.givers); i++ {
			g := &d.givers[i]
			to := at + len(g.rows) + 1
			if share := g.share(node); share < lightest {
				lightest = share
			}
			if keeps := g.keeps(node, s[at:to]); keeps >= 0 && (best < 0 || keeps > part) {
				best, part, end = i, keeps, to
			}
			at = to
		}
		shares += lightest
		if done = done && best >= 0; done {
			g := &d.givers[best]
			s[end-1]--
			for i := range g.rows {
				s[end-1-len(g.rows)+i] -= g.rows[i].free[node]
			}
		}
	}
	const rounding = 1e-6
	return shares <= float64(len(d.givers))+rounding, done
}

// share is the part of its first slack that node takes from a provider: above 1 if it cannot do without the node.
func (g *giver) share(node int) float64 {
	free := g.rows[0].free[node]
	switch {
	case g.must.Has(node) || free > g.slack[0]:
		return math.Inf(1)
	case free == 0:
		return 0
	}
	return float64(free) / float64(g.slack[0])
}

// keeps is the part of its first slack that the provider in state s keeps after it gave node away, negative if it cannot.
func (g *giver) keeps(node int, s []int64) float64 {
	if g.must.Has(node) || s[len(s)-1] < 1 {
		return -1
	}
	for i := range g.rows {
		if s[i] < g.rows[i].free[node] {
			return -1
		}
	}
	if g.rows[0].free[node] == 0 {
		return 1
	}
	return float64(s[0]-g.rows[0].free[node]) / float64(g.slack[0])
}

// without returns state s after the provider gave node away, nil if it cannot. Its part of s is at…end.
func (g *giver) without(node int, s []int64, at, end int) []int64 {
	if g.must.Has(node) || s[end-1] < 1 {
		return nil
	}
	for i := range g.rows {
		if s[at+i] < g.rows[i].free[node] {
			return nil
		}
	}
	t := slices.Clone(s)
	t[end-1]--
	for i := range g.rows {
		t[at+i] -= g.rows[i].free[node]
	}
	return t
}

// keep adds a state unless another is at least it everywhere, and drops those that it is at least.
func keep(states [][]int64, s []int64) [][]int64 {
	atLeast := func(a, b []int64) bool {
		for i := range a {
			if a[i] < b[i] {
				return false
			}
		}
		return true
	}
	for _, t := range states {
		if atLeast(t, s) {
			return states
		}
	}
	return append(slices.DeleteFunc(states, func(t []int64) bool { return atLeast(s, t) }), s)
}

// guess is the answer when the budget ends: the nodes with most of the first resource that needs most nodes.
func (d *dealer) guess() Mask {
	var most row
	widest := 0
	for i := range d.p.rows[:d.p.n] {
		r := &d.p.rows[i]
		if k := fewest(r.free, d.active, r.must&d.active, r.need); k > widest {
			most, widest = *r, k
		}
	}
	nodes := nodesOf(d.active)
	if widest > 0 {
		slices.SortStableFunc(nodes, func(a, b int) int { return int(min(max(most.free[b]-most.free[a], -1), 1)) })
	}
	var m Mask
	for _, node := range nodes[:min(max(d.key.best, 1), len(nodes))] {
		m |= 1 << node
	}
	return m
}
