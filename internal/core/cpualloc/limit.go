package cpualloc

import (
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Limited returns s with Caps applied as fewer free CPUs: on every NUMA node that has more free CPUs than its cap,
// exactly that many remain free, chosen so that the bind policy loses least: whole cores first for FullPCPUs, one CPU
// of each core first for SpreadByPCPUs; then the lowest ids.
func (s State) Limited(bind Bind) State {
	for n, limit := range s.Caps {
		s.Free = limitNode(s.Machine, topo.NUMA(n), s.Free, limit, bind)
	}
	s.Caps = nil
	return s
}

// Limited returns what CountNode would say of the free CPUs that State.Limited leaves on node n when limit is its cap,
// for each figure under the bind policy that reads it. c is the count of free.
func (c NodeCount) Limited(m *topo.Machine, n topo.NUMA, free *cpuset.Set, limit int) NodeCount {
	if c.Free <= limit {
		return c
	}
	c.Free, c.FreeCores = limit, min(c.FreeCores, limit)
	if c.FreeWhole <= limit {
		return c
	}
	var whole [MaxThreads + 1]int // whole free cores by size
	for _, core := range m.NUMACores(n) {
		if size := wholeSize(m, core); size > 0 && size <= MaxThreads && freeOf(m, core, free) == size {
			whole[size]++
		}
	}
	left := limit
	for size := MaxThreads; size > 0; size-- {
		left -= size * min(whole[size], left/size)
	}
	c.FreeWhole = limit - left
	return c
}

// limitNode returns free with at most limit CPUs of node n.
func limitNode(m *topo.Machine, n topo.NUMA, free cpuset.Set, limit int, bind Bind) cpuset.Set {
	here := m.NUMACPUs(n).Intersect(free)
	if here.Len() <= limit {
		return free
	}
	rest := here
	var kept cpuset.Set
	take := func(c topo.CPU) {
		if limit > 0 && rest.Has(int(c)) {
			kept.Add(int(c))
			rest.Remove(int(c))
			limit--
		}
	}
	if bind == SpreadByPCPUs {
		for _, core := range m.NUMACores(n) {
			for _, c := range m.CoreCPUs(core) {
				if rest.Has(int(c)) {
					take(c)
					break
				}
			}
		}
	} else {
		// The sizes of whole cores divide each other: taking the largest that still fits first fills most of limit.
		for size := m.ThreadsPerCore(); size > 0; size-- {
			for _, core := range m.NUMACores(n) {
				if size <= limit && wholeSize(m, core) == size && freeOf(m, core, &here) == size {
					for _, c := range m.CoreCPUs(core) {
						take(c)
					}
				}
			}
		}
	}
	for c := range here.All() {
		take(topo.CPU(c))
	}
	return free.Minus(here).Union(kept)
}

// freeOf counts the free CPUs of a core.
func freeOf(m *topo.Machine, core topo.Core, free *cpuset.Set) int {
	n := 0
	for _, c := range m.CoreCPUs(core) {
		if free.Has(int(c)) {
			n++
		}
	}
	return n
}
