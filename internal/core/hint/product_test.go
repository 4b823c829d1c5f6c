package hint_test

import (
	"math/bits"
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/hint"
)

// product is the merge as it is defined: every way to take one hint of each list.
func product(r *hint.Rule, lists []hint.List) (hint.Hint, bool) {
	if r.Policy == hint.None {
		return hint.Hint{}, true
	}
	all := topo.FirstNodes(r.Nodes)
	var offered [][]hint.Hint
	for _, l := range lists {
		own := slices.Clone(l)
		switch {
		case l == nil:
			own = hint.List{{Preferred: true}}
		case len(l) == 0:
			own = hint.List{{}}
		}
		if r.Policy == hint.SingleNUMANode {
			own = slices.DeleteFunc(own, func(h hint.Hint) bool {
				return !h.Preferred || bits.OnesCount64(uint64(h.Mask)) > 1
			})
		}
		offered = append(offered, own)
	}
	widest := 0
	for _, l := range offered {
		narrowest := 0
		for _, h := range l {
			n := bits.OnesCount64(uint64(h.Mask))
			if n > 0 && (narrowest == 0 || n < narrowest) {
				narrowest = n
			}
		}
		widest = max(widest, narrowest)
	}
	best := hint.Hint{Mask: all}
	found := false
	taken := make([]hint.Hint, len(offered))
	var take func(at int)
	take = func(at int) {
		if at < len(offered) {
			for _, h := range offered[at] {
				taken[at] = h
				take(at + 1)
			}
			return
		}
		out := hint.Hint{Mask: all, Preferred: true}
		var masks []topo.NodeSet
		for _, h := range taken {
			out.Preferred = out.Preferred && h.Preferred
			if h.Mask != 0 {
				out.Mask &= h.Mask
				masks = append(masks, h.Mask)
			}
		}
		for _, m := range masks {
			out.Preferred = out.Preferred && m == masks[0]
		}
		if out.Mask != 0 && (!found || less(keyOf(r, widest, out), keyOf(r, widest, best))) {
			best, found = out, true
		}
	}
	take(0)
	if r.Policy == hint.SingleNUMANode && best.Mask == all {
		best.Mask = 0
	}
	return best, r.Policy == hint.BestEffort || best.Preferred
}

type key struct {
	class, size int
	distance    float64
	mask        topo.NodeSet
}

func keyOf(r *hint.Rule, widest int, h hint.Hint) key {
	n := bits.OnesCount64(uint64(h.Mask))
	k := key{size: n, mask: h.Mask}
	switch {
	case h.Preferred:
	case n == widest:
		k.class, k.size = 1, 0
	case n < widest:
		k.class, k.size = 2, -n
	default:
		k.class = 3
	}
	if r.Distances != nil && r.Policy != hint.SingleNUMANode {
		k.distance = mean(r.Distances, h.Mask)
	}
	return k
}

func less(a, b key) bool {
	switch {
	case a.class != b.class:
		return a.class < b.class
	case a.size != b.size:
		return a.size < b.size
	case a.distance != b.distance:
		return a.distance < b.distance
	}
	return a.mask < b.mask
}

// mean is the kubelet's arithmetic: float64 sums in the order of node ids.
func mean(distances [][]int, m topo.NodeSet) float64 {
	sum, pairs := 0.0, 0.0
	for i := range distances {
		for j := range distances {
			if m>>i&1 == 1 && m>>j&1 == 1 {
				sum += float64(distances[i][j])
				pairs++
			}
		}
	}
	return sum / pairs
}

func drawRule(t *rapid.T, maxNodes int) *hint.Rule {
	r := &hint.Rule{
		Policy: rapid.SampledFrom([]hint.Policy{
			hint.BestEffort, hint.BestEffort, hint.Restricted,
			hint.SingleNUMANode,
		}).Draw(t, "policy"),
		Nodes: rapid.IntRange(1, maxNodes).Draw(t, "nodes"),
	}
	if rapid.Bool().Draw(t, "closest") {
		r.Distances = make([][]int, r.Nodes)
		for i := range r.Distances {
			r.Distances[i] = make([]int, r.Nodes)
			for j := range r.Distances[i] {
				r.Distances[i][j] = rapid.SampledFrom([]int{10, 11, 12, 20, 21, 32, 255}).Draw(t, "distance")
			}
		}
	}
	return r
}

// drawLists draws lists of any hints, not only of those that providers make, and repeats some.
func drawLists(t *rapid.T, r *hint.Rule, maxLists, maxHints int) []hint.List {
	one := rapid.Custom(func(t *rapid.T) hint.List {
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return hint.List{}
		}
		masks := rapid.Uint64Range(0, uint64(topo.FirstNodes(r.Nodes)))
		if rapid.IntRange(0, 9).Draw(t, "foreign") == 0 {
			masks = rapid.Uint64Range(0, uint64(topo.FirstNodes(r.Nodes+2)))
		}
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) hint.Hint {
			return hint.Hint{Mask: topo.NodeSet(masks.Draw(t, "mask")), Preferred: rapid.Bool().Draw(t, "preferred")}
		}), 1, maxHints).Draw(t, "hints")
	})
	lists := rapid.SliceOfN(one, 0, maxLists).Draw(t, "lists")
	if len(lists) > 0 && len(lists) < maxLists && rapid.Bool().Draw(t, "again") {
		lists = append(lists, lists[0])
	}
	return lists
}

// drawDense draws lists as of providers: what is large enough, less some holes.
func drawDense(t *rapid.T, r *hint.Rule) []hint.List {
	count := 3
	if r.Nodes > 4 {
		count = 2
	}
	lists := make([]hint.List, rapid.IntRange(1, count).Draw(t, "lists"))
	for i := range lists {
		free := rapid.SliceOfN(rapid.IntRange(0, 5), r.Nodes, r.Nodes).Draw(t, "free")
		need := rapid.IntRange(0, 8).Draw(t, "need")
		size := rapid.IntRange(0, 4).Draw(t, "size")
		holes := rapid.Uint32().Draw(t, "holes") & rapid.Uint32().Draw(t, "of these")
		lists[i] = hint.List{}
		for m := topo.NodeSet(1); m <= topo.FirstNodes(r.Nodes); m++ {
			sum := 0
			for node, n := range free {
				if m.Has(topo.NUMA(node)) {
					sum += n
				}
			}
			if sum >= need && holes>>m&1 == 0 {
				lists[i] = append(lists[i], hint.Hint{Mask: m, Preferred: m.Len() == size})
			}
		}
	}
	return lists
}
