package fragment_test

import (
	"math/big"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/testkit"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func drawSpec(t *rapid.T) fragment.Spec {
	s := fragment.Spec{
		MilliCPU: 1000 * rapid.Int64Range(0, 24).Draw(t, "cpu"),
		GPUs:     rapid.SampledFrom([]int64{0, 1, 1, 1, 1, 2, 4, 8}).Draw(t, "gpus"),
	}
	if s.GPUs > 0 {
		s.Milli = rapid.OneOf(rapid.Just(int64(1000)), rapid.Int64Range(1, 1000)).Draw(t, "milli")
	}
	if rapid.IntRange(0, 4).Draw(t, "limited") == 0 {
		s.Models = fragment.Models(rapid.Uint64Range(1, 15).Draw(t, "models"))
	}
	return s
}

func drawSpecs(t *rapid.T) (specs []fragment.Weighted) {
	for range rapid.IntRange(1, 12).Draw(t, "specs") {
		specs = append(specs, fragment.Weighted{Spec: drawSpec(t), Weight: rapid.Int64Range(1, 1000).Draw(t, "weight")})
	}
	return specs
}

func drawState(t *rapid.T) fragment.State {
	return fragment.State{
		MilliCPU: 1000 * rapid.Int64Range(0, 96).Draw(t, "free cpu"),
		Free: rapid.SliceOfN(rapid.OneOf(
			rapid.SampledFrom([]int64{0, 300, 500, 1000}), rapid.Just(int64(1000)), rapid.Int64Range(0, 1000),
		), 0, 8).Draw(t, "free"),
		Model: fragment.Model(rapid.IntRange(0, 3).Draw(t, "model")),
	}
}

func drawSupply(t *rapid.T) (free fragment.Supply) {
	for m := range fragment.Model(4) {
		free[m] = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 100_000)).Draw(t, "free of the model")
	}
	return free
}

func drawGeneration(t *rapid.T, memo fragment.Memo) (*fragment.Generation, []fragment.Weighted, fragment.Settings) {
	return drawSupplied(t, memo, fragment.Supply{})
}

func drawSupplied(t *rapid.T, memo fragment.Memo, free fragment.Supply) (
	*fragment.Generation, []fragment.Weighted, fragment.Settings,
) {
	specs := drawSpecs(t)
	settings := fragment.Settings{
		Sequences: rapid.IntRange(1, 20).Draw(t, "sequences"), MultiGPU: rapid.Int64Range(0, 100).Draw(t, "multi"),
		Seed: rapid.Uint64().Draw(t, "seed"),
	}
	g, err := fragment.New(specs, free, settings, memo)
	testkit.Check(t, err)
	return g, specs, settings
}

// within reports whether a value in micro-GPUs is one in milli, but for roundings.
func within(got int64, want *big.Rat, off int64) bool {
	d := new(big.Rat).Sub(new(big.Rat).SetInt64(got), new(big.Rat).Mul(want, big.NewRat(1000, 1)))
	return d.Abs(d).Cmp(new(big.Rat).SetInt64(off)) <= 0
}

func TestFragmentationEqualsItsDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g, specs, _ := drawGeneration(t, newMemo())
		s := drawState(t)
		if got, want := g.Fragmentation(s), measure(specs, s); !within(got, want, 1) {
			t.Fatalf("fragmentation %d, want 1000 × %s", got, want.FloatString(4))
		}
	})
}

func TestValueEqualsARolloutByHand(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		known, free := newRecorder(), drawSupply(t)
		g, specs, settings := drawSupplied(t, known, free)
		s := drawState(t)
		want := value(specs, free, g.Sequences(), settings.MultiGPU, s)
		// What each limited spec takes of a GPU is rounded twice.
		if got := g.Value(s); !within(got, want, int64(3+2*len(specs)*len(s.Free))) {
			t.Fatalf("value %d, want 1000 × %s", got, want.FloatString(4))
		}
		if !known.remembers(s) && sumOf(s.Free) > 0 {
			t.Fatal("the value is not remembered")
		}
		if first, again := g.Value(s), g.Value(s); first != again {
			t.Fatalf("value %d, then %d", first, again)
		}
	})
}

func TestChooseFindsTheLargestGain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g, _, _ := drawGeneration(t, newMemo())
		s, pod := drawState(t), drawSpec(t)
		usable := rapid.Uint64Range(0, 255).Draw(t, "usable")
		gain, fits := best(g, s, pod, usable)
		got, ok := g.Choose(s, pod, usable)
		if ok != fits || got.Gain != gain {
			t.Fatalf("gain %d, fits %t; want %d, %t", got.Gain, ok, gain, fits)
		}
		if !ok {
			return
		}
		after, given := give(s, pod, got.GPUs)
		if !given || got.GPUs&^usable != 0 || g.Value(s)-g.Value(after) != got.Gain {
			t.Fatalf("GPUs %b cannot be given, or gain something else than %d", got.GPUs, got.Gain)
		}
	})
}

