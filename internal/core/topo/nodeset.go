package topo

import (
	"iter"
	"math/bits"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// MaxNodes is the number of NUMA nodes of a machine that a NodeSet can have: those of the lowest ids.
const MaxNodes = 64

// NodeSet is a set of NUMA nodes of one machine: bit n is NUMA node n, its dense index. Nodes are in ascending order of
// the kernel's ids, so sets compare as numbers as the kubelet's masks do, whatever the ids are.
type NodeSet uint64

// FirstNodes returns the set of nodes 0…n-1: none below 1, all 64 from MaxNodes on.
func FirstNodes(n int) NodeSet {
	switch {
	case n <= 0:
		return 0
	case n >= MaxNodes:
		return ^NodeSet(0)
	}
	return 1<<n - 1
}

// Len counts the nodes.
func (s NodeSet) Len() int { return bits.OnesCount64(uint64(s)) }

// Has reports whether node n is in s; none from MaxNodes on is.
func (s NodeSet) Has(n NUMA) bool { return s>>n&1 != 0 }

// Within reports whether every node of s is in o.
func (s NodeSet) Within(o NodeSet) bool { return s&^o == 0 }

// First returns the lowest node, MaxNodes if s is empty.
func (s NodeSet) First() NUMA { return NUMA(bits.TrailingZeros64(uint64(s))) }

// All yields the nodes in ascending order.
func (s NodeSet) All() iter.Seq[NUMA] {
	return func(yield func(NUMA) bool) {
		for ; s != 0; s &= s - 1 {
			if !yield(s.First()) {
				return
			}
		}
	}
}

// Before orders sets of equal size by the lowest node that is not in both.
func (s NodeSet) Before(o NodeSet) bool { return s&((s^o)&-(s^o)) != 0 }

// Subsets yields the sets of k of the nodes in the order of Before.
func (s NodeSet) Subsets(k int) iter.Seq[NodeSet] {
	return func(yield func(NodeSet) bool) { s.choose(0, k, yield) }
}

// AllSubsets yields the non-empty subsets by size, then in the order of Before, as the kubelet walks them.
func (s NodeSet) AllSubsets() iter.Seq[NodeSet] {
	return func(yield func(NodeSet) bool) {
		for k := 1; k <= s.Len(); k++ {
			if !s.choose(0, k, yield) {
				return
			}
		}
	}
}

// choose adds k of the nodes to chosen in every way; false when yield returned it.
func (s NodeSet) choose(chosen NodeSet, k int, yield func(NodeSet) bool) bool {
	switch k {
	case 0:
		return yield(chosen)
	case 1:
		for ; s != 0; s &= s - 1 {
			if !yield(chosen | s&-s) {
				return false
			}
		}
		return true
	}
	for ; s.Len() >= k; s &= s - 1 {
		if !(s & (s - 1)).choose(chosen|s&-s, k-1, yield) {
			return false
		}
	}
	return true
}

// Choices is the number of sets of k of the nodes, or a number above most.
func (s NodeSet) Choices(k, most int) int {
	n := s.Len()
	k = min(k, n-k)
	total := 1
	for i := 1; i <= k && total <= most; i++ {
		total = total * (n - k + i) / i
	}
	return total
}

// String lists the nodes: "{0,2}", "{}" for none.
func (s NodeSet) String() string {
	var words []string
	for n := range s.All() {
		words = append(words, strconv.Itoa(int(n)))
	}
	return "{" + strings.Join(words, ",") + "}"
}

// NodesWithCPUs returns the NUMA nodes that have CPUs. It has all of CPUNodes unless the machine is TooWide.
func (m *Machine) NodesWithCPUs() NodeSet { return m.withCPUs }

// TooWide reports whether NUMA nodes with CPUs are beyond MaxNodes: no CPU sets are allocated on such a machine.
func (m *Machine) TooWide() bool { return m.withCPUs.Len() < len(m.cpuNodes) }

// Siblings returns the NUMA nodes with CPUs on the socket of n, itself included.
func (m *Machine) Siblings(n NUMA) NodeSet { return m.numa[n].siblings }

// NodesOf returns the NUMA nodes of CPUs.
func (m *Machine) NodesOf(cpus *cpuset.Set) NodeSet {
	var s NodeSet
	for n := range m.withCPUs.All() {
		if m.numa[n].cpus.Overlaps(cpus) {
			s |= 1 << n
		}
	}
	return s
}

// NodesByID returns the NUMA nodes with the kernel's ids. Ids that the machine does not have are left out.
func (m *Machine) NodesByID(ids []int) NodeSet {
	var s NodeSet
	for _, id := range ids {
		if n, ok := m.numaByID[id]; ok {
			s |= 1 << n
		}
	}
	return s
}

// CPUNodeByID returns the NUMA node with a kernel's id; false when the machine has no such one with CPUs.
func (m *Machine) CPUNodeByID(id int) (NUMA, bool) {
	n, ok := m.numaByID[id]
	return n, ok && m.withCPUs.Has(n)
}

// NodeIDs returns the kernel's ids of NUMA nodes, ascending; nil for none. Nodes that the machine does not have are
// left out.
func (m *Machine) NodeIDs(s NodeSet) []int {
	var ids []int
	for n := range (s & FirstNodes(len(m.numa))).All() {
		ids = append(ids, m.numa[n].id)
	}
	return ids
}

// SocketsOf counts the sockets of NUMA nodes.
func (m *Machine) SocketsOf(s NodeSet) int {
	count := 0
	for ; s != 0; count++ {
		s &^= m.numa[s.First()].siblings
	}
	return count
}

// DistanceWithin is the sum of the SLIT distances between all ordered pairs of different nodes.
func (m *Machine) DistanceWithin(s NodeSet) int64 {
	total := 0
	for ; s != 0; s &= s - 1 {
		from := s.First()
		for rest := s & (s - 1); rest != 0; rest &= rest - 1 {
			to := rest.First()
			total += m.numa[from].dist[to] + m.numa[to].dist[from]
		}
	}
	return int64(total)
}
