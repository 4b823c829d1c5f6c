package cpualloc

import (
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Limited returns s with Caps applied as fewer free CPUs: on every NUMA node that has more free CPUs than its cap,
// exactly that many remain free: those that Allocate gives for the bind policy, which so loses least.
func (s State) Limited(bind Bind) State {
	for n, limit := range s.Caps {
		here := s.Machine.NUMACPUs(topo.NUMA(n)).Intersect(s.Free)
		if here.Len() > limit {
			kept, _ := Allocate(State{Machine: s.Machine, Free: here}, Request{Count: limit, Bind: bind})
			s.Free = s.Free.Minus(here).Union(kept.CPUs)
		}
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