func TestTheOrderOfGPUsAndFullOnesDoNotChangeAValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g, _, _ := drawGeneration(t, newMemo())
		s := drawState(t)
		other := s
		other.Free = rapid.Permutation(append(slices.Clone(s.Free), 0, -7)).Draw(t, "order")
		if g.Value(s) != g.Value(other) || g.Fragmentation(s) != g.Fragmentation(other) {
			t.Fatalf("value %d and %d, fragmentation %d and %d", g.Value(s), g.Value(other), g.Fragmentation(s),
				g.Fragmentation(other))
		}
	})
}

func TestEqualSpecsGiveEqualValues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		free := drawSupply(t)
		g, specs, settings := drawSupplied(t, newMemo(), free)
		mixed := rapid.Permutation(specs).Draw(t, "order of specs")
		factor := rapid.SampledFrom([]int64{1, 2, 1 << 20}).Draw(t, "factor")
		for i := range mixed {
			mixed[i].Weight *= factor // weights are proportions
		}
		other, err := fragment.New(mixed, free, settings, newMemo())
		testkit.Check(t, err)
		if !slices.EqualFunc(g.Sequences(), other.Sequences(), slices.Equal) {
			t.Fatal("the sequences differ")
		}
		if s := drawState(t); g.Value(s) != other.Value(s) || g.Fragmentation(s) != other.Fragmentation(s) {
			t.Fatalf("value %d and %d, fragmentation %d and %d", g.Value(s), other.Value(s), g.Fragmentation(s),
				other.Fragmentation(s))
		}
	})
}

func TestFragmentationIsAtMostWhatIsFree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g, _, _ := drawGeneration(t, newMemo())
		s := drawState(t)
		more := s
		more.MilliCPU += 1000 * rapid.Int64Range(0, 20).Draw(t, "more")
		if f, with := g.Fragmentation(s), g.Fragmentation(more); f < 0 || f > 1000*sumOf(s.Free) || with > f {
			t.Fatalf("fragmentation %d of %d milli, %d with more CPUs", f, sumOf(s.Free), with)
		}
		if v := g.Value(s); v < 0 || sumOf(s.Free) == 0 && v != 0 {
			t.Fatalf("value %d of %d milli", v, sumOf(s.Free))
		}
	})
}

// At each position the sequences have each spec as often as its weight says, but for what is less than two.
func TestSequencesAreTheDemand(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g, specs, settings := drawGeneration(t, newMemo())
		weights, sum := map[fragment.Spec]int64{}, int64(0)
		for _, p := range specs {
			weights[p.Spec] += p.Weight
			sum += p.Weight
		}
		n := int64(settings.Sequences)
		for position := range 80 {
			count := map[fragment.Spec]int64{}
			for _, sequence := range g.Sequences() {
				count[sequence[position]]++
			}
			for spec, weight := range weights {
				if off := count[spec]*sum - n*weight; off >= 2*sum || off <= -2*sum {
					t.Fatalf("weight %d of %d is %d of %d specs at position %d", weight, sum, count[spec], n, position)
				}
			}
		}
	})
}

func TestNormalizeKeepsTheOrderAndHasOneWinner(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(-3, 3), rapid.Int64()), 1, 12).Draw(t, "values")
		name := func(i int) string { return strconv.Itoa((i*7 + 3) % 13) } // distinct
		winner := fragment.Winner(values, name)
		for i, v := range values {
			if i != winner && (v > values[winner] || v == values[winner] && name(i) < name(winner)) {
				t.Fatalf("winner %d of %v, but %d comes first", winner, values, i)
			}
		}
		scores, tied := slices.Clone(values), slices.Clone(values)
		fragment.Normalize(scores, winner)
		fragment.Normalize(tied, -1)
		for i, s := range scores {
			if s < 0 || s > 100 || s == 100 != (i == winner) || tied[i] == 100 != (values[i] == values[winner]) {
				t.Fatalf("values %v, winner %d: scores %v, with ties %v", values, winner, scores, tied)
			}
			if exact := share(values[i], values); i != winner && s != exact {
				t.Fatalf("values %v: score %d of %d, want %d", values, s, values[i], exact)
			}
			for j := range values {
				if values[i] < values[j] && (s > scores[j] || tied[i] > tied[j]) {
					t.Fatalf("values %v: scores %v and %v change the order", values, scores, tied)
				}
			}
		}
	})
}

// share is ⌊99·(v − min)/(max − min)⌋.
func share(v int64, values []int64) int64 {
	low, high := big.NewInt(slices.Min(values)), big.NewInt(slices.Max(values))
	width := high.Sub(high, low)
	if width.Sign() == 0 {
		return 0
	}
	above := new(big.Int).Sub(big.NewInt(v), low)
	return above.Div(above.Mul(above, big.NewInt(99)), width).Int64()
}
