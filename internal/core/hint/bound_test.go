package hint_test

import (
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/core/topo"

	"github.com/tenon-project/tenon/internal/core/hint"
)

// every returns the unpreferred hints of all masks of 1 to size nodes.
func every(nodes, size int) hint.List {
	var list hint.List
	var add func(from, left int, m topo.NodeSet)
	add = func(from, left int, m topo.NodeSet) {
		if m != 0 {
			list = append(list, hint.Hint{Mask: m})
		}
		for i := from; left > 0 && i < nodes; i++ {
			add(i+1, left-1, m|1<<i)
		}
	}
	add(0, size, 0)
	return list
}

func TestLongListsOfManyNodesEnd(t *testing.T) {
	t.Parallel()
	for nodes, want := range map[int]topo.NodeSet{
		16: 1, hint.WalkNodes: 1, hint.WalkNodes + 1: topo.FirstNodes(hint.WalkNodes + 1), // nothing in common
	} {
		l := every(nodes, 3)
		got := (&hint.Rule{Policy: hint.BestEffort, Nodes: nodes}).Answer([]hint.List{l, l, l}, nil)
		if got != (hint.Answer{Hint: hint.Hint{Mask: want}, Admitted: true}) {
			t.Errorf("%d nodes: got %+v, want %s", nodes, got, want)
		}
	}
}

// Best-effort on many nodes ends soon, whatever is asked.
func TestBestEffortOnManyNodesEnds(t *testing.T) {
	t.Parallel()
	for _, n := range []int{17, hint.WalkNodes} {
		for _, k := range []int64{1, 2, 5, int64(n / 2), int64(n - 1)} {
			distances := make([][]int, n)
			for i := range distances {
				distances[i] = make([]int, n)
				for j := range distances[i] {
					distances[i][j] = 10 + (i*7+j*7)%23
				}
			}
			var resources []hint.Resource
			for range 3 {
				resources = append(resources, hint.Resource{
					Walked: topo.FirstNodes(n), Capacity: slices.Repeat([]int64{100}, n),
				})
			}
			s := hint.NewCapacity(hint.Rule{Policy: hint.BestEffort, Nodes: n, Distances: distances}, resources,
				nil).Summary()
			for i := range n {
				s.SetFree(0, i, int64(40+(i*37)%50))
				s.SetFree(1, i, int64(40+(i*53)%50))
				s.SetFree(2, i, int64(40+(i*71)%50))
			}
			got := s.Verdict(&hint.Request{Asks: []hint.Ask{
				{Resource: 0, Amount: 40 * k}, {Resource: 1, Amount: 45 * k}, {Resource: 2, Amount: 50 * k},
			}}, new(hint.Scratch))
			if !got.Admitted || got.Hint.Mask == 0 {
				t.Errorf("%d nodes, %d: %+v", n, k, got)
			}
		}
	}
}
