package place

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/topo"
)

const (
	// allSets is the number of sets of NUMA nodes up to which every one is looked at: all of 8 nodes (at most 70 of one
	// size), pairs of 16, single nodes of 64.
	allSets = 128
	// searchSteps bounds the search of larger machines.
	searchSteps = 4096
)

// sets yields sets of k open NUMA nodes until yield returns false: up to the bounds above all that have least of the
// first row, in the order of topo.NodeSet.Before. Beyond, the nodes with most of each resource on each socket and on
// the machine come first, then a search that leaves out what cannot hold the pod; whole is false when it has run out
// of steps. Equal questions get equal sets in equal order.
func (j *joint) sets(k int, least int64, yield func(topo.NodeSet) bool) (whole bool) {
	switch {
	case k < 1 || k > j.open.Len():
		return true
	case j.open.Choices(k, allSets) <= allSets:
		most := int64(0)
		for rest := j.open; rest != 0 && k > 1; rest &= rest - 1 {
			most = max(most, j.cpus[rest.First()])
		}
		j.extend(0, j.open, k, least, most, yield)
		return true
	}
	return j.searchSets(k, yield)
}

// extend yields nodes with k of rest in every way that adds least of the first row, of which no node has more than
// most; false when yield returned it.
func (j *joint) extend(nodes, rest topo.NodeSet, k int, least, most int64, yield func(topo.NodeSet) bool) bool {
	for ; rest.Len() >= k; rest &= rest - 1 {
		n := rest.First()
		left, more := least-j.cpus[n], nodes|1<<n
		switch {
		case left > int64(k-1)*most:
		case k == 1:
			if !yield(more) {
				return false
			}
		case !j.extend(more, rest&(rest-1), k-1, left, most, yield):
			return false
		}
	}
	return true
}

// searchSets is sets for machines with more of them than are looked at.
func (j *joint) searchSets(k int, yield func(topo.NodeSet) bool) (whole bool) {
	s := setSearch{joint: j, steps: searchSteps, yield: yield}
	possible := s.prepare(k)
	for left := j.open; left != 0; {
		socket := left & j.machine.Siblings(left.First())
		left &^= socket
		if !s.largest(k, socket) {
			return true
		}
	}
	if s.largest(k, j.open) && possible {
		s.add(0, k, 0, sums{})
	}
	return s.steps > 0
}

// maxRows bounds the resources of a request: exclusive CPUs, shared CPUs, and those with amounts.
const maxRows = 2 + align.MaxRows

// sums are what a set of nodes has, by row.
type sums [maxRows]int64

// setSearch walks sets of NUMA nodes, those with most CPU first, and leaves out what can no longer hold the pod.
type setSearch struct {
	*joint
	yield func(topo.NodeSet) bool
	steps int
	done  bool

	byRow [maxRows][topo.MaxNodes]topo.NUMA // open nodes, those with most first and the lowest of equals
	n     int
	top   [maxRows][topo.MaxNodes + 1]int64 // sums of the first c of byRow
}

// row returns what each node has free of a resource.
func (j *joint) row(row int) []int64 {
	switch {
	case row == 0:
		return j.cpus[:]
	case row < j.leading:
		return j.milli[:]
	}
	return j.more[row-j.leading].Free
}

// need returns what the request needs of a resource.
func (j *joint) need(row int) int64 {
	if row < j.leading {
		return j.needs[row]
	}
	return j.more[row-j.leading].need
}

// prepare sorts the nodes by each row. It is not possible that k of them hold the pod when not even those with most of
// some row do.
func (s *setSearch) prepare(k int) (possible bool) {
	s.n, possible = s.open.Len(), true
	for row := range s.rows() {
		have, order := s.row(row), s.byRow[row][:0]
		for n := range s.open.All() {
			order = append(order, n)
		}
		slices.SortFunc(order, func(a, b topo.NUMA) int {
			return cmp.Or(cmp.Compare(have[b], have[a]), cmp.Compare(a, b))
		})
		for c, node := range order {
			s.top[row][c+1] = s.top[row][c] + have[node]
		}
		possible = possible && s.top[row][k] >= s.need(row)
	}
	return possible
}

// largest yields, for each row, the k nodes of mask with most of it; false when yield returned it.
func (s *setSearch) largest(k int, mask topo.NodeSet) bool {
	if mask.Len() < k {
		return true
	}
	for row := range s.rows() {
		var nodes topo.NodeSet
		left := k
		for _, i := range s.byRow[row][:s.n] {
			if left > 0 && mask.Has(i) {
				nodes |= 1 << i
				left--
			}
		}
		if !s.yield(nodes) {
			return false
		}
	}
	return true
}

// add adds k of the nodes from place i on to a set with the given sums.
func (s *setSearch) add(i, k int, nodes topo.NodeSet, have sums) {
	if s.steps--; s.steps <= 0 {
		s.done = true
		return
	}
	for row := range s.rows() {
		if have[row]+s.top[row][k] < s.need(row) {
			return
		}
	}
	if k == 0 {
		s.done = !s.yield(nodes)
		return
	}
	for ; i+k <= s.n && !s.done; i++ {
		node := s.byRow[0][i]
		more := have
		for row := range s.rows() {
			more[row] += s.row(row)[node]
		}
		s.add(i+1, k-1, nodes|1<<node, more)
	}
}
