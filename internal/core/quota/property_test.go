package quota_test

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
)

func anyShape(*shape) {}

// TestForestsEqualTheDefinition: runtimes, exact shares, sums and totals are those of the rule read from scratch,
// after any order of events with detours.
func TestForestsEqualTheDefinition(t *testing.T) {
	t.Parallel()
	eachWorld(t, anyShape, func(t *rapid.T, w *world, d *dice) {
		f := w.detour(d)
		if diff := w.differences(f); len(diff) > 0 {
			t.Fatalf("%+v\n%s", w.config, fmt.Sprint(w.list(), "\n", w.nodes, "\n", diff))
		}
		if rebuilt := w.forest(); rebuilt.Hash() != f.Hash() {
			t.Fatalf("live and rebuilt state differ:\n%+v\n%+v", f.Reports(), rebuilt.Reports())
		}
	})
}

// detour builds a forest from events in random order: specs that are replaced, quotas that go and come back, pods that
// move and end, nodes that come and go, and questions in between.
func (w *world) detour(d *dice) *quota.Forest {
	f := quota.New(w.config)
	var events []func()
	s := shape{config: w.config, quotas: len(w.specs), levels: 5, scale: 50, broken: true}
	ask := func() {
		q, dim := f.Find(name(int(d.below(int64(s.quotas))))), f.Dimension(dimensions[d.below(3)])
		if q != nil {
			f.Runtime(q, dim)
		}
	}
	for i := range s.quotas {
		for range d.below(3) {
			events = append(events, func() { f.Set(d.spec(s, w, i)) }, ask)
		}
		if d.oneIn(3) {
			events = append(events, func() { f.Remove(name(i)) }, ask)
		}
		// A pod that ends: by the handle that it came with, which may be older than a removal.
		pods := d.pods(s)
		events = append(events, func() {
			q := f.Find(name(i))
			if q == nil {
				q = f.Find(quota.Default)
			}
			for m := range pods {
				f.Add(q, quota.Measure(m), f.Vector(pods[m]))
			}
			events = append(events, func() {
				for m := range pods {
					f.Subtract(q, quota.Measure(m), f.Vector(pods[m]))
				}
			}, ask)
		})
	}
	events = append(events, func() { f.SetNodes(d.nodes(s)) }, ask)
	run := func() {
		for len(events) > 0 {
			i := d.below(int64(len(events)))
			e := events[i]
			events = slices.Delete(events, int(i), int(i)+1)
			e()
		}
	}
	run()
	for i := range s.quotas {
		if f.Find(name(i)) == nil {
			f.Set(d.spec(s, w, i))
		}
	}
	// One more quota, which others may name as parent, goes at last.
	f.Set(d.spec(s, w, s.quotas))
	events = append(events, func() { f.Remove(name(s.quotas)) }, func() { f.SetNodes(w.nodes) })
	for _, spec := range w.list() {
		events = append(events, func() { f.Set(spec) })
	}
	w.eachSum(func(name string, m quota.Measure, amounts amount.List) {
		events = append(events, func() { f.Add(f.Find(name), m, f.Vector(amounts)) })
	})
	rand.New(rand.NewPCG(uint64(d.below(1<<30)), 0)).Shuffle(len(events), func(i, j int) {
		events[i], events[j] = events[j], events[i]
	})
	// The last ones change a forest in which all is divided.
	last := len(events) - 1 - int(d.below(3))
	for i, e := range events {
		if i >= last {
			f.Reports()
		}
		e()
	}
	return f
}

// sets calls a check with every set of siblings in every dimension: the reports of the parent and of the children that
// have a max.
func sets(f *quota.Forest, check func(dimension string, parent quota.Report, children []quota.Report)) {
	reports := f.Reports()
	for _, parent := range reports {
		for dimension := range parent.Max {
			var children []quota.Report
			for _, r := range reports {
				if _, named := r.Max[dimension]; named && r.Parent == parent.Name {
					children = append(children, r)
				}
			}
			if len(children) > 0 {
				check(dimension, parent, children)
			}
		}
	}
}

func limited(r quota.Report, dimension string) int64 {
	return min(r.Request[dimension], r.Max[dimension])
}

func total(children []quota.Report, amounts func(quota.Report) amount.List, dimension string) *big.Int {
	sum := new(big.Int)
	for _, c := range children {
		sum.Add(sum, big.NewInt(amounts(c)[dimension]))
	}
	return sum
}

