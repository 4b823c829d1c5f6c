package cpualloc

import "github.com/tenon-project/tenon/internal/core/topo"

// cost is what a set of NUMA nodes costs: rows 2 to 8 of the quality order, smaller is better. Sets that are compared
// have the same number of nodes (row 1).
type cost [rows]int64

const (
	rowSockets = iota
	rowDistance
	rowBind     // FullPCPUs: partial cores; SpreadByPCPUs: stage
	rowBindNext // FullPCPUs: stage; SpreadByPCPUs: −distinct cores
	rowStrategy
	rowCores // FullPCPUs: wholly free cores broken up; SpreadByPCPUs: −free threads of the cores used
	rowTick  // −CPUs without a tick, as many as the request can take
	rows
)

// choice is a set of NUMA nodes with what taking the request from it costs. A choice without nodes is none yet.
type choice struct {
	nodes topo.NodeSet
	cost  cost
	// stage says how far the exclusive policy is kept: 1 where no other holder of its level is on the cores, or on the
	// NUMA nodes; 2 where one is on the nodes and not on the cores; 3 otherwise.
	stage int
	// spare is set where held cores are left out, which fill must follow.
	spare bool
}

// evaluate computes the choice of nodes. It stops, and returns false, as soon as the set is known to be worse than
// best (of no nodes: none yet).
func (v *solver) evaluate(nodes topo.NodeSet, best *choice) (choice, bool) {
	c := choice{nodes: nodes}
	c.cost[rowSockets] = int64(v.m.SocketsOf(nodes))
	if best.nodes != 0 && c.cost[rowSockets] > best.cost[rowSockets] {
		return c, false
	}
	c.cost[rowDistance] = v.m.DistanceWithin(nodes)
	if best.nodes != 0 && c.fartherThan(best) {
		return c, false
	}
	s := v.sumOf(nodes)
	v.evaluateCores(&c, &s)
	return c, best.nodes == 0 || c.betterThan(best)
}

// fartherThan compares the rows that need no look at the cores.
func (c *choice) fartherThan(o *choice) bool {
	if c.cost[rowSockets] != o.cost[rowSockets] {
		return c.cost[rowSockets] > o.cost[rowSockets]
	}
	return c.cost[rowDistance] > o.cost[rowDistance]
}

// betterThan compares the rows in their order; between equals the lower nodes win, so that the order is total.
func (c *choice) betterThan(o *choice) bool {
	for i := range c.cost {
		if c.cost[i] != o.cost[i] {
			return c.cost[i] < o.cost[i]
		}
	}
	return c.nodes.Before(o.nodes)
}

// evaluateCores fills in the rows after the distance. s is the sum of the nodes.
func (v *solver) evaluateCores(c *choice, s *sum) {
	c.cost[rowTick] = -min(s.noTick, int64(v.req.Count))
	if v.even.k > 0 {
		c.cost[rowStrategy] = v.evaluateEven(c)
		return
	}
	var all, spare outcome
	if v.held && !v.keepsApart(c.nodes) {
		spare = v.expect(&s.spare, v.req.Count)
	}
	if !spare.ok || v.req.Bind == FullPCPUs { // else decideStage takes spare
		all = v.expect(&s.all, v.req.Count)
	}
	v.decideStage(c, all, spare)
	c.cost[rowStrategy] = s.free
	if v.req.Strategy == LeastAllocated {
		c.cost[rowStrategy] = -s.free
	}
}

// evaluateEven is evaluateCores for an even split, in which each node has its own share. It returns the deviation.
func (v *solver) evaluateEven(c *choice) int64 {
	var share [maxNodes]int
	v.shares(c.nodes, &share)
	all, spare := outcome{ok: true}, outcome{ok: true}
	deviation := int64(0)
	for i := range c.nodes.All() {
		all.add(v.expect(&v.node[i].all, share[i]))
		if v.held && spare.ok {
			spare.add(v.expect(&v.node[i].spare, share[i]))
		}
		before := v.node[i].all.open
		left := before - share[i]
		deviation += int64(left*left - before*before)
	}
	if !v.held {
		spare.ok = false
	}
	v.decideStage(c, all, spare)
	return deviation
}

