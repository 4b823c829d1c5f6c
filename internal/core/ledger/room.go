package ledger

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// maxUnions is the number of sets of NUMA nodes up to which the promises of connected nodes are accounted exactly: all
// sets of 8 nodes.
const maxUnions = 256

// mostMilli bounds what one pod counts with, so that sums over all of them are exact.
const mostMilli = 1 << 40

// Limit bounds what may still be taken of the shared pools of several NUMA nodes together.
type Limit struct {
	Nodes topo.NodeSet
	// Group is all NUMA nodes that confined pods connect with Nodes. Groups are disjoint.
	Group topo.NodeSet
	Milli int64
}

// Room returns how much may still be taken of the shared pools of a set of NUMA nodes together, in milli-CPU. All pods
// that share pools are admitted by it: a pod may be confined to a set of NUMA nodes exactly when Room of the set holds
// its request, and exclusive CPUs may leave the pools exactly when of every set of NUMA nodes no more leave than its
// Room.
//
// Why that is exact (Hall; max-flow min-cut): pods can get what they were promised exactly when every set U of NUMA
// nodes has at least the promises to pods that may run nowhere else. slack(U) is the difference. What is taken from S
// counts against every U that contains S, so Room(S) is the least of those slacks. Where pods were promised more than
// there is (offline CPUs, pods of other schedulers), the most that they can get together must not become less: Room is
// the least slack above the lowest slack of all.
//
// Limits hold the sets that can be the least ones: unions of the sets that pods are confined to. Room costs
// O(limits · NUMA nodes), nothing but a sum without limits, and allocates nothing.
func (s *Summary) Room(nodes topo.NodeSet) int64 {
	room := int64(0)
	for i := 0; i < len(s.Limits); {
		group := s.Limits[i].Group
		here := nodes & group
		nodes &^= group
		least := s.sumRooms(here)
		for ; i < len(s.Limits) && s.Limits[i].Group == group; i++ {
			least = min(least, s.Limits[i].Milli+s.sumRooms(here&^s.Limits[i].Nodes))
		}
		room += least
	}
	return room + s.sumRooms(nodes)
}

// sumRooms adds up the shared CPU of a set of nodes, in milli-CPUs.
func (s *Summary) sumRooms(nodes topo.NodeSet) int64 {
	sum := int64(0)
	for ; nodes != 0; nodes &= nodes - 1 {
		sum += s.Nodes[nodes.First()].PoolMilli
	}
	return sum
}

// KeepsPromises reports whether pods still get what they were promised when exclusive CPUs leave the shared pool.
// Isolated CPUs are in no pool, so they leave none.
func (v *View) KeepsPromises(cpus *cpuset.Set) bool {
	s, shared := &v.summary, cpus.Minus(v.isolated)
	leave := func(nodes topo.NodeSet) int64 {
		sum := 0
		for n := range nodes.All() {
			here := v.facts.Machine.NUMACPUs(n)
			sum += here.CountIn(&shared)
		}
		return 1000 * int64(sum)
	}
	for n := range s.Nodes {
		if leave(1<<n) > s.Nodes[n].PoolMilli {
			return false
		}
	}
	return !slices.ContainsFunc(s.Limits, func(l Limit) bool { return leave(l.Nodes) > l.Milli })
}

// bond is what pods were promised of a set of several NUMA nodes.
type bond struct {
	nodes topo.NodeSet // the set that the pods are confined to, two nodes or more
	group topo.NodeSet // all nodes that bonds connect with nodes; set by connectedBonds
	milli int64        // the sum of the pods' requests
}

// deductPromises deducts the requests of confined pods, and the CPUs of pods without placement, from the shared pools:
// PoolMilli of each NUMA node becomes its Room.
func (v *View) deductPromises() {
	s := &v.summary
	left := make([]int64, len(s.Nodes)) // of each pool beside promises of one NUMA node; negative where they exceed it
	for i := range left {
		left[i] = 1000 * int64(s.Nodes[i].PoolCPUs)
	}
	for i, milli := range v.unplaced.milli {
		left[i], s.PoolMilli = left[i]-milli, s.PoolMilli-milli
		s.addPromised(1<<i, milli)
	}
	var bonds []bond
	for _, a := range v.accounts {
		if a.nodes == 0 {
			continue
		}
		milli := min(a.milli, mostMilli)
		s.PoolMilli -= milli
		s.addPromised(a.nodes, milli)
		if a.nodes&(a.nodes-1) == 0 {
			left[a.nodes.First()] -= milli
		} else {
			bonds = append(bonds, bond{nodes: a.nodes, milli: milli})
		}
	}
	for i := range left {
		s.Nodes[i].PoolMilli = max(left[i], 0)
	}
	for _, group := range connectedBonds(bonds) {
		s.addLimits(left, group)
	}
}