func runtimeOf(r quota.Report) amount.List   { return r.Runtime }
func effectiveOf(r quota.Report) amount.List { return r.EffectiveMin }

func scaling(s *shape) { s.config.ScaleMin = true }

func TestC1RuntimesAreAtMostTheTotal(t *testing.T) {
	t.Parallel()
	eachWorld(t, scaling, func(t *rapid.T, w *world, _ *dice) {
		sets(w.forest(), func(dimension string, parent quota.Report, children []quota.Report) {
			if got := total(children, runtimeOf, dimension); got.Cmp(big.NewInt(parent.Runtime[dimension])) > 0 {
				t.Fatalf("children of %s have %d of %d %s", parent.Name, got, parent.Runtime[dimension], dimension)
			}
		})
	})
}

func TestC2NothingIsIdleWhileAQuotaMayBorrow(t *testing.T) {
	t.Parallel()
	eachWorld(t, anyShape, func(t *rapid.T, w *world, _ *dice) {
		sets(w.forest(), func(dimension string, parent quota.Report, children []quota.Report) {
			if total(children, runtimeOf, dimension).Cmp(big.NewInt(parent.Runtime[dimension])) >= 0 {
				return
			}
			for _, c := range children {
				r, most := c.Runtime[dimension], limited(c, dimension)
				idle := !c.Lends && r == c.EffectiveMin[dimension] && most <= r
				if c.Weight[dimension] > 0 && r != most && !idle {
					t.Fatalf("%s has %d, asks for %d while %s has some left", c.Name, r, most, parent.Name)
				}
			}
		})
	})
}

func TestC3RuntimeIsAtMostMaxAndRequest(t *testing.T) {
	t.Parallel()
	eachWorld(t, anyShape, func(t *rapid.T, w *world, _ *dice) {
		sets(w.forest(), func(dimension string, _ quota.Report, children []quota.Report) {
			for _, c := range children {
				r := c.Runtime[dimension]
				if r < 0 || r > c.Max[dimension] || c.Lends && r > limited(c, dimension) {
					t.Fatalf("%s: runtime %d, max %d, request %d", c.Name, r, c.Max[dimension], c.Request[dimension])
				}
			}
		})
	})
}

func TestC4RuntimeIsAtLeastWhatIsGuaranteed(t *testing.T) {
	t.Parallel()
	eachWorld(t, anyShape, func(t *rapid.T, w *world, _ *dice) {
		sets(w.forest(), func(dimension string, _ quota.Report, children []quota.Report) {
			for _, c := range children {
				r, e := c.Runtime[dimension], c.EffectiveMin[dimension]
				if r < min(e, limited(c, dimension)) || !c.Lends && r < min(e, c.Max[dimension]) {
					t.Fatalf("%s: runtime %d, effective min %d, request %d", c.Name, r, e, c.Request[dimension])
				}
			}
		})
	})
}

// Q3: scaled mins lose units.
func TestC5MinsAreScaledToExactlyTheTotal(t *testing.T) {
	t.Parallel()
	eachWorld(t, scaling, func(t *rapid.T, w *world, _ *dice) {
		sets(w.forest(), func(dimension string, parent quota.Report, children []quota.Report) {
			reference := big.NewInt(max(parent.EffectiveMin[dimension], parent.Runtime[dimension]))
			asked := total(children, func(r quota.Report) amount.List { return r.Guaranteed }, dimension)
			short := asked.Cmp(reference) > 0
			if got := total(children, effectiveOf, dimension); short && got.Cmp(reference) != 0 {
				t.Fatalf("mins below %s are scaled to %d of %d", parent.Name, got, reference)
			}
			for _, c := range children {
				e, m := c.EffectiveMin[dimension], c.Guaranteed[dimension]
				if e > m || !short && e != m {
					t.Fatalf("%s: min %d scaled to %d, with %d for %d", c.Name, m, e, reference, asked)
				}
			}
		})
	})
}

