package align_test

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/why"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// TestResizedAmountsAddUpInProportion compares with exact fractions: each NUMA node has its share, rounded down, and
// the first one the rest as well; what is of other resources does not change.
func TestResizedAmountsAddUpInProportion(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 1<<40), rapid.Int64Range(1, math.MaxInt64/8))
		var list []align.Amount
		sum := new(big.Int)
		for numa := range rapid.IntRange(0, 4).Draw(t, "NUMA nodes") {
			for _, resource := range []why.Resource{"memory", "hugepages-2Mi"} {
				if rapid.Bool().Draw(t, fmt.Sprint(resource, numa)) {
					list = append(list, align.Amount{NUMAID: numa, Resource: resource, N: bytes.Draw(t, "amount")})
					if resource == "memory" {
						sum.Add(sum, big.NewInt(list[len(list)-1].N))
					}
				}
			}
		}
		n := bytes.Draw(t, "new amount")
		got := map[string]int64{}
		for _, a := range align.Resize(list, "memory", n) {
			got[fmt.Sprint(a.Resource, a.NUMAID)] = a.N
		}
		total, first := int64(0), true
		for _, a := range list {
			have := got[fmt.Sprint(a.Resource, a.NUMAID)]
			if a.Resource != "memory" {
				if have != a.N {
					t.Errorf("%s of node %d: %d, was %d", a.Resource, a.NUMAID, have, a.N)
				}
				continue
			}
			total += have
			share := new(big.Int).Mul(big.NewInt(a.N), big.NewInt(n))
			share.Quo(share, sum)
			if !first && have != share.Int64() || first && have < share.Int64() {
				t.Errorf("node %d has %d, its share of %d is %d", a.NUMAID, have, n, share)
			}
			first = false
		}
		if !first && total != n {
			t.Errorf("%v became %v, which add up to %d and not to %d", list, got, total, n)
		}
	})
}
