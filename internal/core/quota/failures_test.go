package quota_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/testkit"
)

// The tests of this file are named after failures of other quota systems: Q1 to Q27 in the reference. A mark such as
// "Q2:" at a test anywhere in the tree names the failure that it guards against.

// TestLentAmountsReturnWithoutAnyPodOfTheBorrower has no pod come or go in the borrower: what it may use follows its
// sibling at once, in both directions, on every level.
//
// Q2: a runtime is stale, what was borrowed never returns.
func TestLentAmountsReturnWithoutAnyPodOfTheBorrower(t *testing.T) {
	t.Parallel()
	f := quota.New(quota.Config{ScaleMin: true})
	f.SetNodes(amount.List{cpu: 100})
	plant(t, f, 1, "lender 60/100 { l 60/100 [0] }  borrower 40/100 { b 40/100 [100] }")
	want := func(step, text string) {
		t.Helper()
		want := amounts(t, 1, text)
		if diff := cmp.Diff(want, runtimes(f, want)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
	}
	sixty := f.Vector(amount.List{cpu: 60})
	want("the lender is idle", "l=0 borrower=100 b=100")
	f.Add(f.Find("l"), quota.Request, sixty)
	want("the lender asks for its min", "l=60 borrower=40 b=40")
	f.Subtract(f.Find("l"), quota.Request, sixty)
	want("the lender is idle again", "l=0 borrower=100 b=100")
	f.SetNodes(amount.List{cpu: 70})
	want("the cluster shrinks", "l=0 borrower=70 b=70")
	f.Set(quota.Spec{Name: "borrower", IsParent: true, Min: amount.List{cpu: 40}, Max: amount.List{cpu: 50}})
	want("the borrower's max falls", "l=0 borrower=50 b=50")
	f.Remove("borrower")
	want("the borrower's parent is gone", "l=0 b=70")
}

// TestAnEvictionBeginsAboveMin: a plan takes pods only from a quota that uses more than it is guaranteed, before each
// of the evictions, under every policy.
//
// Q6: a quota at or below min loses pods.
func TestAnEvictionBeginsAboveMin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := drawnGrove(t)
		running := pods{}
		for _, q := range g.leaves {
			for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
				running.run(g.f, q.Name(), one(g.f, fmt.Sprint(q.Name(), i), rapid.Int64Range(1, 8).Draw(t, "size")))
			}
		}
		policy := rapid.SampledFrom([]quota.RevokePolicy{quota.OnDemand, quota.Strict}).Draw(t, "policy")
		plans := quota.NewRevoker(policy, 0, quota.Limits{}).Plan(eleven, g.f, g.claimants, running.holdersIn)
		for _, plan := range plans {
			report, used := g.f.Report(plan.Donor), plan.Levels[0].Used
			guaranteed := min(report.EffectiveMin[cpu], report.Request[cpu])
			for _, unit := range plan.Victims {
				if used <= guaranteed {
					t.Fatalf("%s uses %d, is guaranteed %d, and loses %s: %s", plan.Donor.Name(), used, guaranteed,
						unit[0].UID, victims(plan))
				}
				for _, h := range unit {
					used -= h.Uses[0].N
				}
			}
		}
	})
}

// TestANegativeWeightTakesNothingFromSiblings: it counts as 0, in Σ weights as well, so that the others divide the pool
// and no more than the pool.
//
// Q12: a negative weight is in the sum of weights and not in the loop, so that siblings get more than there is.
func TestANegativeWeightTakesNothingFromSiblings(t *testing.T) {
	t.Parallel()
	f := quota.New(quota.Config{ScaleMin: true})
	f.SetNodes(amount.List{cpu: 100})
	plant(t, f, 1, "a 0/100 w=30 [100]  b 0/100 w=30 [100]  bad 10/100 w=-40 [100]")
	want := amounts(t, 1, "a=45 b=45 bad=10")
	if diff := cmp.Diff(want, runtimes(f, want)); diff != "" {
		t.Errorf("runtimes (-want +got):\n%s", diff)
	}
}

