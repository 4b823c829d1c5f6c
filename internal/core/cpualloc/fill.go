package cpualloc

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// fill takes the CPUs of a choice. Packed, the nodes are filled one after the other: MostAllocated begins with the
// fewest free CPUs, so that the free CPUs remain contiguous, LeastAllocated with the most. Every step goes over all
// nodes before the next step begins, because the rows of the bind policy rank above the strategy.
func (v *solver) fill(c *choice) {
	v.skipHeld = c.spare
	if v.even.k > 0 {
		var share [maxNodes]int
		v.shares(c.nodes, &share)
		for i := range c.nodes.All() {
			order := [1]topo.NUMA{i}
			v.fillNodes(order[:], share[i])
		}
		return
	}
	var order [maxNodes]topo.NUMA
	v.fillNodes(v.inOrder(c.nodes, order[:0]), v.req.Count)
}

// fillNodes takes n CPUs of the nodes in this order. expect has promised that they have them.
func (v *solver) fillNodes(order []topo.NUMA, n int) {
	if v.req.Bind == FullPCPUs {
		n = v.fillFull(order, n)
	} else {
		n = v.fillSpread(order, n)
	}
	if n != 0 {
		panic("cpualloc: the chosen NUMA nodes do not hold the request")
	}
}

// inOrder returns nodes in the order of the strategy, equal ones by id.
func (v *solver) inOrder(nodes topo.NodeSet, order []topo.NUMA) []topo.NUMA {
	for i := range nodes.All() {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b topo.NUMA) int {
		if v.req.Strategy == LeastAllocated {
			a, b = b, a
		}
		return v.node[a].free - v.node[b].free
	})
	return order
}

// inPass returns the CPUs of a NUMA node that are left, and are given in a pass: of two, those without a tick first.
func (v *solver) inPass(i topo.NUMA, pass int) cpuset.Set {
	cpus := v.m.NUMACPUs(i).Intersect(v.left)
	switch {
	case v.passes == 1:
		return cpus
	case pass == 0:
		return cpus.Intersect(v.state.NoTick)
	}
	return cpus.Minus(v.state.NoTick)
}

// take takes n CPUs of a core that are left, those without a tick first and then the lowest ones, and records the round
// and the L3 group.
func (v *solver) take(id topo.Core, n int) {
	c, cpus := &v.core[id], v.m.CoreCPUs(id)
	if v.passes > 1 {
		for _, cpu := range cpus {
			if n > 0 && v.left.Has(int(cpu)) && v.state.NoTick.Has(int(cpu)) {
				v.left.Remove(int(cpu))
				c.open--
				n--
			}
		}
	}
	for _, cpu := range cpus {
		if n > 0 && v.left.Has(int(cpu)) {
			v.left.Remove(int(cpu))
			c.open--
			n--
		}
	}
	c.round = v.round
	v.usedL3.Add(int(v.m.CoreL3(id)))
}

// fillFull takes n CPUs of the nodes, whole cores first, and returns what is missing. expectFull foretells it.
func (v *solver) fillFull(order []topo.NUMA, n int) int {
	for size := v.threads; size > 0; size-- {
		n = v.takeCores(order, want{kind: entire, open: uint8(size)}, n)
	}
	for size := v.threads; size > 0 && n > 0; size-- {
		if v.openOne(order, n) {
			return 0
		}
		n = v.takeCores(order, want{kind: broken, open: uint8(size)}, n)
	}
	if n > 0 && v.openOne(order, n) {
		return 0
	}
	return n
}

// takeCores takes all open CPUs of as many wanted cores as n holds, and returns the rest of n.
func (v *solver) takeCores(order []topo.NUMA, w want, n int) int {
	for _, i := range order {
		have := int(v.tally(i).byOpen[w.kind][w.open])
		cores := min(have, n/int(w.open))
		if cores == 0 {
			continue
		}
		n -= cores * int(w.open)
		grouped := cores
		if w.kind == entire && n > 0 && cores < have && (v.req.PreferL3 || !v.anyBroken(order, n)) {
			grouped++ // one more will be opened for the remainder: leave room for it in the same groups
		}
		v.takeGrouped(i, w, cores, grouped, have, int(w.open))
	}
	return n
}

// anyBroken reports whether some core of the nodes that is broken up already can give n CPUs: then no whole one is
// opened for them.
func (v *solver) anyBroken(order []topo.NUMA, n int) bool {
	for _, i := range order {
		for open := n; open <= v.threads; open++ {
			if v.tally(i).byOpen[broken][open] > 0 {
				return true
			}
		}
	}
	return false
}

