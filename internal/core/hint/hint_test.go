package hint_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/topo"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/hint"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func TestPoliciesAreSpelledAsTheKubeletDoes(t *testing.T) {
	t.Parallel()
	for p, want := range map[hint.Policy]string{
		hint.None: "none", hint.BestEffort: "best-effort", hint.Restricted: "restricted",
		hint.SingleNUMANode: "single-numa-node",
	} {
		if got := p.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got, ok := hint.ParsePolicy(want); !ok || got != p {
			t.Errorf("ParsePolicy(%s) = %v, %v", want, got, ok)
		}
	}
	if got, ok := hint.ParsePolicy("Restricted"); ok {
		t.Errorf("ParsePolicy(Restricted) = %v", got)
	}
}

// What the kubelet answers without anything to merge, by policy (its source: topologymanager/policy*.go).
func TestMergeOfNothingInParticular(t *testing.T) {
	t.Parallel()
	type answer struct {
		hint     hint.Hint
		admitted bool
	}
	noPreference := []hint.List{nil, {{Preferred: true}}}
	tests := map[string]struct {
		lists []hint.List
		want  map[hint.Policy]answer
	}{
		"no lists": {nil, map[hint.Policy]answer{
			hint.None: {hint.Hint{}, true}, hint.BestEffort: {hint.Hint{Mask: 3, Preferred: true}, true},
			hint.Restricted:     {hint.Hint{Mask: 3, Preferred: true}, true},
			hint.SingleNUMANode: {hint.Hint{Preferred: true}, true},
		}},
		"no provider has a preference": {noPreference, map[hint.Policy]answer{
			hint.None: {hint.Hint{}, true}, hint.BestEffort: {hint.Hint{Mask: 3, Preferred: true}, true},
			hint.Restricted:     {hint.Hint{Mask: 3, Preferred: true}, true},
			hint.SingleNUMANode: {hint.Hint{Preferred: true}, true},
		}},
		"one fits nowhere": {[]hint.List{nil, {}}, map[hint.Policy]answer{
			hint.None: {hint.Hint{}, true}, hint.BestEffort: {hint.Hint{Mask: 3}, true},
			hint.Restricted: {hint.Hint{Mask: 3}, false}, hint.SingleNUMANode: {hint.Hint{}, false},
		}},
		"one fits nowhere, the other on one node": {
			[]hint.List{{}, {{Mask: 2, Preferred: true}}},
			map[hint.Policy]answer{
				hint.None: {hint.Hint{}, true}, hint.BestEffort: {hint.Hint{Mask: 2}, true},
				hint.Restricted: {hint.Hint{Mask: 2}, false}, hint.SingleNUMANode: {hint.Hint{}, false},
			},
		},
		"masks of nodes that do not exist": {[]hint.List{{{Mask: 12, Preferred: true}}}, map[hint.Policy]answer{
			hint.None: {hint.Hint{}, true}, hint.BestEffort: {hint.Hint{Mask: 3}, true},
			hint.Restricted: {hint.Hint{Mask: 3}, false}, hint.SingleNUMANode: {hint.Hint{}, false},
		}},
		"two one-GPU nodes, two GPUs and one node of CPUs": {
			[]hint.List{
				{{Mask: 1, Preferred: true}, {Mask: 2, Preferred: true}, {Mask: 3}},
				{{Mask: 3, Preferred: true}},
			},
			map[hint.Policy]answer{
				hint.None: {hint.Hint{}, true}, hint.BestEffort: {hint.Hint{Mask: 3}, true},
				hint.Restricted: {hint.Hint{Mask: 3}, false}, hint.SingleNUMANode: {hint.Hint{}, false},
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for p, want := range tc.want {
				r := hint.Rule{Policy: p, Nodes: 2}
				if a := r.Answer(tc.lists, nil); a.Hint != want.hint || a.Admitted != want.admitted {
					t.Errorf("%v: got %+v, want %v, %v", p, a, want.hint, want.admitted)
				}
				if got, ok := product(&r, tc.lists); got != want.hint || ok != want.admitted {
					t.Errorf("%v: the product says %v, %v, want %v, %v", p, got, ok, want.hint, want.admitted)
				}
			}
		})
	}
}

func TestMergeIsIndifferentToOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawRule(t, 8)
		lists := drawLists(t, r, 4, 12)
		want := r.Answer(lists, nil)
		mixed := rapid.Permutation(lists).Draw(t, "mixed")
		for i, l := range mixed {
			if len(l) > 0 {
				mixed[i] = rapid.Permutation(l).Draw(t, "hints")
			}
		}
		if got := r.Answer(mixed, nil); got != want {
			t.Fatalf("%v: got %+v, want %+v", lists, got, want)
		}
	})
}