// TestC6OrderIsIrrelevant: every order of the same events gives the same state, and reading does not change it.
//
// Q25: ties depend on the order of a map.
func TestC6OrderIsIrrelevant(t *testing.T) {
	t.Parallel()
	eachWorld(t, anyShape, func(t *rapid.T, w *world, d *dice) {
		want := w.forest().Hash()
		f := quota.New(w.config)
		list := w.list()
		rand.New(rand.NewPCG(uint64(d.below(1<<30)), 0)).Shuffle(len(list), func(i, j int) {
			list[i], list[j] = list[j], list[i]
		})
		for _, s := range list {
			f.Set(s)
			f.Reports()
		}
		w.addSums(f)
		f.SetNodes(w.nodes)
		if got := f.Hash(); got != want || f.Hash() != got {
			t.Fatalf("another order gives another state:\n%+v\n%+v", f.Reports(), w.forest().Reports())
		}
	})
}

func TestC7RuntimeIsWithinItsRoundsOfTheExactShare(t *testing.T) {
	t.Parallel()
	eachWorld(t, anyShape, func(t *rapid.T, w *world, _ *dice) {
		f := w.forest()
		shares := f.Shares()
		for _, dimension := range dimensions {
			for name, want := range w.solve(dimension) {
				q, d := f.Find(name), f.Dimension(dimension)
				exact, named := shares.Exact(q, d)
				if !named || name == quota.Root {
					continue
				}
				runtime, _ := f.Runtime(q, d)
				off := new(big.Rat).Sub(exact, new(big.Rat).SetInt64(runtime))
				if off.Abs(off).Cmp(big.NewRat(int64(max(want.roundings, 1)), 1)) >= 0 ||
					want.roundings == 0 && off.Sign() != 0 {
					t.Fatalf("%s: runtime %d, exact %s, %d rounds", name, runtime, exact, want.roundings)
				}
			}
		}
	})
}

func flat(s *shape) {
	s.levels, s.broken, s.config.ScaleMin = 1, false, true
}

// values returns the exact shares, and the runtimes, of all limited quotas in a dimension.
func values(f *quota.Forest, dimension string) (exact, runtime map[string]*big.Rat) {
	exact, runtime = map[string]*big.Rat{}, map[string]*big.Rat{}
	shares, d := f.Shares(), f.Dimension(dimension)
	for _, r := range f.Reports() {
		if share, named := shares.Exact(f.Find(r.Name), d); named {
			exact[r.Name], runtime[r.Name] = share, new(big.Rat).SetInt64(r.Runtime[dimension])
		}
	}
	return exact, runtime
}

// noneFalls fails where a value of some quota is below what it was.
func noneFalls(t *rapid.T, what string, before, after map[string]*big.Rat) {
	t.Helper()
	for name, was := range before {
		if name != quota.Root && after[name].Cmp(was) < 0 {
			t.Fatalf("%s of %s falls from %s to %s", what, name, was.RatString(), after[name].RatString())
		}
	}
}

func TestC8ALargerTotalLowersNoExactShare(t *testing.T) {
	t.Parallel()
	eachWorld(t, anyShape, func(t *rapid.T, w *world, _ *dice) {
		if w.nodes[cpu] == math.MaxInt64 {
			return
		}
		f := w.forest()
		exact, _ := values(f, cpu)
		w.nodes[cpu]++
		f.SetNodes(w.nodes)
		exactThen, _ := values(f, cpu)
		noneFalls(t, "the exact share", exact, exactThen)
	})
}

func TestC9ALargerRequestGainsAndTakes(t *testing.T) {
	t.Parallel()
	eachWorld(t, flat, func(t *rapid.T, w *world, d *dice) {
		f := w.forest()
		exact, runtime := values(f, cpu)
		own := f.Find(name(int(d.below(int64(len(w.specs))))))
		f.Add(own, quota.Request, f.Vector(amount.List{cpu: 1}))
		exactThen, runtimeThen := values(f, cpu)
		others := func(m map[string]*big.Rat) map[string]*big.Rat {
			m = maps.Clone(m)
			delete(m, own.Name())
			return m
		}
		only := func(m map[string]*big.Rat) map[string]*big.Rat {
			if n, known := m[own.Name()]; known {
				return map[string]*big.Rat{own.Name(): n}
			}
			return nil
		}
		noneFalls(t, "the exact share", only(exact), exactThen)
		noneFalls(t, "the runtime", only(runtime), runtimeThen)
		noneFalls(t, "before, the exact share", others(exactThen), exact)
	})
}

