package quota_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
)

func leaf(name, parent string, least, most int64) quota.Spec {
	return quota.Spec{Name: name, Parent: parent, Min: amount.List{cpu: least}, Max: amount.List{cpu: most}}
}

// TestBrokenSpecsAreReplacedAndReported: objects that are older than the webhook do not stop the scheduler.
func TestBrokenSpecsAreReplacedAndReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		specs []quota.Spec
		want  []string // problems
		under map[string]string
	}{
		"min above max": {
			[]quota.Spec{leaf("a", "", 20, 10)},
			[]string{`quota "a": min of cpu is 20, must not exceed max; max counts`},
			map[string]string{"a": quota.Root},
		},
		"negative amounts": {
			[]quota.Spec{{
				Name: "a", Min: amount.List{cpu: -1}, Max: amount.List{cpu: -2}, Weight: amount.List{cpu: -3},
			}},
			[]string{
				`quota "a": max of cpu is -2, must not be negative; 0 counts`,
				`quota "a": min of cpu is -1, must not be negative; 0 counts`,
				`quota "a": weight of cpu is -3, must not be negative; 0 counts`,
			},
			map[string]string{"a": quota.Root},
		},
		"min and weight of a dimension without max": {
			[]quota.Spec{{Name: "a", Min: amount.List{cpu: 1}, Weight: amount.List{"memory": 1}}},
			[]string{
				`quota "a": min of cpu is 1 without a max; it is ignored`,
				`quota "a": weight of memory is 1 without a max; it is ignored`,
			},
			map[string]string{"a": quota.Root},
		},
		"unknown parent": {
			[]quota.Spec{leaf("a", "gone", 1, 10), leaf("b", "a", 1, 10)},
			[]string{`quota "a": parent "gone" does not exist; it counts under koordinator-root-quota`},
			map[string]string{"a": quota.Root, "b": "a"},
		},
		"reserved parents": {
			[]quota.Spec{leaf("a", quota.System, 1, 10), leaf("b", quota.Default, 1, 10), leaf("c", quota.Root, 1, 10)},
			[]string{
				`quota "a": parent "koordinator-system-quota" does not exist; it counts under koordinator-root-quota`,
				`quota "b": parent "koordinator-default-quota" does not exist; it counts under koordinator-root-quota`,
			},
			map[string]string{"a": quota.Root, "b": quota.Root, "c": quota.Root},
		},
		"a cycle, with a quota below it": {
			[]quota.Spec{leaf("a", "c", 1, 10), leaf("b", "a", 1, 10), leaf("c", "b", 1, 10), leaf("d", "b", 1, 10)},
			[]string{
				`quota "a": parent "c" is below it; it counts under koordinator-root-quota`,
				`quota "b": parent "a" is below it; it counts under koordinator-root-quota`,
				`quota "c": parent "b" is below it; it counts under koordinator-root-quota`,
			},
			map[string]string{"a": quota.Root, "b": quota.Root, "c": quota.Root, "d": "b"},
		},
		"its own parent": {
			[]quota.Spec{leaf("a", "a", 1, 10)},
			[]string{`quota "a": parent "a" is below it; it counts under koordinator-root-quota`},
			map[string]string{"a": quota.Root},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := quota.New(quota.Config{ScaleMin: true})
			for _, s := range c.specs {
				f.Set(s)
			}
			if diff := cmp.Diff(c.want, f.Problems()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			under := map[string]string{}
			for name := range c.under {
				under[name] = f.Find(name).Parent().Name()
			}
			if diff := cmp.Diff(c.under, under); diff != "" {
				t.Errorf("parents (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProblemsEndWithTheirCause(t *testing.T) {
	t.Parallel()
	f := quota.New(quota.Config{ScaleMin: true})
	set := func(s quota.Spec) int {
		f.Set(s)
		return len(f.Problems())
	}
	if got := set(leaf("b", "a", 1, 10)); got != 1 {
		t.Errorf("a child before its parent: %d problems, want 1", got)
	}
	if got := set(leaf("a", "", 1, 10)); got != 0 || f.Find("b").Parent() != f.Find("a") {
		t.Errorf("the parent comes: %d problems, child under %s", got, f.Find("b").Parent().Name())
	}
	if got := set(leaf("a", "b", 1, 10)); got != 2 {
		t.Errorf("a cycle of two: %d problems, want 2", got)
	}
	if got := set(leaf("a", "", 1, 10)); got != 0 || f.Find("b").Parent() != f.Find("a") {
		t.Errorf("the cycle ends: %d problems, child under %s", got, f.Find("b").Parent().Name())
	}
	f.Set(leaf("a", "b", 1, 10))
	if f.Remove("a"); len(f.Problems()) != 1 {
		t.Error("a cycle loses a member: want a problem of the other")
	}
	if got := set(leaf("a", "", 1, 10)); got != 0 || f.Find("b").Parent() != f.Find("a") {
		t.Errorf("the member comes back: %d problems, child under %s", got, f.Find("b").Parent().Name())
	}
	f.Remove("a")
	if got := len(f.Problems()); got != 1 || f.Find("b").Parent() != f.Find(quota.Root) {
		t.Errorf("the parent goes: %d problems, child under %s", got, f.Find("b").Parent().Name())
	}
}

// TestTotalOfTheDefaultTreeIsTakenOffOnce: what System and Default use and what extra trees have is not in it, and it
// is never below 0.
//
// Q5: what system and default pods use is taken off twice.
func TestTotalOfTheDefaultTreeIsTakenOffOnce(t *testing.T) {
	t.Parallel()
	f := quota.New(quota.Config{ScaleMin: true})
	d := f.Dimension(cpu)
	total := func() int64 {
		n, _ := f.Runtime(f.Find(quota.Root), d)
		return n
	}
	used := func(n int64) quota.Vector { return f.Vector(amount.List{cpu: n}) }
	check := func(what string, want int64) {
		t.Helper()
		if got := total(); got != want {
			t.Errorf("%s: total %d, want %d", what, got, want)
		}
	}
	f.SetNodes(amount.List{cpu: 100})
	check("nodes", 100)
	f.Add(f.Find(quota.System), quota.Used, used(10))
	f.Add(f.Find(quota.Default), quota.Used, used(5))
	check("system and default pods", 85)
	top := quota.Spec{
		Name: "gpu-root", Tree: "gpu", IsRoot: true, IsParent: true,
		Max: amount.List{cpu: 30}, Total: amount.List{cpu: 30},
	}
	f.Set(top)
	f.Set(leaf("gpu-a", "gpu-root", 10, 40))
	f.Add(f.Find("gpu-a"), quota.Request, used(50))
	check("an extra tree", 55)
	if got, _ := f.Runtime(f.Find("gpu-a"), d); got != 30 {
		t.Errorf("the only child of the extra tree: runtime %d, want 30", got)
	}
	top.IgnoreDefaultTree = true
	f.Set(top)
	check("an extra tree that does not count", 85)
	top.IgnoreDefaultTree, top.Total = false, amount.List{cpu: 1000}
	f.Set(top)
	check("an extra tree larger than the cluster", 0)
	f.Remove("gpu-root")
	check("without the extra tree", 85)
	f.Subtract(f.Find(quota.System), quota.Used, used(10))
	check("without system pods", 95)
	f.Add(f.Find("gpu-a"), quota.Used, used(7))
	f.Remove("gpu-a")
	check("pods of a removed quota use Default", 88)
	f.SetNodes(nil)
	check("no nodes", 0)
}

// TestRemovedQuotasMeanDefault: a handle that is older than a removal still takes back what it added.
func TestRemovedQuotasMeanDefault(t *testing.T) {
	t.Parallel()
	f := quota.New(quota.Config{ScaleMin: true, DefaultMax: amount.List{cpu: 3}})
	d, five := f.Dimension(cpu), f.Vector(amount.List{cpu: 5})
	f.Set(leaf("a", "", 1, 10))
	old := f.Find("a")
	f.Add(old, quota.Request, five)
	f.Remove("a")
	f.Set(leaf("a", "", 1, 10))
	if got := f.Find(quota.Default).Amount(quota.Request, d); got != 5 {
		t.Errorf("Default requests %d, want the 5 of the removed quota", got)
	}
	if got, limited := f.Runtime(old, d); got != 3 || !limited {
		t.Errorf("runtime by the old handle: %d, %v; want 3, the max of Default", got, limited)
	}
	f.Subtract(old, quota.Request, five)
	f.Add(f.Find("a"), quota.Request, five)
	if got := f.Find(quota.Default).Amount(quota.Request, d); got != 0 {
		t.Errorf("Default requests %d after the pods moved, want 0", got)
	}
	if got := f.Find(quota.Root).Amount(quota.Request, d); got != 5 {
		t.Errorf("Root requests %d, want 5", got)
	}
}

// TestDimensionsWithoutMaxPassThrough: a quota without max of a dimension is not limited in it. Its children are, by
// what the next limited ancestor has.
func TestDimensionsWithoutMaxPassThrough(t *testing.T) {
	t.Parallel()
	f := quota.New(quota.Config{ScaleMin: true})
	f.Dimension("memory") // its id is the first, so that quotas with memory alone have nothing of cpu
	f.SetNodes(amount.List{cpu: 100})
	f.Set(leaf("top", "", 0, 60))
	f.Set(quota.Spec{Name: "open", Parent: "top", Max: amount.List{"memory": 1}})
	f.Set(leaf("c", "top", 0, 100))
	f.Add(f.Find("c"), quota.Request, f.Vector(amount.List{cpu: 200}))
	f.Reports() // divides while no quota below open limits the dimension
	f.Set(leaf("a", "open", 10, 100))
	f.Set(leaf("b", "open", 10, 100))
	d := f.Dimension(cpu)
	f.Add(f.Find("a"), quota.Request, f.Vector(amount.List{cpu: 5}))
	if got := f.Find("top").Amount(quota.Request, d); got != 105 {
		t.Errorf("request of the ancestor: %d, want the 100 that c passes and 5", got)
	}
	if _, limited := f.Runtime(f.Find("open"), d); limited {
		t.Error("a quota without max of a dimension is limited in it")
	}
	want := map[string]int64{"top": 60, "a": 5, "b": 0, "c": 60}
	if diff := cmp.Diff(want, runtimes(f, want)); diff != "" {
		t.Errorf("runtimes (-want +got):\n%s", diff)
	}
}

// TestMinsAreNotScaledBecauseTheParentLends: the parent has 35 because it asks for 35, and its min of 60 is not short.
//
// Q3: 8 GPUs are guaranteed, none is short, and the runtime is 7.
func TestMinsAreNotScaledBecauseTheParentLends(t *testing.T) {
	t.Parallel()
	for _, parent := range []amount.List{{cpu: 100}, {"memory": 1}} {
		f := quota.New(quota.Config{ScaleMin: true})
		f.SetNodes(amount.List{cpu: 100})
		plant(t, f, 1, "top 60/100 { open 60/100 { lender 30/100 [5] } }")
		f.Set(quota.Spec{Name: "open", Parent: "top", Min: amount.List{cpu: 60}, Max: parent})
		keeper := leaf("keeper", "open", 30, 100)
		keeper.KeepsMin = true
		f.Set(keeper)
		want := map[string]int64{"top": 35, "keeper": 30, "lender": 5}
		if diff := cmp.Diff(want, runtimes(f, want)); diff != "" {
			t.Errorf("runtimes, max of the parent %v (-want +got):\n%s", parent, diff)
		}
		exact, _ := f.Shares().Exact(f.Find("keeper"), f.Dimension(cpu))
		if got := exact.RatString(); got != "30" {
			t.Errorf("exact share of the keeper, max of the parent %v: %s, want 30", parent, got)
		}
	}
}

// TestEveryChangeOfASpecDividesAgain: each field that counts makes the set out of date in which it counts.
//
// Q2: a runtime is stale after a change of a quota.
func TestEveryChangeOfASpecDividesAgain(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*quota.Spec){
		"min":            func(s *quota.Spec) { s.Min = amount.List{cpu: 7} },
		"max":            func(s *quota.Spec) { s.Max = amount.List{cpu: 25} },
		"no max":         func(s *quota.Spec) { s.Max = nil },
		"weight":         func(s *quota.Spec) { s.Weight = amount.List{cpu: 500} },
		"lending":        func(s *quota.Spec) { s.KeepsMin = true },
		"scaling of min": func(s *quota.Spec) { s.FixedMin = true },
		"parent":         func(s *quota.Spec) { s.Parent = "D" },
		"another tree": func(s *quota.Spec) {
			s.IsRoot, s.Total = true, amount.List{cpu: 30}
		},
	} {
		for _, total := range []int64{50, 100} {
			for _, quotaName := range []string{"A", "C"} {
				t.Run(fmt.Sprintf("%s of %s with %d", name, quotaName, total), func(t *testing.T) {
					t.Parallel()
					f, rebuilt := quota.New(quota.Config{ScaleMin: true}), quota.New(quota.Config{ScaleMin: true})
					plant(t, f, 1, seedTree)
					f.SetNodes(amount.List{cpu: total})
					f.Reports()
					s := *f.Find(quotaName).Spec()
					change(&s)
					f.Set(s)
					plant(t, rebuilt, 1, seedTree)
					rebuilt.Set(s)
					rebuilt.SetNodes(amount.List{cpu: total})
					if diff := cmp.Diff(rebuilt.Reports(), f.Reports()); diff != "" {
						t.Errorf("changed against rebuilt (-want +got):\n%s", diff)
					}
					if f.Hash() != rebuilt.Hash() {
						t.Error("equal reports have different hashes")
					}
				})
			}
		}
	}
}

// TestUsageCountsInTiesAndWhereItIsGuaranteed: after everything was divided, what is used changes runtimes only there.
func TestUsageCountsInTiesAndWhereItIsGuaranteed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config      quota.Config
		tree        string
		total, used int64
		want, then  string
	}{
		"a tie of scaled mins": {
			quota.Config{ScaleMin: true}, "a 3/9 [3]  b 3/9 [3]", 5, 3, "a=3 b=2", "a=2 b=3",
		},
		"no tie": {
			quota.Config{ScaleMin: true}, "a 3/9 [3]  b 3/9 [3]", 4, 3, "a=2 b=2", "a=2 b=2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := quota.New(c.config)
			f.SetNodes(amount.List{cpu: c.total})
			plant(t, f, 1, c.tree)
			used := f.Vector(amount.List{cpu: c.used})
			for _, step := range []struct {
				change func(*quota.Quota, quota.Measure, quota.Vector)
				want   string
			}{{func(*quota.Quota, quota.Measure, quota.Vector) {}, c.want}, {f.Add, c.then}, {f.Subtract, c.want}} {
				step.change(f.Find("b"), quota.Used, used)
				want := amounts(t, 1, step.want)
				if diff := cmp.Diff(want, runtimes(f, want)); diff != "" {
					t.Errorf("runtimes (-want +got):\n%s", diff)
				}
			}
		})
	}
}
