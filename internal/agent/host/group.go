package host

import (
	"cmp"
	"fmt"
	"slices"
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
		s.note("%d CPUs have no package id: their sockets are the groups of core siblings", bySiblings)
	}
	if homeless > 0 {
		s.note("%d online CPUs have neither package id nor core siblings: they count to the socket of their NUMA node",
			homeless)
	}
}
