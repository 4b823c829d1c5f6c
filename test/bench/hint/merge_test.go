package hint_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/core/topo"

	"github.com/go-logr/logr"
	cadvisor "github.com/google/cadvisor/lib/model"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"

	"github.com/tenon-project/tenon/internal/core/hint"
)

// kubelet returns the kubelet's policy for a rule.
func kubelet(tb testing.TB, r *hint.Rule) topologymanager.Policy {
	tb.Helper()
	options := topologymanager.PolicyOptions{PreferClosestNUMA: r.Distances != nil, MaxAllowableNUMANodes: 64}
	machine := make([]cadvisor.Node, r.Nodes)
	for i := range machine {
		machine[i].Id = i
		if r.Distances == nil {
			continue
		}
		for _, d := range r.Distances[i] {
			machine[i].Distances = append(machine[i].Distances, uint64(d))
		}
	}
	info, err := topologymanager.NewNUMAInfo(machine, options)
	if err != nil {
		tb.Fatal(err)
	}
	switch r.Policy {
	case hint.BestEffort:
		return topologymanager.NewBestEffortPolicy(info, options)
	case hint.Restricted:
		return topologymanager.NewRestrictedPolicy(info, options)
	case hint.SingleNUMANode:
		return topologymanager.NewSingleNumaNodePolicy(info, options)
	default:
		return topologymanager.NewNonePolicy()
	}
}

// asLists returns lists as providers hand them to the kubelet.
func asLists(tb testing.TB, lists []hint.List) []map[string][]topologymanager.TopologyHint {
	tb.Helper()
	var providers []map[string][]topologymanager.TopologyHint
	for i, l := range lists {
		var hints []topologymanager.TopologyHint
		if l != nil {
			hints = []topologymanager.TopologyHint{}
		}
		for _, h := range l {
			own := topologymanager.TopologyHint{Preferred: h.Preferred}
			if h.Mask != 0 {
				var nodes []int
				for n := range h.Mask.All() {
					nodes = append(nodes, int(n))
				}
				mask, err := bitmask.NewBitMask(nodes...)
				if err != nil {
					tb.Fatal(err)
				}
				own.NUMANodeAffinity = mask
			}
			hints = append(hints, own)
		}
		providers = append(providers, map[string][]topologymanager.TopologyHint{fmt.Sprint(i): hints})
	}
	return providers
}

func answer(h topologymanager.TopologyHint) hint.Hint {
	own := hint.Hint{Preferred: h.Preferred}
	if h.NUMANodeAffinity != nil {
		for _, n := range h.NUMANodeAffinity.GetBits() {
			own.Mask |= 1 << n
		}
	}
	return own
}

var policies = []hint.Policy{hint.None, hint.BestEffort, hint.Restricted, hint.SingleNUMANode}

func TestMergeIsTheKubelets(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(20, 26))
	for state := range 20_000 {
		r := &hint.Rule{Nodes: 1 + random.IntN(4)}
		if random.IntN(2) == 0 {
			for range r.Nodes {
				row := make([]int, r.Nodes)
				for i := range row {
					row[i] = []int{10, 11, 12, 20, 21, 32, 255}[random.IntN(7)]
				}
				r.Distances = append(r.Distances, row)
			}
		}
		lists := make([]hint.List, random.IntN(5))
		for i := range lists {
			switch random.IntN(10) {
			case 0:
			case 1:
				lists[i] = hint.List{}
			default:
				for range 1 + random.IntN(8) {
					h := hint.Hint{Mask: topo.NodeSet(random.IntN(2 << r.Nodes)), Preferred: random.IntN(3) == 0}
					lists[i] = append(lists[i], h)
				}
			}
		}
		for _, r.Policy = range policies {
			h, want := kubelet(t, r).Merge(logr.Discard(), asLists(t, lists))
			if got := r.Answer(lists, nil); got != (hint.Answer{Hint: answer(h), Admitted: want}) {
				t.Fatalf("state %d: %+v of %v: got %v, %v, the kubelet says %v, %v", state, r, lists, got.Hint,
					got.Admitted, answer(h), want)
			}
		}
	}
}

// A node of the benchmark has 32 CPUs, 8 devices and 64 units of memory. Shape full: nothing is used and one node does.
// Shape apart: CPUs for one node, devices for two, so that nothing is preferred.
func node(p hint.Policy, n int, shape string) (*hint.Rule, []hint.List, *hint.Summary, *hint.Request) {
	r := &hint.Rule{Policy: p, Nodes: n}
	each := []int64{32, 8, 64}
	asked := []int64{16, 4, 32}
	if shape == "apart" {
		asked[1] = 12
	}
	var lists []hint.List
	var resources []hint.Resource
	for i := range each {
		least := int((asked[i] + each[i] - 1) / each[i])
		list := hint.List{}
		for m := topo.NodeSet(1); m <= topo.FirstNodes(n); m++ {
			if m.Len() >= least {
				list = append(list, hint.Hint{Mask: m, Preferred: m.Len() == least})
			}
		}
		lists = append(lists, list)
		resources = append(resources, hint.Resource{
			Walked: topo.FirstNodes(n), Capacity: slices.Repeat(each[i:i+1], n),
		})
	}
	memory := make([]int64, n)
	for i := range memory {
		memory[i] = each[2]
	}
	s := hint.NewCapacity(*r, resources[:2], [][]int64{memory}).Summary()
	return r, lists, s, &hint.Request{
		Asks: []hint.Ask{{Resource: 0, Amount: asked[0]}, {Resource: 1, Amount: asked[1]}}, Memory: asked[2:],
	}
}

func BenchmarkMerge(b *testing.B) {
	for _, p := range policies[1:] {
		for _, n := range []int{2, 4, 8, 12, 16} {
			for _, shape := range []string{"full", "apart"} {
				r, lists, s, q := node(p, n, shape)
				name := func(method string) string {
					return fmt.Sprintf("by=%s/policy=%v/numa=%d/providers=3/shape=%s", method, p, n, shape)
				}
				if n <= 8 || p == hint.SingleNUMANode {
					policy, providers := kubelet(b, r), asLists(b, lists)
					b.Run(name("kubelet"), func(b *testing.B) {
						b.ReportAllocs()
						for b.Loop() {
							policy.Merge(logr.Discard(), providers)
						}
					})
				}
				var w hint.Scratch
				b.Run(name("lists"), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						r.Answer(lists, &w)
					}
				})
				b.Run(name("counters"), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						s.Verdict(q, &w)
					}
				})
			}
		}
	}
}
