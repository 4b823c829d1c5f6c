package host

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/view"
)

// groupCores builds cores from the thread siblings, or from package and core id where a kernel has no siblings. A CPU
// without topology, offline ones among them, is a core of its own.
func (s *survey) groupCores() {
	leader := make([]int, len(s.cpu)) // position of the core's lowest CPU
	type coreKey struct{ pkg, core int }
	byID := map[coreKey]int{}
	for i := range s.cpu {
		c := &s.cpu[i]
		leader[i] = i
		switch {
		case len(c.threads) > 0:
			if !contains(c.threads, c.ID) {
				s.fail(c.threadsFile, fmt.Errorf("does not name CPU %d itself", c.ID))
			}
			for _, other := range c.threads {
				j, ok := s.at[other]
				if !ok || len(s.cpu[j].threads) == 0 { // not present, or offline
					continue
				}
				if !contains(s.cpu[j].threads, c.ID) {
					s.fail(c.threadsFile, fmt.Errorf("names CPU %d, whose own siblings do not name CPU %d",
						other, c.ID))
				}
				leader[i] = min(leader[i], j)
			}
		case c.coreID >= 0 && c.packageID >= 0:
			key := coreKey{c.packageID, c.coreID}
			if first, ok := byID[key]; ok {
				leader[i] = first
			} else {
				byID[key] = i
			}
		}
	}
	cores := 0
	for i := range s.cpu {
		s.cpu[i].Core = s.cpu[leader[i]].Core
		if leader[i] == i {
			s.cpu[i].Core = cores
			cores++
		}
	}
}

// groupSockets takes the package id; where the kernel does not know it, the packages are the groups of core siblings,
// with ids above all known ones. An offline CPU counts to the socket of its NUMA node.
func (s *survey) groupSockets() {
	next := 0
	for _, c := range s.cpu {
		next = max(next, c.packageID+1)
	}
	groups := map[int]int{}
	bySiblings, homeless := 0, 0
	for i := range s.cpu {
		c := &s.cpu[i]
		switch {
		case c.packageID >= 0:
			c.Socket = c.packageID
		case c.packageGroup >= 0:
			bySiblings++
			id, ok := groups[c.packageGroup]
			if !ok {
				id = next
				groups[c.packageGroup] = id
				next++
			}
			c.Socket = id
		default:
			c.Socket = -1
		}
	}
	ofNode := map[int]int{}
	for _, c := range s.cpu {
		if _, ok := ofNode[c.NUMA]; !ok && c.Socket >= 0 {
			ofNode[c.NUMA] = c.Socket
		}
	}
	fallback := max(0, slices.MinFunc(s.cpu,
		func(a, b cpuFacts) int { return cmp.Compare(uint(a.Socket), uint(b.Socket)) }).Socket)
	for i := range s.cpu {
		c := &s.cpu[i]
		if c.Socket >= 0 {
			continue
		}
		socket, ok := ofNode[c.NUMA]
		if !ok {
			socket = fallback
		}
		c.Socket = socket
		if !c.Offline {
			homeless++
		}
	}
	if bySiblings > 0 {
		s.note("%s without a package id: the groups of core siblings count as sockets", view.Count(bySiblings, "CPU"))
	}
	if homeless > 0 {
		s.note("%s with neither package id nor core siblings: the NUMA node decides about the socket",
			view.Count(homeless, "online CPU"))
	}
}

// readKinds distinguishes performance and efficiency cores by the first of these sources that is present: the two PMU
// folders of hybrid x86 machines; cpu_capacity, where the CPUs of the highest one are the performance ones; a base
// frequency that falls together with the lack of SMT (a base frequency alone may also differ on servers with speed
// select).
func (s *survey) readKinds() {
	fast, slow := s.list("sys/devices/cpu_core/cpus"), s.list("sys/devices/cpu_atom/cpus")
	if fast != nil && slow != nil {
		s.splitKinds(func(c cpuFacts) bool { return contains(fast, c.ID) },
			func(c cpuFacts) bool { return contains(slow, c.ID) })
		return
	}
	if most, least := span(s.cpu, func(c cpuFacts) int64 { return c.capacity }); most != least {
		s.splitKinds(func(c cpuFacts) bool { return c.capacity == most },
			func(c cpuFacts) bool { return c.capacity > 0 })
		return
	}
	most, least := span(s.cpu, func(c cpuFacts) int64 { return c.baseKHz })
	if most == least {
		return
	}
	for _, c := range s.cpu {
		if known := c.baseKHz > 0; known && (c.baseKHz != most && c.baseKHz != least ||
			(len(c.threads) > 1) != (c.baseKHz == most)) {
			return
		}
	}
	s.splitKinds(func(c cpuFacts) bool { return c.baseKHz == most },
		func(c cpuFacts) bool { return c.baseKHz == least })
}

func (s *survey) splitKinds(fast, slow func(cpuFacts) bool) {
	for i := range s.cpu {
		switch {
		case fast(s.cpu[i]):
			s.cpu[i].Kind = topo.Performance
		case slow(s.cpu[i]):
			s.cpu[i].Kind = topo.Efficiency
		}
	}
}

// span returns the largest and the smallest positive value; 0 and 0 when there is none.
func span(cpus []cpuFacts, value func(cpuFacts) int64) (most, least int64) {
	for _, c := range cpus {
		v := value(c)
		if v <= 0 {
			continue
		}
		most = max(most, v)
		if least == 0 || v < least {
			least = v
		}
	}
	return most, least
}
