package cpualloc

import "github.com/tenon-project/tenon/internal/core/topo"

// source says which of the free CPUs an answer takes.
type source uint8

const (
	// fromFree: any free CPU.
	fromFree source = iota
	// preferredOnly: the preferred CPUs hold the whole request, nothing else is taken.
	preferredOnly
	// preferredFirst: all preferred CPUs are taken, the rest comes from the free ones.
	preferredFirst
)

// coreTally is what one core has to give.
type coreTally struct {
	free  uint8 // free CPUs
	base  uint8 // preferred CPUs that every answer takes
	open  uint8 // CPUs that an answer may take besides; one at most under required SpreadByPCPUs
	whole uint8 // wholeSize
	round uint8 // last round of fill that took from this core; 0 = untouched
	held  bool  // has a holder that the exclusive policy avoids
}

// kind is what taking a core's open CPUs means under FullPCPUs.
type kind uint8

const (
	// spent cores have nothing to give.
	spent kind = iota
	// started cores hold base CPUs and become whole by all of their open ones.
	started
	// begun cores hold base CPUs and cannot become whole: taking more of them opens no other core.
	begun
	// entire cores are given whole.
	entire
	// broken cores cannot become whole, or only with CPUs that this request does not take.
	broken
)

func (c *coreTally) kind() kind {
	switch {
	case c.open == 0:
		return spent
	case c.base > 0 && c.base+c.open == c.whole:
		return started
	case c.base > 0:
		return begun
	case c.open == c.whole:
		return entire
	default:
		return broken
	}
}

// breaks reports whether taking a part of the core breaks up a wholly free one.
func (c *coreTally) breaks() bool { return c.free == c.whole }

// tally sums up cores. Tallies of several nodes add up.
type tally struct {
	open  int16
	fresh int16 // cores with open CPUs and no base: each can add one to the distinct cores
	// byOpen counts cores by kind and open CPUs.
	byOpen [broken + 1][MaxThreads + 1]int16
	// byFree counts the fresh cores by free CPUs.
	byFree [MaxThreads + 1]int16
}

func (t *tally) count(c *coreTally) {
	t.open += int16(c.open)
	t.byOpen[c.kind()][c.open]++
	if c.base == 0 {
		t.fresh++
		t.byFree[c.free]++
	}
}

// add adds (sign +1) or takes away (−1) the cores of o.
func (t *tally) add(o *tally, sign int16, threads int, s source) {
	t.open += sign * o.open
	t.fresh += sign * o.fresh
	lowest := entire
	if s == preferredFirst {
		lowest = started
	}
	for x := 1; x <= threads; x++ {
		for k := lowest; k <= broken; k++ {
			t.byOpen[k][x] += sign * o.byOpen[k][x]
		}
		t.byFree[x] += sign * o.byFree[x]
	}
}

// nodeTally is what one NUMA node has to give.
type nodeTally struct {
	free   int32 // free CPUs
	base   int32 // base CPUs
	weight int32 // base + open
	// baseCores counts the cores with base CPUs, baseParts those of them that base alone leaves incomplete.
	baseCores, baseParts int32
	baseHeld             bool // a base CPU is on a held core
	all                  tally
	spare                tally // all, without held cores; filled only when solver.held
}

// survey fills the tallies of all nodes of v.mask.
func (v *solver) survey(counts []NodeCount) {
	avoid := v.avoid()
	for i := range v.mask.All() {
		n := &v.node[i]
		n.free = counts[i].Free
		for _, c := range v.m.NUMACores(i) {
			v.surveyCore(n, c, &avoid)
		}
		n.weight = n.base + int32(n.all.open)
		if v.source == preferredFirst && n.base > 0 && !v.req.SingleNUMANode {
			v.forced |= 1 << i
		}
	}
}

func (v *solver) surveyCore(n *nodeTally, id topo.Core, avoid *cpuSet) {
	c := &v.core[id]
	prefer, held := 0, false
	for _, cpu := range v.m.CoreCPUs(id) {
		if v.state.Free.Has(int(cpu)) {
			c.free++
			if v.source != fromFree && v.state.Preferred.Has(int(cpu)) {
				prefer++
			}
		}
		held = held || v.held && avoid.Has(int(cpu))
	}
	if c.free == 0 {
		return
	}
	c.held = held
	c.whole = uint8(wholeSize(v.m, id))
	can := v.canGive(int(c.free), int(c.whole))
	first := v.canPrefer(prefer, int(c.whole))
	switch v.source {
	case fromFree:
		c.open = uint8(can)
	case preferredOnly:
		c.open = uint8(first)
	case preferredFirst:
		c.base, c.open = uint8(first), uint8(can-first)
	}
	if c.base > 0 {
		n.base += int32(c.base)
		n.baseCores++
		n.baseHeld = n.baseHeld || held
		if c.base != c.whole {
			n.baseParts++
		}
	}
	if c.open == 0 {
		return
	}
	n.all.count(c)
	if v.held && !held {
		n.spare.count(c)
	}
}

// canGive is how many CPUs the bind policy lets a core give of its free ones.
func (v *solver) canGive(free, whole int) int {
	switch {
	case !v.req.Required:
		return free
	case v.req.Bind == SpreadByPCPUs:
		return min(free, 1)
	case free == whole:
		return free
	default:
		return 0
	}
}

// canPrefer is how many of a core's preferred CPUs count. Under required FullPCPUs only cores that are preferred as a
// whole do: threads of others could not be taken alone.
func (v *solver) canPrefer(preferred, whole int) int { return v.canGive(preferred, whole) }

// avoid returns the CPUs of holders that the exclusive policy avoids, and notes the nodes and whether there
// are any.
func (v *solver) avoid() cpuSet {
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
	return cpuSet{}
}
