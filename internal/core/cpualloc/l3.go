package cpualloc

import (
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// want describes cores that a step of fill takes.
type want struct {
	// kind and open are those of the cores.
	kind kind
	open uint8
	// fresh selects untouched cores instead, with free CPUs when that is not 0.
	fresh bool
	free  uint8
	// groups limits them to L3 groups; nil = all.
	groups *cpuset.Set // of topo.L3
}

// matches reports whether a core is of the kind that is wanted and below a cache that may be used.
func (v *solver) matches(id topo.Core, w *want) bool {
	c := &v.core[id]
	switch {
	case c.open == 0, v.skipHeld && c.held:
		return false
	case w.fresh && (c.round > 0 || w.free > 0 && c.free != w.free):
		return false
	case !w.fresh && (c.open != w.open || c.kind() != w.kind):
		return false
	}
	return w.groups == nil || w.groups.Has(int(v.m.CoreL3(id)))
}

// wanted counts the cores of a node that match.
func (v *solver) wanted(i topo.NUMA, w *want) int {
	n := 0
	for _, id := range v.m.NUMACores(i) {
		if v.matches(id, w) {
			n++
		}
	}
	return n
}

// fewestL3 returns the L3 groups from which to take some of the wanted cores of a node: those in use already, and as
// few others as possible. Of these the ones with CPUs without a tick come first, then those with the lowest CPUs.
func (v *solver) fewestL3(i topo.NUMA, w want, cores int) cpuset.Set {
	var groupOf [topo.MaxCPUs]uint16 // cores wanted in an L3 group
	var order [topo.MaxCPUs]topo.L3  // groups by the first CPU they can give
	groups, inUse := order[:0], 0
	var seen cpuset.Set // of topo.Core
	for pass := range v.passes {
		cpus := v.inPass(i, pass)
		for cpu := cpus.First(); cpu >= 0; cpu = cpus.Next(cpu + 1) {
			id := v.m.CoreOf(topo.CPU(cpu))
			if seen.Has(int(id)) || !v.matches(id, &w) {
				continue
			}
			seen.Add(int(id))
			l := v.m.CoreL3(id)
			if v.usedL3.Has(int(l)) {
				inUse++
				continue
			}
			if groupOf[l] == 0 {
				groups = append(groups, l)
			}
			groupOf[l]++
		}
	}
	chosen := v.usedL3
	need := cores - inUse
	if need <= 0 {
		return chosen
	}
	var open sizes // of the groups not yet decided
	for _, l := range groups {
		open.add(int(groupOf[l]))
	}
	left := open.fewest(need)
	for _, l := range groups {
		size := int(groupOf[l])
		open.count[size]--
		if need > 0 && open.fewest(need-size) < left {
			chosen.Add(int(l))
			need -= size
			left--
		}
	}
	return chosen
}

// sizes counts caches by the number of their wanted cores.
type sizes struct {
	count   [topo.MaxCPUs + 1]uint16
	largest int
}

// add counts one cache.
func (s *sizes) add(size int) {
	s.count[size]++
	s.largest = max(s.largest, size)
}

// fewest is the least number of groups that hold need cores; more than all of them when they do not.
func (s *sizes) fewest(need int) int {
	total := 0
	for size := s.largest; size > 0 && need > 0; size-- {
		if s.count[size] > 0 {
			groups := min(int(s.count[size]), (need+size-1)/size)
			total += groups
			need -= groups * size
		}
	}
	if need > 0 {
		return topo.MaxCPUs + 1
	}
	return total
}
