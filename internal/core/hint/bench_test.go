package hint_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/core/topo"

	"github.com/tenon-project/tenon/internal/core/hint"
)

// benchNode is a machine of n nodes with 32 CPUs, 4 GPUs, 2 NICs (virtual functions) and 64 units of memory each, all
// prepared, and what it is asked.
func benchNode(p hint.Policy, n int, shape string) (*hint.Summary, *hint.Request) {
	var resources []hint.Resource
	for _, each := range []int64{32, 8} {
		resources = append(resources, hint.Resource{
			Walked: topo.FirstNodes(n), Capacity: slices.Repeat([]int64{each}, n),
		})
	}
	memory := make([]int64, n)
	for i := range memory {
		memory[i] = 64
	}
	s := hint.NewCapacity(hint.Rule{Policy: p, Nodes: n}, resources, [][]int64{memory}).Summary()
	ask := func(cpus, gpus, bytes int64) *hint.Request {
		return &hint.Request{
			Asks:   []hint.Ask{{Resource: 0, Amount: cpus}, {Resource: 1, Amount: gpus}},
			Memory: []int64{bytes},
		}
	}
	if shape == "one" { // one node would do, and only the last one does
		for i := range n - 1 {
			s.SetFree(0, i, 15)
		}
		return s, ask(16, 2, 32)
	}
	// Half of the nodes are needed: without node 0 there is one CPU too few, with it there are no GPUs. Neither shows
	// before the last node of a mask, so all masks are looked at, and none is preferred.
	k := int64(n / 2)
	for i := 1; i < n; i++ {
		s.SetFree(0, i, 31)
	}
	s.SetFree(1, 0, 0)
	return s, ask(31*k+1, 8*k, 64*k)
}

func BenchmarkVerdict(b *testing.B) {
	for _, p := range []hint.Policy{hint.Restricted, hint.SingleNUMANode, hint.BestEffort} {
		for _, n := range []int{2, 4, 8, 12, 16} {
			for _, shape := range []string{"one", "worst"} {
				b.Run(fmt.Sprintf("policy=%s/numa=%d/providers=3/shape=%s", p, n, shape), func(b *testing.B) {
					s, q := benchNode(p, n, shape)
					var w hint.Scratch
					s.Verdict(q, &w) // allocates the scratch
					b.ReportAllocs()
					for b.Loop() {
						s.Verdict(q, &w)
					}
				})
			}
		}
	}
}
