package hint_test

import (
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/core/topo"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/hint"
)

func TestExplainReportsWhyNoPreferredHintResulted(t *testing.T) {
	t.Parallel()
	named := func(resource string, hints ...hint.Hint) hint.Named {
		return hint.Named{Resource: resource, List: append(hint.List{}, hints...)}
	}
	yes := func(m topo.NodeSet) hint.Hint { return hint.Hint{Mask: m, Preferred: true} }
	no := func(m topo.NodeSet) hint.Hint { return hint.Hint{Mask: m} }
	tests := map[string]struct {
		policy    hint.Policy
		lists     []hint.Named
		cause     hint.Cause
		resources []string
		want      string
	}{
		"two resources need masks of different sizes": {
			hint.Restricted,
			[]hint.Named{named("cpu", yes(1), yes(2), no(3)), named("gpu", yes(3))},
			hint.SizesDiffer,
			[]string{"cpu", "gpu"},
			"restricted: cpu needs 1 node, gpu needs 2: no common preferred mask",
		},
		"two resources are free on different nodes": {
			hint.Restricted,
			[]hint.Named{named("cpu", yes(1), no(3)), named("memory", yes(1), yes(2)), named("gpu", yes(2), no(3))},
			hint.Disjoint,
			[]string{"cpu", "gpu"},
			"restricted: cpu prefers {0}, gpu prefers {1}: no common preferred mask",
		},
		"three resources, of which any two meet": {
			hint.Restricted,
			[]hint.Named{named("a", yes(1), yes(2)), named("b", yes(2), yes(4)), named("c", yes(1), yes(4))},
			hint.NoCommon,
			[]string{"a", "b", "c"},
			"restricted: a, b, c have no preferred mask that is common to all",
		},
		"a resource that is free on no node": {
			hint.SingleNUMANode,
			[]hint.Named{named("cpu", yes(1)), named("gpu")},
			hint.Impossible,
			[]string{"gpu"},
			"single-numa-node: gpu fits nowhere",
		},
		"a resource that is free in pieces only": {
			hint.Restricted,
			[]hint.Named{named("cpu", no(3), no(7))},
			hint.NothingPreferred,
			[]string{"cpu"},
			"restricted: cpu fits on 2 nodes at least, where it would need fewer if all were free",
		},
		"a request for more than one node": {
			hint.SingleNUMANode,
			[]hint.Named{named("cpu", yes(1)), named("memory", yes(3), yes(5))},
			hint.NotOneNode,
			[]string{"memory"},
			"single-numa-node: memory needs 2 nodes",
		},
		"best-effort admits all the same": {
			hint.BestEffort,
			[]hint.Named{named("cpu", yes(1), yes(2), no(3)), named("gpu", yes(3))},
			hint.SizesDiffer,
			[]string{"cpu", "gpu"},
			"best-effort: nodes {0,1}, not preferred: cpu needs 1 node, gpu needs 2: no common preferred mask",
		},
		"many masks are counted": {
			hint.Restricted,
			[]hint.Named{named("cpu", yes(3), yes(5), yes(6), yes(9), yes(10), yes(9)), named("gpu", yes(12))},
			hint.Disjoint,
			[]string{"cpu", "gpu"},
			"restricted: cpu prefers {0,1} {0,2} {1,2} {0,3} and 1 more, gpu prefers {2,3}: no common preferred mask",
		},
		"a preferred mask": {
			hint.Restricted,
			[]hint.Named{named("cpu", yes(2)), {Resource: "gpu"}},
			hint.NoCause, nil, "restricted: nodes {1}, preferred",
		},
		"no provider has a preference": {
			hint.SingleNUMANode,
			[]hint.Named{{Resource: "cpu"}},
			hint.NoCause, nil,
			"single-numa-node: any nodes, preferred",
		},
		"no topology policy": {
			hint.None, []hint.Named{named("cpu")}, hint.NoCause, nil, "none: admitted without hints",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := (&hint.Rule{Policy: tc.policy, Nodes: 4}).Explain(tc.lists)
			if table.Cause != tc.cause || !slices.Equal(table.Resources, tc.resources) {
				t.Errorf("got %v of %v, want %v of %v", table.Cause, table.Resources, tc.cause, tc.resources)
			}
			if got := table.String(); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestExplainCountsWhatEachResourceOffers(t *testing.T) {
	t.Parallel()
	table := (&hint.Rule{Policy: hint.BestEffort, Nodes: 3}).Explain([]hint.Named{
		{Resource: "cpu", List: hint.List{
			{Mask: 4},
			{Mask: 6, Preferred: true},
			{Mask: 3, Preferred: true},
			{Mask: 7},
		}},
		{Resource: "gpu", List: hint.List{}},
		{Resource: "memory"},
		{Resource: "port", List: hint.List{{}, {Mask: 5}, {}}}, // masks without nodes do not count
	})
	want := []hint.Line{
		{Resource: "cpu", Care: true, Hints: 4, Least: 2, Smallest: 1, Preferred: []topo.NodeSet{3, 6}},
		{Resource: "gpu", Care: true},
		{Resource: "memory"},
		{Resource: "port", Care: true, Hints: 1, Smallest: 2},
	}
	if diff := cmp.Diff(want, table.Lines); diff != "" {
		t.Error(diff)
	}
}

// The resources of a cause are enough for it: their lists alone come to nothing preferred.
func TestExplainNamesACauseOfItsOwnIffNothingIsPreferred(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawRule(t, 4)
		var named []hint.Named
		for i, l := range drawLists(t, r, 4, 6) {
			named = append(named, hint.Named{Resource: string(rune('a' + i)), List: l})
		}
		table := r.Explain(named)
		lists := func(only []string) []hint.List {
			var lists []hint.List
			for _, n := range named {
				if only == nil || slices.Contains(only, n.Resource) {
					lists = append(lists, n.List)
				}
			}
			return lists
		}
		if h, admitted := product(r, lists(nil)); table.Answer != (hint.Answer{Hint: h, Admitted: admitted}) {
			t.Fatalf("answer %v, want %v, %v", table.Answer, h, admitted)
		}
		if table.Answer.Hint.Preferred != (table.Cause == hint.NoCause) {
			t.Fatalf("%v: cause %v", table.Answer, table.Cause)
		}
		if table.Cause == hint.NoCause {
			return
		}
		if h, _ := product(r, lists(table.Resources)); h.Preferred {
			t.Fatalf("%v of %v, which alone come to %v", table.Cause, table.Resources, h)
		}
	})
}