// takeGrouped takes each CPUs of cores of the have wanted cores of a node, from the fewest L3 groups that hold grouped
// of them.
func (v *solver) takeGrouped(i topo.NUMA, w want, cores, grouped, have, each int) {
	if cores < have && v.m.NumL3() > 1 {
		groups := v.fewestL3(i, w, grouped)
		w.groups = &groups
	}
	v.takeLowest(i, w, cores, each)
}

// takeLowest takes each CPUs of the first wanted cores, by the first of their CPUs that can be taken.
func (v *solver) takeLowest(i topo.NUMA, w want, cores, each int) {
	for pass := range v.passes {
		cpus := v.inPass(i, pass)
		for cpu := cpus.First(); cpu >= 0 && cores > 0; cpu = cpus.Next(cpu + 1) {
			if id := v.m.CoreOf(topo.CPU(cpu)); v.matches(id, &w) {
				v.take(id, each)
				cores--
			}
		}
	}
}

// openOne takes n CPUs of one core that has that many and more: one that is broken up already before a whole one, in an
// L3 group that is used already before another; the other way round under PreferL3. It returns false when no core has
// n.
func (v *solver) openOne(order []topo.NUMA, n int) bool {
	best, bestScore := topo.Core(0), noScore
	for _, i := range order {
		for pass := range v.passes {
			cpus := v.inPass(i, pass)
			for cpu := cpus.First(); cpu >= 0; cpu = cpus.Next(cpu + 1) {
				id := v.m.CoreOf(topo.CPU(cpu))
				c := &v.core[id]
				if int(c.open) < n || v.skipHeld && c.held {
					continue
				}
				if score := v.openScore(id); score < bestScore {
					best, bestScore = id, score
				}
			}
		}
	}
	if bestScore == noScore {
		return false
	}
	v.take(best, n)
	return true
}

// noScore is above every openScore.
const noScore = 4

// openScore is row 7 of the quality order for one core, smaller is better: does it break up a whole core, and does it
// begin another L3 group.
func (v *solver) openScore(id topo.Core) int {
	c := &v.core[id]
	breaks, freshL3 := 0, 0
	if c.breaks() {
		breaks = 1
	}
	if !v.usedL3.Has(int(v.m.CoreL3(id))) {
		freshL3 = 1
	}
	if v.req.PreferL3 {
		return 2*freshL3 + breaks
	}
	return 2*breaks + freshL3
}

// fillSpread takes n CPUs of the nodes, one of each core before a second of any, and returns what is missing.
func (v *solver) fillSpread(order []topo.NUMA, n int) int {
	v.round = 1
	for _, i := range order {
		have := v.tally(i).cores
		cores := min(have, n)
		n -= cores
		switch cores {
		case 0:
		case have:
			v.takeLowest(i, want{fresh: true}, cores, 1)
		default:
			v.takeFresh(i, cores)
		}
	}
	for v.round = 2; n > 0 && int(v.round) <= v.threads; v.round++ {
		for _, i := range order {
			n = v.takeAnother(i, n)
		}
	}
	return n
}

// takeFresh takes one CPU of some of the untouched cores of a node: those with the most free threads, in few L3 groups;
// the other way round under PreferL3.
func (v *solver) takeFresh(i topo.NUMA, cores int) {
	w := want{fresh: true}
	if v.req.PreferL3 {
		groups := v.fewestL3(i, w, cores)
		w.groups = &groups
	}
	for free := v.threads; free > 0 && cores > 0; free-- {
		w.free = uint8(free)
		have := v.wanted(i, &w)
		take := min(have, cores)
		if w.groups == nil {
			v.takeGrouped(i, w, take, take, have, 1)
		} else {
			v.takeLowest(i, w, take, 1)
		}
		cores -= take
	}
}

// takeAnother takes at most one more CPU of each core of a node, those without a tick first, then the lowest ids. It
// returns the rest of n.
func (v *solver) takeAnother(i topo.NUMA, n int) int {
	for pass := range v.passes {
		cpus := v.inPass(i, pass)
		for cpu := cpus.First(); cpu >= 0 && n > 0; cpu = cpus.Next(cpu + 1) {
			id := v.m.CoreOf(topo.CPU(cpu))
			c := &v.core[id]
			if c.open > 0 && c.round < v.round && !(v.skipHeld && c.held) {
				v.take(id, 1)
				n--
			}
		}
	}
	return n
}

// tally returns what a node had to give before fill began.
func (v *solver) tally(i topo.NUMA) *tally {
	if v.skipHeld {
		return &v.node[i].spare
	}
	return &v.node[i].all
}
