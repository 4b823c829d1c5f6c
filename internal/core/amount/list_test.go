package amount_test

import (
	"maps"
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// anyInt64 draws amounts of real size and those at the ends.
func anyInt64() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(-9, 9), rapid.Int64(), rapid.SampledFrom([]int64{
		math.MinInt64, math.MinInt64 + 1, math.MaxInt64 - 1, math.MaxInt64,
	}))
}

// nearest is the int64 that is nearest to n.
func nearest(n *big.Int) int64 {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.Sign() < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

// TestSumsAreTheNearestInt64 compares sums and differences with those of big integers.
func TestSumsAreTheNearestInt64(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyInt64().Draw(t, "a"), anyInt64().Draw(t, "b")
		sum := nearest(new(big.Int).Add(big.NewInt(a), big.NewInt(b)))
		rest := nearest(new(big.Int).Sub(big.NewInt(a), big.NewInt(b)))
		if got := amount.Plus(a, b); got != sum {
			t.Errorf("%d and %d are %d, want %d", a, b, got, sum)
		}
		list := amount.List{"a": a, "other": 7}
		if list.Take(amount.List{"a": b}); list["a"] != rest || list["other"] != 7 {
			t.Errorf("%d less %d leaves %v, want %d", a, b, list, rest)
		}
		list = amount.List{"a": a, "other": 7}
		if list.Add(amount.List{"a": b}); list["a"] != sum || list["other"] != 7 {
			t.Errorf("%d and %d are %v, want %d", a, b, list, sum)
		}
		p := amount.Pair{amount.CPU: a, amount.Memory: b}
		if got, want := p.Plus(amount.Pair{b, 0}), (amount.Pair{sum, b}); got != want {
			t.Errorf("%v and %d of CPU are %v, want %v", p, b, got, want)
		}
		if got, want := p.Without(amount.Pair{b, b}), (amount.Pair{max(rest, 0), 0}); got != want {
			t.Errorf("%v without %d of each is %v, want %v", p, b, got, want)
		}
		if got, want := p.Larger(amount.Pair{b, a}), (amount.Pair{max(a, b), max(a, b)}); got != want {
			t.Errorf("the larger ones of %v and its reverse are %v, want %v", p, got, want)
		}
	})
}

func TestASumThatNoInt64HoldsIsTheNearestThatOneHolds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b, want int64 }{
		{2, -3, -1},
		{math.MaxInt64 - 1, 1, math.MaxInt64},
		{math.MaxInt64, 1, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, math.MinInt64, -1},
		{math.MinInt64 + 1, -1, math.MinInt64},
		{math.MinInt64, -1, math.MinInt64},
		{math.MinInt64, math.MinInt64, math.MinInt64},
	} {
		if got := amount.Plus(c.a, c.b); got != c.want {
			t.Errorf("%d and %d are %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestAListHoldsWhatItHasOfEachResource(t *testing.T) {
	t.Parallel()
	free := amount.List{"cpu": 1000, "pods": 1}
	for name, c := range map[string]struct {
		asked amount.List
		want  bool
	}{
		"nothing":                          {nil, true},
		"all of it":                        {amount.List{"cpu": 1000, "pods": 1}, true},
		"one more of one":                  {amount.List{"cpu": 1001, "pods": 1}, false},
		"a resource that it does not name": {amount.List{"memory": 1}, false},
		"nothing of such a resource":       {amount.List{"memory": 0}, true},
	} {
		if got := free.Holds(c.asked); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func TestEqual(t *testing.T) {
	t.Parallel()
	list := amount.List{"cpu": 1}
	for name, c := range map[string]struct {
		other amount.List
		want  bool
	}{
		"itself":                 {list, true},
		"a copy":                 {maps.Clone(list), true},
		"another amount":         {amount.List{"cpu": 2}, false},
		"a name with 0 more":     {amount.List{"cpu": 1, "pods": 0}, false},
		"a name less":            {amount.List{}, false},
		"none":                   {nil, false},
		"another name, as much":  {amount.List{"pods": 1}, false},
		"another name beside it": {amount.List{"cpu": 1, "memory": 1}, false},
	} {
		if got := list.Equal(c.other); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
	if !amount.List(nil).Equal(amount.List{}) {
		t.Error("no list differs from an empty one")
	}
}

// TestPartsAreExact compares parts with quotients of big integers.
func TestPartsAreExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, part, whole := anyInt64().Draw(t, "n"), anyInt64().Draw(t, "part"), anyInt64().Draw(t, "whole")
		half := int64(0)
		if rapid.Bool().Draw(t, "rounded") {
			half = max(whole, 0) / 2
		}
		want := int64(0)
		if whole > 0 {
			product := new(big.Int).Mul(big.NewInt(max(n, 0)), big.NewInt(max(part, 0)))
			want = nearest(product.Add(product, big.NewInt(half)).Div(product, big.NewInt(whole)))
		}
		if got := amount.Part(n, part, whole, half); got != want {
			t.Errorf("%d of %d, for %d, is %d, want %d", part, whole, n, got, want)
		}
	})
}

func TestResourcesHaveTheirNamesInKubernetes(t *testing.T) {
	t.Parallel()
	var got []string
	for _, r := range amount.Both() {
		got = append(got, r.String())
	}
	if !slices.Equal(got, []string{"cpu", "memory"}) {
		t.Errorf("the resources are %v", got)
	}
}