// addPromised adds a promise to Promised of its NUMA nodes, in proportion to their pools; the lowest has what does not
// divide.
func (s *Summary) addPromised(nodes topo.NodeSet, milli int64) {
	pools, rest := 0, milli
	for n := range nodes.All() {
		pools += s.Nodes[n].PoolCPUs
	}
	for m := nodes; m != 0 && pools > 0; m &= m - 1 {
		n := &s.Nodes[m.First()]
		part := milli * int64(n.PoolCPUs) / int64(pools)
		n.Promised, rest = n.Promised+part, rest-part
	}
	s.Nodes[nodes.First()].Promised += rest
}

// connectedBonds merges bonds of the same nodes, and splits them into groups, in ascending order: two bonds are in one
// group where they have a NUMA node in common, or each has one in common with bonds that are connected so. What is
// taken of one group never changes the Room of another.
func connectedBonds(bonds []bond) [][]bond {
	if len(bonds) == 0 {
		return nil
	}
	slices.SortFunc(bonds, func(a, b bond) int { return cmp.Compare(a.nodes, b.nodes) })
	merged := bonds[:1]
	for _, b := range bonds[1:] {
		if last := &merged[len(merged)-1]; last.nodes == b.nodes {
			last.milli += b.milli
		} else {
			merged = append(merged, b)
		}
	}
	for i := range merged {
		group := merged[i].nodes
		for before := topo.NodeSet(0); before != group; {
			before = group
			for _, b := range merged {
				if b.nodes&group != 0 {
					group |= b.nodes
				}
			}
		}
		merged[i].group = group
	}
	slices.SortStableFunc(merged, func(a, b bond) int { return cmp.Compare(a.group, b.group) })
	var groups [][]bond
	for len(merged) > 0 {
		n := 1
		for n < len(merged) && merged[n].group == merged[0].group {
			n++
		}
		groups, merged = append(groups, merged[:n]), merged[n:]
	}
	return groups
}

// addLimits appends the limits of one group to Limits, and sets PoolMilli of its NUMA nodes to their Room. left is what
// promises of one NUMA node alone leave of each pool; it is negative where they exceed the pool.
//
// The sets with the least slack are unions of the sets of bonds, and of short, the nodes whose left is negative: to add
// a node with left ≥ 0 that completes no bond only adds slack, and to leave out one of short only does so too. debt is
// by how much the promises exceed what there is; limits are counted from it, so that none is negative. A limit that is
// no less than the sum of its nodes' rooms binds nothing and is dropped.
func (s *Summary) addLimits(left []int64, bonds []bond) {
	group := bonds[0].group
	short := topo.NodeSet(0) // a set with the least slack contains these nodes
	for n := range group.All() {
		if left[n] < 0 {
			short |= 1 << n
		}
	}
	unions := []topo.NodeSet{short}
	for _, b := range bonds {
		for _, u := range unions {
			if u |= b.nodes; !slices.Contains(unions, u) {
				unions = append(unions, u)
			}
		}
		if len(unions) > maxUnions {
			s.chargeBonds(left, bonds)
			return
		}
	}
	slices.Sort(unions)
	first, debt := len(s.Limits), int64(0)
	for _, u := range unions {
		slack := int64(0)
		for n := range u.All() {
			slack += left[n]
		}
		for _, b := range bonds {
			if b.nodes.Within(u) {
				slack -= b.milli
			}
		}
		debt = max(debt, -slack)
		s.Limits = append(s.Limits, Limit{Nodes: u, Group: group, Milli: slack})
	}
	limits := s.Limits[first:]
	for i := range limits {
		limits[i].Milli += debt
	}
	for n := range group.All() {
		for _, l := range limits {
			here := l.Milli
			if !l.Nodes.Has(n) {
				here += left[n]
			}
			s.Nodes[n].PoolMilli = min(s.Nodes[n].PoolMilli, here)
		}
	}
	limits = slices.DeleteFunc(limits, func(l Limit) bool { return l.Milli >= s.sumRooms(l.Nodes) })
	s.Limits = s.Limits[:first+len(limits)]
}

// chargeBonds accounts for a group that is too large for limits: each bond is charged to its NUMA nodes for good, in
// proportion to what is left there. That never promises too much: where a bond does not fit so, nothing more may be
// taken from the group.
func (s *Summary) chargeBonds(left []int64, bonds []bond) {
	for _, b := range bonds {
		total := int64(0)
		for n := range b.nodes.All() {
			total += max(left[n], 0)
		}
		if total < b.milli {
			for n := range b.group.All() {
				s.Nodes[n].PoolMilli = 0
			}
			return
		}
		rest := b.milli
		for m := b.nodes; m != 0 && total > 0; m &= m - 1 {
			i := m.First()
			here := max(left[i], 0)
			// The rest is at most what the nodes to come have: no share exceeds what is left here.
			share := (rest*here + total - 1) / total
			left[i], rest, total = left[i]-share, rest-share, total-here
		}
	}
	for n := range bonds[0].group.All() {
		s.Nodes[n].PoolMilli = max(left[n], 0)
	}
}
