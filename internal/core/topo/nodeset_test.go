package topo_test

import (
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestNodeSetListsItsNodes(t *testing.T) {
	t.Parallel()
	for s, want := range map[topo.NodeSet]string{0: "{}", 1: "{0}", 1<<63 | 6: "{1,2,63}"} {
		if got := s.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for n, want := range map[int]int{-1: 0, 0: 0, 1: 1, 63: 63, 64: 64, 65: 64} {
		if got := topo.FirstNodes(n).Len(); got != want {
			t.Errorf("FirstNodes(%d) has %d nodes, want %d", n, got, want)
		}
	}
	if s := topo.FirstNodes(64); s.Has(64) || s.Has(65535) || !s.Has(63) {
		t.Errorf("%v has nodes that do not exist", s)
	}
}

// The subsets of k nodes are all sets of k nodes that are within the set, each once, in the order of their lists.
func TestSubsetsAreAllOfThem(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := topo.NodeSet(rapid.Uint64Range(0, 1<<9-1).Draw(t, "set"))
		s = s&7 | s>>3&7<<30 | s>>6<<61 // three of the lowest, of those in the middle and of the highest nodes
		var all []topo.NodeSet
		for k := range s.Len() + 2 {
			var want []topo.NodeSet
			for part := s; ; part = (part - 1) & s {
				if part.Len() == k {
					want = append(want, part)
				}
				if part == 0 {
					break
				}
			}
			slices.SortFunc(want, func(a, b topo.NodeSet) int {
				return slices.Compare(slices.Collect(a.All()), slices.Collect(b.All()))
			})
			got := slices.Collect(s.Subsets(k))
			if !slices.Equal(got, want) || s.Choices(k, 1<<20) != len(want) && k <= s.Len() {
				t.Fatalf("%d of %v: got %v (%d choices), want %v", k, s, got, s.Choices(k, 1<<20), want)
			}
			for i := 1; i < len(got); i++ {
				if !got[i-1].Before(got[i]) || got[i].Before(got[i-1]) {
					t.Fatalf("%v is not before %v", got[i-1], got[i])
				}
			}
			if k > 0 {
				all = append(all, want...)
			}
		}
		if got := slices.Collect(s.AllSubsets()); !slices.Equal(got, all) {
			t.Fatalf("all subsets of %v: got %v, want %v", s, got, all)
		}
	})
}

// Sets of NUMA nodes of a machine count memory nodes too; ids, CPUs, sockets and distances agree with its single nodes.
func TestNodeSetsOfAMachine(t *testing.T) {
	t.Parallel()
	spec := topo.Spec{NUMA: []topo.NUMASpec{
		{ID: 3, Distances: []int{10, 12, 20, 30}},
		{ID: 8, Distances: []int{12, 10, 21, 31}},
		{ID: 5, MemoryBytes: 1, Distances: []int{20, 21, 10, 40}},
		{ID: 90, Distances: []int{30, 31, 40, 10}},
	}}
	for i, n := range []int{3, 3, 8, 90} {
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{ID: 7 * i, Core: i, L3: -1, Socket: n / 50, NUMA: n})
	}
	m, err := topo.New(spec)
	testkit.Check(t, err)
	if got, want := m.NodesWithCPUs(), topo.NodeSet(0b1101); got != want || m.TooWide() {
		t.Errorf("NUMA nodes with CPUs: got %v, want %v", got, want)
	}
	if got := m.NodesByID([]int{5, 90, 4}); got != 0b1010 {
		t.Errorf("NUMA nodes 5, 90 and an unknown one: got %v", got)
	}
	if got := m.NodeIDs(0b11011); !slices.Equal(got, []int{3, 5, 90}) {
		t.Errorf("ids of {0,1,3} and a node that does not exist: got %v", got)
	}
	cpus := cpuset.Of(1, 3)
	if got := m.NodesOf(&cpus); got != 0b1001 {
		t.Errorf("NUMA nodes of CPUs 1 and 3: got %v", got)
	}
	for s := range topo.NodeSet(1 << 4) {
		sockets, distance := uint64(0), 0
		for a := range (s & m.NodesWithCPUs()).All() {
			sockets |= 1 << m.NUMASocket(a)
		}
		for a := range s.All() {
			for b := range s.All() {
				if a != b {
					distance += m.Distance(a, b)
				}
			}
		}
		if got := m.SocketsOf(s & m.NodesWithCPUs()); got != bits.OnesCount64(sockets) {
			t.Errorf("%v is on %d sockets, got %d", s, bits.OnesCount64(sockets), got)
		}
		if got := m.DistanceWithin(s); got != int64(distance) {
			t.Errorf("distances within %v: got %d, want %d", s, got, distance)
		}
	}
}