func TestC10ALargerWeightDoesNotLose(t *testing.T) {
	t.Parallel()
	eachWorld(t, flat, func(t *rapid.T, w *world, d *dice) {
		f := w.forest()
		exact, _ := values(f, cpu)
		s := w.specs[name(int(d.below(int64(len(w.specs)))))]
		weight, set := s.Weight[cpu]
		if !set {
			weight = s.Max[cpu]
		}
		if _, named := s.Max[cpu]; !named || weight == math.MaxInt64 || s.IsRoot {
			return
		}
		s.Weight = amount.List{cpu: weight + 1}
		f.Set(s)
		exactThen, _ := values(f, cpu)
		noneFalls(t, "the exact share", map[string]*big.Rat{s.Name: exact[s.Name]}, exactThen)
	})
}

func TestC11AnIdleChildChangesNothing(t *testing.T) {
	t.Parallel()
	eachWorld(t, anyShape, func(t *rapid.T, w *world, d *dice) {
		f := w.forest()
		before := f.Reports()
		f.Set(leaf("m-idle", name(int(d.below(int64(len(w.specs))))), 0, d.amount(1000)))
		after := slices.DeleteFunc(f.Reports(), func(r quota.Report) bool { return r.Name == "m-idle" })
		for i := range before {
			// A quota that was a leaf has no child that is guaranteed anything.
			before[i].Allocated, after[i].Allocated = nil, nil
		}
		if fmt.Sprint(before) != fmt.Sprint(after) {
			t.Fatalf("an idle child changes\n%+v\nto\n%+v", before, after)
		}
	})
}

func TestC12ExactSharesScaleWithTheUnit(t *testing.T) {
	t.Parallel()
	fit := func(s *shape) { s.scale = min(s.scale, 1<<42) }
	eachWorld(t, fit, func(t *rapid.T, w *world, _ *dice) {
		const unit = 1000
		exact, _ := values(w.forest(), cpu)
		for _, s := range w.specs {
			for _, amounts := range []amount.List{s.Min, s.Max, s.Weight, s.Total} {
				for dimension := range amounts {
					amounts[dimension] *= unit
				}
			}
		}
		for _, sums := range w.sums {
			for _, amounts := range sums {
				for _, n := range amounts {
					n.Mul(n, big.NewInt(unit))
				}
			}
		}
		for dimension := range w.nodes {
			w.nodes[dimension] *= unit
		}
		finer, _ := values(w.forest(), cpu)
		for name, share := range exact {
			if want := new(big.Rat).Mul(share, big.NewRat(unit, 1)); finer[name].Cmp(want) != 0 {
				t.Fatalf("%s: exact share %s, and %s in units of 1/%d", name, share.RatString(), finer[name], unit)
			}
		}
	})
}

func TestC13DimensionsAreIndependent(t *testing.T) {
	t.Parallel()
	eachWorld(t, anyShape, func(t *rapid.T, w *world, _ *dice) {
		exact, runtime := values(w.forest(), cpu)
		for _, s := range w.specs {
			for _, amounts := range []amount.List{s.Min, s.Max, s.Weight, s.Total, w.nodes} {
				delete(amounts, "memory")
				delete(amounts, "nvidia.com/gpu")
			}
		}
		exactAlone, runtimeAlone := values(w.forest(), cpu)
		if fmt.Sprint(exact) != fmt.Sprint(exactAlone) || fmt.Sprint(runtime) != fmt.Sprint(runtimeAlone) {
			t.Fatalf("cpu with and without other dimensions: %v, %v", runtime, runtimeAlone)
		}
	})
}

// TestC14LargeAmountsAreClamped: no amount panics or wraps around, and what does not fit is clamped.
func TestC14LargeAmountsAreClamped(t *testing.T) {
	t.Parallel()
	fit := func(s *shape) { s.scale, s.broken = math.MaxInt64, true }
	eachWorld(t, fit, func(t *rapid.T, w *world, _ *dice) {
		if diff := w.differences(w.forest()); len(diff) > 0 {
			t.Fatal(diff)
		}
		f := w.forest()
		for _, r := range f.Reports() {
			for dimension, n := range r.Runtime {
				if n < 0 || n > r.Max[dimension] {
					t.Fatalf("%s: runtime %d, max %d", r.Name, n, r.Max[dimension])
				}
			}
		}
	})
}