// TestAShrunkClusterLeavesNothingNegative: the total falls below Σ min and below what is used, unit by unit to nothing,
// quotas go, and everything returns. Nothing is below 0 or above what there is, and at no time is a pod admitted that
// does not fit.
//
// Q14: amounts are negative after the cluster shrinks, pods are admitted above the limit after a removal.
func TestAShrunkClusterLeavesNothingNegative(t *testing.T) {
	t.Parallel()
	a := quota.NewAccount(quota.Config{ScaleMin: true}, quota.Rules{})
	ten := amount.List{cpu: 10}
	for _, s := range []quota.Spec{leaf("a", "", 30, 60), leaf("b", "", 20, 60), leaf("c", "", 10, 60)} {
		a.Set(s)
		for i := range 4 {
			p := quota.Pod{UID: fmt.Sprint(s.Name, i), Quota: s.Name, Amounts: ten, Node: "n"}
			if i == 3 {
				p.Node = ""
			}
			a.Put(p)
		}
	}
	check := func(total int64) {
		t.Helper()
		a.SetNodes(amount.List{cpu: total})
		sum := int64(0)
		for _, r := range a.Forest().Reports() {
			for _, amounts := range []amount.List{r.Runtime, r.EffectiveMin, r.Used, r.Request, r.Allocated} {
				if amounts[cpu] < 0 {
					t.Fatalf("total %d: %+v", total, r)
				}
			}
			if r.Name == quota.Root {
				continue
			}
			if sum += r.Runtime[cpu]; r.Runtime[cpu]-r.Used[cpu] < 10 != (a.Admit(r.Name+"3") != nil) &&
				len(r.Max) > 0 {
				t.Fatalf("total %d: admission answers %v, quota %+v", total, a.Admit(r.Name+"3"), r)
			}
		}
		if sum > total {
			t.Fatalf("%d of %d are shared", sum, total)
		}
	}
	for total := int64(150); total >= 0; total-- {
		check(total)
	}
	a.Unset("b")
	for total := range int64(150) {
		check(total)
	}
}

// TestADivisionEndsAfterARoundPerBorrower, and mins that are scaled are one more.
//
// Q17: admission never ends.
func TestADivisionEndsAfterARoundPerBorrower(t *testing.T) {
	t.Parallel()
	eachWorld(t, anyShape, func(t *rapid.T, w *world, _ *dice) {
		f := w.forest()
		sets(f, func(dimension string, _ quota.Report, children []quota.Report) {
			for _, c := range children {
				trace, _ := f.Trace(f.Find(c.Name), f.Dimension(dimension))
				if len(trace.Rounds) > len(children) {
					t.Fatalf("%d rounds among %d quotas: %+v", len(trace.Rounds), len(children), trace)
				}
			}
		})
	})
	// A path may be as deep as someone makes it without the webhook, and end in a cycle.
	f := quota.New(quota.Config{ScaleMin: true})
	f.SetNodes(amount.List{cpu: 100})
	const depth = 200
	for i := range depth {
		f.Set(leaf(fmt.Sprint("q", i), fmt.Sprint("q", i+1), 1, 100))
	}
	deepest := f.Find("q0")
	f.Add(deepest, quota.Request, f.Vector(amount.List{cpu: 7}))
	if got, _ := f.Runtime(deepest, f.Dimension(cpu)); got != 7 || len(f.Report(deepest).Path) != depth {
		t.Errorf("on a path of %d: runtime %d, want 7", len(f.Report(deepest).Path), got)
	}
	f.Set(leaf(fmt.Sprint("q", depth-1), "q0", 1, 100))
	if got, _ := f.Runtime(deepest, f.Dimension(cpu)); got != 7 || deepest.Parent() != f.Find(quota.Root) {
		t.Errorf("in a cycle: runtime %d under %s, want 7 under the root", got, deepest.Parent().Name())
	}
}