// Ids of nodes may be anything: only their order counts.
func TestMergeIsIndifferentToGapsBetweenNodes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dense := hint.Rule{
			Policy: rapid.SampledFrom([]hint.Policy{hint.BestEffort, hint.Restricted}).Draw(t, "policy"),
			Nodes:  6,
		}
		wide := dense
		wide.Nodes = 40
		move := func(m topo.NodeSet) topo.NodeSet { // node i becomes node 7·i + 2
			var moved topo.NodeSet
			for i := range dense.Nodes {
				if m.Has(topo.NUMA(i)) {
					moved |= 1 << (7*i + 2)
				}
			}
			return moved
		}
		lists := drawLists(t, &dense, 4, 12)
		lists = append(lists, hint.List{{Mask: topo.FirstNodes(dense.Nodes)}})
		moved := make([]hint.List, len(lists))
		for i, l := range lists {
			if l != nil {
				moved[i] = hint.List{}
			}
			for j, h := range l {
				lists[i][j].Mask &= topo.FirstNodes(dense.Nodes)
				moved[i] = append(moved[i], hint.Hint{Mask: move(lists[i][j].Mask), Preferred: h.Preferred})
			}
		}
		want := dense.Answer(lists, nil)
		want.Hint.Mask = move(want.Hint.Mask)
		got := wide.Answer(moved, nil)
		if got.Hint.Mask == topo.FirstNodes(wide.Nodes) { // no mask at all: every node of the machine
			got.Hint.Mask = move(topo.FirstNodes(dense.Nodes))
		}
		if got != want {
			t.Fatalf("%v: got %+v, want %+v", lists, got, want)
		}
	})
}

func TestTighterPoliciesAdmitLess(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawRule(t, 6)
		lists := drawLists(t, r, 4, 12)
		admitted := func(p hint.Policy) bool {
			tight := *r
			tight.Policy = p
			return tight.Answer(lists, nil).Admitted
		}
		single, restricted := admitted(hint.SingleNUMANode), admitted(hint.Restricted)
		if single && !restricted || !admitted(hint.BestEffort) || !admitted(hint.None) {
			t.Fatalf("%v: single %v, restricted %v", lists, single, restricted)
		}
	})
}

// A preferred mask has the least size of everything that takes part.
func TestPreferredMasksAreOfLeastSize(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMachine(t, 6)
		q := m.drawRequest(t)
		h := m.summary().Verdict(q, new(hint.Scratch)).Hint
		if !h.Preferred || h.Mask == 0 {
			return
		}
		for _, l := range m.lists(q) {
			for _, row := range l {
				if row.Preferred && row.Mask.Len() != h.Mask.Len() {
					t.Fatalf("%v is preferred where %v is", h, row)
				}
			}
		}
	})
}

// TestNothingPanics: whatever hints and amounts there are.
func TestNothingPanics(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		mask := rapid.Map(rapid.Uint64(), func(m uint64) topo.NodeSet { return topo.NodeSet(m) })
		r := drawRule(t, hint.WalkNodes)
		n := r.Nodes
		var lists []hint.List
		for range rapid.IntRange(0, 4).Draw(t, "lists") {
			lists = append(lists, rapid.SliceOfN(rapid.Custom(func(t *rapid.T) hint.Hint {
				return hint.Hint{Mask: mask.Draw(t, "mask"), Preferred: rapid.Bool().Draw(t, "preferred")}
			}), 0, 20).Draw(t, "hints"))
		}
		var w hint.Scratch
		r.Answer(lists, &w)
		amounts := rapid.SliceOfN(rapid.Int64(), n, n)
		resources := make([]hint.Resource, rapid.IntRange(1, 3).Draw(t, "resources"))
		for i := range resources {
			resources[i] = hint.Resource{Walked: topo.FirstNodes(n), Capacity: amounts.Draw(t, "capacity")}
		}
		s := hint.NewCapacity(*r, resources, [][]int64{amounts.Draw(t, "memory")}).Summary()
		node := rapid.IntRange(0, n-1)
		for range rapid.IntRange(0, 9).Draw(t, "changes") {
			at := rapid.IntRange(0, len(resources)-1).Draw(t, "resource")
			s.SetFree(at, node.Draw(t, "node"), rapid.Int64().Draw(t, "free"))
			s.SetMemory(0, node.Draw(t, "node"), rapid.Int64().Draw(t, "free"))
			s.SetGroup(node.Draw(t, "node"), mask.Draw(t, "group"), rapid.Bool().Draw(t, "assigned"))
		}
		q := hint.Request{Memory: []int64{rapid.Int64().Draw(t, "bytes")}}
		for i := range resources {
			q.Asks = append(q.Asks, hint.Ask{Resource: i, Amount: rapid.Int64().Draw(t, "amount")})
		}
		s.Verdict(&q, &w)
	})
}

func TestVerdictAllocatesNothing(t *testing.T) {
	for _, p := range []hint.Policy{hint.Restricted, hint.SingleNUMANode, hint.BestEffort} {
		for _, n := range []int{2, 4, 8, 16} {
			for _, shape := range []string{"one", "worst"} {
				s, q := benchNode(p, n, shape)
				var w hint.Scratch
				s.Verdict(q, &w) // buffers
				if got := testing.AllocsPerRun(20, func() { s.Verdict(q, &w) }); got != 0 {
					t.Errorf("%v, %d nodes, %s: %v allocations", p, n, shape, got)
				}
			}
		}
	}
}