func TestC15WeightZeroNeverBorrows(t *testing.T) {
	t.Parallel()
	eachWorld(t, anyShape, func(t *rapid.T, w *world, _ *dice) {
		sets(w.forest(), func(dimension string, _ quota.Report, children []quota.Report) {
			for _, c := range children {
				if r, e := c.Runtime[dimension], c.EffectiveMin[dimension]; c.Weight[dimension] == 0 && r > e {
					t.Fatalf("%s has weight 0, effective min %d and runtime %d", c.Name, e, r)
				}
			}
		})
	})
}

// TestC16ParentsRequestTheSumOfWhatTheirChildrenPass, and their own pods' where they have some in spite of the rules.
func TestC16ParentsRequestTheSumOfWhatTheirChildrenPass(t *testing.T) {
	t.Parallel()
	eachWorld(t, anyShape, func(t *rapid.T, w *world, _ *dice) {
		reports := w.forest().Reports()
		for _, parent := range reports {
			for _, dimension := range dimensions {
				sum := new(big.Int).Set(w.own(parent.Name, quota.Request, dimension))
				for _, c := range reports {
					if c.Parent == parent.Name {
						sum.Add(sum, big.NewInt(c.Passed[dimension]))
					}
				}
				if got := parent.Request[dimension]; got != clamp(sum) {
					t.Fatalf("%s requests %d %s, its children pass %d", parent.Name, got, dimension, sum)
				}
			}
		}
	})
}

// TestC17TheUnitInUseStays: in a tie of equals, those that use a unit keep it, then the names decide.
func TestC17TheUnitInUseStays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "quotas")
		units := rapid.IntRange(0, n).Draw(t, "units")
		using := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "using")
		f := quota.New(quota.Config{ScaleMin: true})
		d, one := f.Dimension(cpu), f.Vector(amount.List{cpu: 1})
		f.SetNodes(amount.List{cpu: int64(units)})
		for i := range n {
			f.Set(leaf(name(i), "", 0, 8))
			f.Add(f.Find(name(i)), quota.Request, f.Vector(amount.List{cpu: 8}))
			f.Runtime(f.Find(name(i)), d)
		}
		for i, uses := range using {
			if uses {
				f.Add(f.Find(name(i)), quota.Used, one)
			}
		}
		left := units
		for _, inUse := range []bool{true, false} {
			for i, uses := range using {
				want := int64(0)
				if uses == inUse {
					if left > 0 {
						want = 1
						left--
					}
					if got, _ := f.Runtime(f.Find(name(i)), d); got != want {
						t.Fatalf("%s: runtime %d, want %d; used by %v", name(i), got, want, using)
					}
				}
			}
		}
	})
}

// TestR5RoundingNeverEvicts: a change that takes nothing from the exact share of a quota leaves its goal at what it
// could use before, so that nothing of it is revoked.
func TestR5RoundingNeverEvicts(t *testing.T) {
	t.Parallel()
	eachWorld(t, anyShape, func(t *rapid.T, w *world, d *dice) {
		f := w.forest()
		exact, runtime := values(f, cpu)
		step := d.amount(max(w.nodes[cpu]/8, 2))
		switch q := f.Find(name(int(d.below(int64(len(w.specs)))))); d.below(4) {
		case 0:
			f.Add(q, quota.Request, f.Vector(amount.List{cpu: step}))
		case 1:
			less := min(step, q.Amount(quota.Request, f.Dimension(cpu)))
			f.Subtract(q, quota.Request, f.Vector(amount.List{cpu: less}))
		case 2:
			w.nodes[cpu] += min(step, math.MaxInt64-w.nodes[cpu])
		case 3:
			w.nodes[cpu] -= step
		}
		f.SetNodes(w.nodes)
		shares := f.Shares()
		for name, was := range exact {
			q := f.Find(name)
			if share, _ := shares.Exact(q, f.Dimension(cpu)); name != quota.Root && share.Cmp(was) >= 0 {
				goal := new(big.Rat).SetInt64(shares.Goal(q, f.Dimension(cpu)))
				if goal.Cmp(runtime[name]) < 0 {
					t.Fatalf(
						"%s: exact share from %s to %s, runtime %s, goal %s",
						name,
						was,
						share,
						runtime[name],
						goal,
					)
				}
			}
		}
	})
}
