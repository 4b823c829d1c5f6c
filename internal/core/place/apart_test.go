package place_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// TestMemoryOfNUMANodesWithoutCPUsIsRefusedByThePolicy: a pod that would have its memory if NUMA nodes without CPUs
// counted is refused by the topology policy, and not for lack of memory; where that is not enough either, memory is
// short.
func TestMemoryOfNUMANodesWithoutCPUsIsRefusedByThePolicy(t *testing.T) {
	t.Parallel()
	seen := map[why.Code]int{}
	rapid.Check(t, func(rt *rapid.T) {
		s := spec(2, 1, 4, 2)
		s.NUMA = append(s.NUMA, topo.NUMASpec{ID: 0}, topo.NUMASpec{ID: 1}, topo.NUMASpec{ID: 2})
		var has [3]int64 // the last NUMA node has no CPUs
		var amounts []align.Amount
		for i := range has {
			has[i] = rapid.Int64Range(0, 16).Draw(rt, "memory")
			amounts = append(amounts, align.Amount{NUMAID: i, Resource: why.Memory, N: has[i] << 30})
		}
		if has[0]+has[1] == 0 {
			rt.Skip("nothing is known of the memory beside CPUs")
		}
		tight := rapid.SampledFrom([]hint.Policy{hint.Restricted, hint.SingleNUMANode}).Draw(rt, "policy")
		asked := rapid.Int64Range(1, 50).Draw(rt, "asked")
		r := binding(4, policy(tight), asking(gib(asked)))
		if rapid.Bool().Draw(rt, "shared pool") {
			r = sharing(4000, policy(tight), asking(gib(asked)))
		}
		v := ledger.New(ledger.Facts{Machine: grid.Build(t, s), Amounts: amounts}).View()
		got, want := place.Fits(v, r), why.Reason{}
		switch most, beside := max(has[0], has[1]), has[0]+has[1]; {
		case most >= asked:
		case beside >= asked && tight == hint.Restricted:
			want = why.Reason{Code: why.TopologyMismatch, Resource: why.Memory, Asked: 2, Free: 1}
		case beside >= asked:
			want = memoryReason(why.TopologyPolicy, why.Memory, asked, most, 1)
			want.Where = got.Where
		case beside+has[2] >= asked:
			want = memoryReason(why.TopologyPolicy, why.Memory, asked, beside, 1)
		default:
			want = memoryReason(why.InsufficientMemory, why.Memory, asked, beside, 0)
		}
		if got != want {
			rt.Fatalf("%d GiB of %v GiB, %v: got %+v, want %+v", asked, has, tight, got, want)
		}
		seen[got.Code]++
	})
	if len(seen) != 4 {
		t.Errorf("got only %v", seen)
	}
}
