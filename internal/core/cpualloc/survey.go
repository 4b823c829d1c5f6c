package cpualloc

import (
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// coreTally is what one core has to give. survey fills it; while fill takes CPUs, open falls and round rises.
type coreTally struct {
	free  uint8 // free CPUs
	open  uint8 // CPUs that an answer may take; one at most under required SpreadByPCPUs
	whole uint8 // wholeSize
	round uint8 // last round of fill that took from this core; 0 = untouched
	held  bool  // has a holder that the exclusive policy avoids
}

// kind is what taking a core's open CPUs means under FullPCPUs.
type kind uint8

const (
	// entire cores are given whole.
	entire kind = iota
	// broken cores cannot become whole, or only with CPUs that this request does not take.
	broken
)

// kind distinguishes whole cores from those of which some CPU is not open.
func (c *coreTally) kind() kind {
	if c.open == c.whole {
		return entire
	}
	return broken
}

// breaks reports whether taking a part of the core breaks up a wholly free one.
func (c *coreTally) breaks() bool { return c.free == c.whole }

// tally sums up cores with open CPUs. Tallies of several nodes add up.
type tally struct {
	open, cores int
	// byOpen counts the cores by kind and open CPUs, byFree by free CPUs.
	byOpen [broken + 1][MaxThreads + 1]int16
	byFree [MaxThreads + 1]int16
}

// count adds a core with open CPUs.
func (t *tally) count(c *coreTally) {
	t.open += int(c.open)
	t.cores++
	t.byOpen[c.kind()][c.open]++
	t.byFree[c.free]++
}

// add adds what expect reads of another tally, or subtracts it with the sign -1.
func (t *tally) add(v *solver, o *tally, sign int16) {
	t.open += int(sign) * o.open
	t.cores += int(sign) * o.cores
	threads := v.threads
	if v.req.Bind == SpreadByPCPUs {
		for x := 1; x <= threads; x++ {
			t.byFree[x] += sign * o.byFree[x]
		}
		return
	}
	for x := 1; x <= threads; x++ {
		t.byOpen[entire][x] += sign * o.byOpen[entire][x]
		t.byOpen[broken][x] += sign * o.byOpen[broken][x]
	}
}

// nodeTally is what one NUMA node had to give before anything was taken.
type nodeTally struct {
	free int // free CPUs, also those that the request may not take
	// noTick are those of free without a tick.
	noTick int
	all    tally
	spare  tally // all, without held cores; filled only when solver.held
}

// survey fills the tallies of the nodes of v.mask, and returns what each node with CPUs has to give; nothing where
// cores have more than MaxThreads. Under SingleNUMANode it leaves out of v.mask those that cannot hold the request
// alone.
func (v *solver) survey() (counts [maxNodes]NodeCount) {
	if v.threads > MaxThreads {
		return counts
	}
	noTick := v.left.Intersect(v.state.NoTick)
	if v.passes = 1; !noTick.IsEmpty() {
		v.passes = 2
	}
	avoid := v.avoid()
	for cpu := avoid.First(); cpu >= 0; cpu = avoid.Next(cpu + 1) {
		v.core[v.m.CoreOf(topo.CPU(cpu))].held = true
	}
	for nodes := v.m.NodesWithCPUs(); nodes != 0; nodes &= nodes - 1 {
		i := nodes.First()
		for _, id := range v.m.NUMACores(i) {
			free, whole := freeOf(v.m, id, &v.left), wholeSize(v.m, id)
			counts[i].addCore(free, whole)
			if free > 0 && v.mask.Has(i) {
				v.surveyCore(&v.node[i], id, free, whole)
			}
		}
		v.node[i].free = counts[i].Free
		if cpus := v.m.NUMACPUs(i); v.passes > 1 {
			v.node[i].noTick = cpus.CountIn(&noTick)
		}
		if v.req.SingleNUMANode && counts[i].Offers(&v.req) < v.req.Count {
			v.mask &^= 1 << i
		}
	}
	return counts
}

// surveyCore fills in what a core with free CPUs has to give, and counts it on its node. A required bind policy leaves
// whole cores, or one CPU of each.
func (v *solver) surveyCore(n *nodeTally, id topo.Core, free, whole int) {
	c := &v.core[id]
	c.free, c.whole = uint8(free), uint8(whole)
	switch {
	case !v.req.Required, v.req.Bind == FullPCPUs && free == whole:
		c.open = c.free
	case v.req.Bind == SpreadByPCPUs:
		c.open = 1
	default:
		return
	}
	n.all.count(c)
	if v.held && !c.held {
		n.spare.count(c)
	}
}

// avoid returns the CPUs of holders that the exclusive policy avoids, and notes the nodes and whether there are any.
func (v *solver) avoid() cpuset.Set {
	switch v.req.Exclusive {
	case PCPULevel:
		v.held = !v.state.PCPUHeld.IsEmpty()
		return v.state.PCPUHeld
	case NUMANodeLevel:
		for i := range v.mask.All() {
			cpus := v.m.NUMACPUs(i)
			if cpus.Overlaps(&v.state.NUMAHeld) {
				v.heldNodes |= 1 << i
			}
		}
		avoid := v.state.PCPUHeld.Union(v.state.NUMAHeld)
		v.held = !avoid.IsEmpty()
		return avoid
	}
	return cpuset.Set{}
}