// decideStage decides the stage and with it whether held cores are left out, and fills in the rows of the bind policy.
func (v *solver) decideStage(c *choice, all, spare outcome) {
	avoidable := spare.ok && (v.req.Bind == SpreadByPCPUs || spare.partial == all.partial)
	c.stage, c.spare = 3, false
	switch {
	case v.keepsApart(c.nodes):
		c.stage = 1
	case avoidable && v.req.Exclusive == PCPULevel:
		c.stage, c.spare = 1, true
	case avoidable:
		c.stage, c.spare = 2, true
	}
	got := all
	if c.spare {
		got = spare
	}
	if v.req.Bind == FullPCPUs {
		c.cost[rowBind], c.cost[rowBindNext] = got.partial, int64(c.stage)
	} else {
		c.cost[rowBind], c.cost[rowBindNext] = int64(c.stage), -got.distinct
	}
	c.cost[rowCores] = got.damage
}

// keepsApart reports whether no core of nodes can be one that the exclusive policy avoids.
func (v *solver) keepsApart(nodes topo.NodeSet) bool {
	return v.req.Exclusive == NotExclusive ||
		v.req.Exclusive == PCPULevel && !v.held ||
		v.req.Exclusive == NUMANodeLevel && nodes&v.heldNodes == 0
}

// sum is what the nodes of a set have together: of all cores, and of those that are not held.
type sum struct {
	all, spare tally
	free       int64 // CPUs
	noTick     int64 // free CPUs without a tick
}

// sumOf returns what a set of nodes has together.
func (v *solver) sumOf(nodes topo.NodeSet) sum {
	var s sum
	for ; nodes != 0; nodes &= nodes - 1 {
		s.add(v, nodes.First(), 1)
	}
	return s
}

// add adds what one node has, or subtracts it with the sign -1. spare is computed only if some core is held.
func (s *sum) add(v *solver, i topo.NUMA, sign int16) {
	n := &v.node[i]
	s.all.add(v, &n.all, sign)
	if v.held {
		s.spare.add(v, &n.spare, sign)
	}
	s.free += int64(sign) * int64(n.free)
	s.noTick += int64(sign) * int64(n.noTick)
}

// outcome is what fill will make of cores.
type outcome struct {
	ok       bool  // the cores hold the request
	partial  int64 // cores of which it takes a part
	distinct int64 // cores that it uses
	damage   int64 // rowCores
}

// add adds what another part of the CPUs costs. The whole works if all parts do.
func (o *outcome) add(p outcome) {
	o.ok = o.ok && p.ok
	o.partial += p.partial
	o.distinct += p.distinct
	o.damage += p.damage
}

// expect foretells what fill makes of the cores of t for count CPUs.
func (v *solver) expect(t *tally, count int) outcome {
	n := int64(count)
	if v.req.Bind == FullPCPUs {
		return expectFull(t, n, v.threads)
	}
	left := min(n, int64(t.cores))
	o := outcome{ok: int64(t.open) >= n, distinct: left}
	for free := v.threads; free > 0 && left > 0; free-- {
		cores := min(left, int64(t.byFree[free]))
		o.damage -= cores * int64(free)
		left -= cores
	}
	return o
}

// expectFull follows the steps of fillFull by numbers: give entire cores from the largest size down, then open as few
// others as possible.
//
// Sizes of entire cores divide each other, so going down from the largest gives the largest sum that is ≤ n; when
// entire cores are left over, each is larger than what is still missing and one of them is enough.
func expectFull(t *tally, n int64, threads int) outcome {
	o := outcome{ok: int64(t.open) >= n}
	if !o.ok {
		return o
	}
	leftOver := false
	for size := threads; size > 0; size-- {
		cores := min(int64(t.byOpen[entire][size]), n/int64(size))
		n -= cores * int64(size)
		leftOver = leftOver || cores < int64(t.byOpen[entire][size])
	}
	for size := threads; size > 0 && n > 0; size-- {
		cores := int64(t.byOpen[broken][size])
		if leftOver && n > int64(size) {
			break
		}
		if cores == 0 {
			continue
		}
		cores = min(cores, (n+int64(size)-1)/int64(size))
		o.partial += cores
		n -= min(n, cores*int64(size))
	}
	if n > 0 { // no broken core holds the rest
		o.partial++
		o.damage++
	}
	return o
}

// between is what two nodes add to the distances of a set: both ways, as SLIT tables need not be symmetric.
func (v *solver) between(i, j topo.NUMA) int64 {
	return int64(v.m.Distance(i, j) + v.m.Distance(j, i))
}
