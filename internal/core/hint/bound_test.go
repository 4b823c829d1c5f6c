package hint_test

import (
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

func TestAnswersBeyondTheBudgetSaySo(t *testing.T) {
	t.Parallel()
	wide := func(p hint.Policy, n int, shape string) hint.Answer {
		s, q := benchNode(p, n, shape)
		return s.Verdict(q, nil)
	}
	pairs := func(p hint.Policy) hint.Answer { // units that belong to two of 40 nodes each
		r := hint.Resource{Walked: topo.FirstNodes(40)}
		for i := range 40 {
			r.Places = append(r.Places, hint.Place{Nodes: 1<<i | 1<<((i*7+3)%40), Capacity: 1})
		}
		s := hint.NewCapacity(hint.Rule{Policy: p, Nodes: 40}, []hint.Resource{r}, nil).Summary()
		return s.Verdict(&hint.Request{Asks: []hint.Ask{{Amount: 39}}}, nil)
	}
	lists := func(nodes, size int) hint.Answer {
		l := every(nodes, size)
		return (&hint.Rule{Policy: hint.BestEffort, Nodes: nodes}).Answer([]hint.List{l, l, l}, nil)
	}
	bySocket := func() hint.Answer {
		s := hint.NewCapacity(hint.Rule{Policy: hint.Restricted, Nodes: 2},
			[]hint.Resource{{Walked: 3, BySocket: true}}, nil).Summary()
		return s.Verdict(&hint.Request{Asks: []hint.Ask{{Amount: 1}}}, nil)
	}
	many := func() hint.Answer {
		resources, q := make([]hint.Resource, 17), &hint.Request{}
		for i := range resources {
			resources[i] = hint.Resource{Walked: 1, Places: []hint.Place{{Nodes: 1, Capacity: 1}}}
			q.Asks = append(q.Asks, hint.Ask{Resource: i, Amount: 1})
		}
		return hint.NewCapacity(hint.Rule{Policy: hint.Restricted, Nodes: 1}, resources, nil).Summary().Verdict(q, nil)
	}
	tests := map[string]struct {
		got  hint.Answer
		want hint.Answer
	}{
		"half of 64 nodes, which meet nowhere": {
			wide(hint.Restricted, 64, "worst"),
			hint.Answer{Certainty: hint.Unknown},
		},
		"half of 16 nodes, which meet nowhere": {wide(hint.Restricted, 16, "worst"), hint.Answer{}},
		"one of 64 nodes": {
			wide(hint.Restricted, 64, "one"),
			hint.Answer{Hint: hint.Hint{Mask: 1 << 63, Preferred: true}, Admitted: true},
		},
		"a number of nodes that cannot be computed": {pairs(hint.Restricted), hint.Answer{Certainty: hint.Unknown}},
		"the same under single-numa-node":           {pairs(hint.SingleNUMANode), hint.Answer{}},
		"three long lists of few nodes": {
			lists(16, 3), hint.Answer{Hint: hint.Hint{Mask: 1}, Admitted: true},
		},
		"three long lists of as many nodes as a kubelet can walk": {
			lists(hint.WalkNodes, 3), hint.Answer{Hint: hint.Hint{Mask: 1}, Admitted: true},
		},
		"three long lists of more": {
			lists(hint.WalkNodes+1, 3), hint.Answer{
				Hint: hint.Hint{Mask: topo.FirstNodes(hint.WalkNodes + 1)}, Admitted: true,
				Certainty: hint.Unknown,
			},
		},
		"CPUs aligned by socket": {bySocket(), hint.Answer{Certainty: hint.ByLists}},
		"seventeen resources":    {many(), hint.Answer{Certainty: hint.ByLists}},
	}
	for name, tc := range tests {
		if tc.got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, tc.got, tc.want)
		}
	}
	for c, want := range map[hint.Certainty]string{
		hint.Exact: "exact", hint.Unknown: "unknown", hint.ByLists: "by-lists", 9: "Certainty(9)",
	} {
		if c.String() != want {
			t.Errorf("got %v, want %s", c, want)
		}
	}
}

// Best-effort on many nodes ends soon, whatever is asked, and is exact up to WalkNodes.
func TestBestEffortOnManyNodesEnds(t *testing.T) {
	t.Parallel()
	for _, n := range []int{17, 24, 40, 64} {
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
				r := hint.Resource{Walked: topo.FirstNodes(n)}
				for i := range n {
					r.Places = append(r.Places, hint.Place{Nodes: 1 << i, Capacity: 100})
				}
				resources = append(resources, r)
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
			}}, nil)
			if !got.Admitted || got.Hint.Mask == 0 || n <= hint.WalkNodes && got.Certainty != hint.Exact {
				t.Errorf("%d nodes, %d: %+v", n, k, got)
			}
		}
	}
}