// TestTwoQueuesDoNotReclaimForEver: pods of three and of five CPUs in queues that each deserve four of eight. Whoever
// runs, at most one queue gives back, and what it gave back is not admitted again.
//
// Q18: two queues reclaim from each other for ever.
func TestTwoQueuesDoNotReclaimForEver(t *testing.T) {
	t.Parallel()
	for _, policy := range []quota.RevokePolicy{quota.OnDemand, quota.Strict} {
		for _, first := range []string{"three", "five"} {
			f := quota.New(quota.Config{ScaleMin: true})
			f.SetNodes(amount.List{cpu: 8})
			sizes := map[string]int64{"three": 3, "five": 5}
			running, waiting := pods{}, pods{}
			for name, size := range sizes {
				f.Set(leaf(name, "", 4, 8))
				f.Add(f.Find(name), quota.Request, f.Vector(amount.List{cpu: 30 * size}))
				for i := range 30 {
					waiting[name] = append(waiting[name], one(f, fmt.Sprint(name, i), size))
				}
			}
			// Both queues want all; first got what is free before the other asked.
			for used := int64(0); used+sizes[first] <= 8; used += sizes[first] {
				running.run(f, first, waiting[first][0])
				waiting[first] = waiting[first][1:]
			}
			r := quota.NewRevoker(policy, 0, quota.Limits{})
			evictions := 0
			for range 20 {
				for name, list := range waiting {
					q := f.Find(name)
					runtime, _ := f.Runtime(q, f.Dimension(cpu))
					all := f.Find(quota.Root).Amount(quota.Used, f.Dimension(cpu))
					if size := sizes[name]; q.Amount(quota.Used, f.Dimension(cpu))+size <= runtime && all+size <= 8 {
						running.run(f, name, list[0])
						waiting[name] = list[1:]
					}
				}
				claimants := these([]quota.Claimant{
					{Pod: "t", Quota: f.Find("three"), Dimension: f.Dimension(cpu)},
					{Pod: "f", Quota: f.Find("five"), Dimension: f.Dimension(cpu)},
				})
				for _, plan := range r.Plan(eleven, f, claimants, running.holdersIn) {
					for _, unit := range plan.Victims {
						evictions++
						f.Subtract(plan.Donor, quota.Used, unit[0].Uses)
						name := plan.Donor.Name()
						running[name] = slices.DeleteFunc(running[name], func(h quota.Holder) bool {
							return h.UID == unit[0].UID
						})
					}
				}
			}
			if evictions != 1 {
				t.Errorf("policy %d, %s first: %d evictions, want the one pod above four CPUs", policy, first,
					evictions)
			}
		}
	}
}

// TestTakingBackMoreThanThereIsIsExact: a sum below 0 reads as 0, and is not forgotten: what is added next is compared
// with it. Sums above an int64 read as the largest, and come back from there as well.
//
// Q21: subtracting more than there is panics. Q23: a counter below 0 is clamped, and counts too much from then on.
func TestTakingBackMoreThanThereIsIsExact(t *testing.T) {
	t.Parallel()
	f := quota.New(quota.Config{ScaleMin: true})
	f.SetNodes(amount.List{cpu: 100})
	plant(t, f, 1, "p 0/100 { a 0/100 [20]  b 0/100 [20] }")
	d, a := f.Dimension(cpu), f.Find("a")
	used := func(n int64) quota.Vector { return f.Vector(amount.List{cpu: n}) }
	f.Reports()
	before := f.Hash()
	for m := quota.Request; m <= quota.NonPreemptibleUsed; m++ {
		f.Subtract(a, m, used(50))
		for _, r := range f.Reports() {
			if r.Request[cpu] < 0 || r.Used[cpu] < 0 || r.Runtime[cpu] < 0 || r.Runtime[cpu] > 100 {
				t.Errorf("below 0: %+v", r)
			}
		}
		if got := a.Amount(m, d); got != 0 {
			t.Errorf("sum %d is %d, want 0", m, got)
		}
		f.Add(a, m, used(50))
		for range 3 {
			f.Add(a, m, used(math.MaxInt64))
		}
		if got := a.Amount(m, d); got != math.MaxInt64 {
			t.Errorf("sum %d is %d, want the largest", m, got)
		}
		for range 3 {
			f.Subtract(a, m, used(math.MaxInt64))
		}
	}
	if f.Hash() != before {
		t.Errorf("after everything was taken back: %+v", f.Reports())
	}
}

// TestDecisionsUseNoFloats.
//
// Q25: shares are computed in float64, units are lost.
func TestDecisionsUseNoFloats(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("*.go")
	testkit.Check(t, err)
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	if len(names) == 0 {
		t.Fatal("no files")
	}
	for _, name := range names {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, nil, 0)
		testkit.Check(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if strings.HasPrefix(n.Name, "float") {
					t.Errorf("%v: %s", files.Position(n.Pos()), n.Name)
				}
			case *ast.BasicLit:
				if n.Kind == token.FLOAT {
					t.Errorf("%v: %s", files.Position(n.Pos()), n.Value)
				}
			}
			return true
		})
	}
}
