package quota_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/quota"
)

func leaf(name, parent string, least, most int64) quota.Spec {
	return quota.Spec{Name: name, Parent: parent, Min: quota.Amounts{cpu: least}, Max: quota.Amounts{cpu: most}}
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
				Name: "a", Min: quota.Amounts{cpu: -1}, Max: quota.Amounts{cpu: -2}, Weight: quota.Amounts{cpu: -3},
			}},
			[]string{
				`quota "a": max of cpu is -2, must not be negative; 0 counts`,
				`quota "a": min of cpu is -1, must not be negative; 0 counts`,
				`quota "a": weight of cpu is -3, must not be negative; 0 counts`,
			},
			map[string]string{"a": quota.Root},
		},
		"min and weight of a dimension without max": {
			[]quota.Spec{{Name: "a", Min: quota.Amounts{cpu: 1}, Weight: quota.Amounts{"memory": 1}}},
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
			var got []string
			for _, p := range f.Problems() {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
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
	count := func(problems []quota.Problem) (n int) {
		for range problems {
			n++
		}
		return n
	}
	if got := count(f.Set(leaf("b", "a", 1, 10))); got != 1 {
		t.Errorf("a child before its parent: %d problems, want 1", got)
	}
	if got := count(f.Set(leaf("a", "", 1, 10))); got != 0 || f.Find("b").Parent() != f.Find("a") {
		t.Errorf("the parent comes: %d problems, child under %s", got, f.Find("b").Parent().Name())
	}
	if got := count(f.Set(leaf("a", "b", 1, 10))); got != 2 {
		t.Errorf("a cycle of two: %d problems, want 2", got)
	}
	if got := count(f.Set(leaf("a", "", 1, 10))); got != 0 || f.Find("b").Parent() != f.Find("a") {
		t.Errorf("the cycle ends: %d problems, child under %s", got, f.Find("b").Parent().Name())
	}
	if got := count(f.Remove("a")); got != 1 || f.Find("b").Parent() != f.Find(quota.Root) {
		t.Errorf("the parent goes: %d problems, child under %s", got, f.Find("b").Parent().Name())
	}
}

// TestTotalOfTheDefaultTreeIsTakenOffOnce: what System and Default use and what extra trees have is not in it, and it
// is never below 0.
func TestTotalOfTheDefaultTreeIsTakenOffOnce(t *testing.T) {
	t.Parallel()
	f := quota.New(quota.Config{ScaleMin: true})
	d := f.Dimension(cpu)
	total := func() int64 {
		n, _ := f.Runtime(f.Find(quota.Root), d)
		return n
	}
	amount := func(n int64) quota.Vector { return f.Vector(quota.Amounts{cpu: n}) }
	check := func(what string, want int64) {
		t.Helper()
		if got := total(); got != want {
			t.Errorf("%s: total %d, want %d", what, got, want)
		}
	}
	f.SetNodes(quota.Amounts{cpu: 100})
	check("nodes", 100)
	f.Add(f.Find(quota.System), quota.Used, amount(10))
	f.Add(f.Find(quota.Default), quota.Used, amount(5))
	check("system and default pods", 85)
	top := quota.Spec{
		Name: "gpu-root", Tree: "gpu", IsRoot: true, IsParent: true,
		Max: quota.Amounts{cpu: 30}, Total: quota.Amounts{cpu: 30},
	}
	f.Set(top)
	f.Set(leaf("gpu-a", "gpu-root", 10, 40))
	f.Add(f.Find("gpu-a"), quota.Request, amount(50))
	check("an extra tree", 55)
	if got, _ := f.Runtime(f.Find("gpu-a"), d); got != 30 {
		t.Errorf("the only child of the extra tree: runtime %d, want 30", got)
	}
	top.IgnoreDefaultTree = true
	f.Set(top)
	check("an extra tree that does not count", 85)
	top.IgnoreDefaultTree, top.Total = false, quota.Amounts{cpu: 1000}
	f.Set(top)
	check("an extra tree larger than the cluster", 0)
	f.Remove("gpu-root")
	check("without the extra tree", 85)
	f.Subtract(f.Find(quota.System), quota.Used, amount(10))
	check("without system pods", 95)
	f.Add(f.Find("gpu-a"), quota.Used, amount(7))
	f.Remove("gpu-a")
	check("pods of a removed quota use Default", 88)
	f.SetNodes(nil)
	check("no nodes", 0)
}

// TestRemovedQuotasMeanDefault: a handle that is older than a removal still takes back what it added.
func TestRemovedQuotasMeanDefault(t *testing.T) {
	t.Parallel()
	f := quota.New(quota.Config{ScaleMin: true, DefaultMax: quota.Amounts{cpu: 3}})
	d, five := f.Dimension(cpu), f.Vector(quota.Amounts{cpu: 5})
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
	f.SetNodes(quota.Amounts{cpu: 100})
	f.Set(leaf("top", "", 0, 60))
	f.Set(quota.Spec{Name: "open", Parent: "top", Max: quota.Amounts{"memory": 1}})
	f.Set(leaf("a", "open", 10, 100))
	f.Set(leaf("b", "open", 10, 100))
	f.Set(leaf("c", "top", 0, 100))
	d := f.Dimension(cpu)
	f.Add(f.Find("a"), quota.Request, f.Vector(quota.Amounts{cpu: 200}))
	f.Add(f.Find("c"), quota.Request, f.Vector(quota.Amounts{cpu: 7}))
	if got := f.Find("top").Amount(quota.Request, d); got != 107 {
		t.Errorf("request of the ancestor: %d, want the 100 that a passes and 7", got)
	}
	if _, limited := f.Runtime(f.Find("open"), d); limited {
		t.Error("a quota without max of a dimension is limited in it")
	}
	want := map[string]int64{"top": 60, "a": 60, "b": 0, "c": 7}
	if diff := cmp.Diff(want, runtimes(f, want)); diff != "" {
		t.Errorf("runtimes (-want +got):\n%s", diff)
	}
}
