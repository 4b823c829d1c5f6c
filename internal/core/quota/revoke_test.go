package quota_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

var eleven = time.Date(2026, 1, 2, 11, 0, 0, 0, time.UTC)

const delay = 2 * time.Minute

// pods are the holders of quotas, by name of the quota.
type pods map[string][]quota.Holder

func (p pods) holdersIn(q *quota.Quota) []quota.Holder { return p[q.Name()] }

// run counts what a quota's holders use.
func (p pods) run(f *quota.Forest, name string, holders ...quota.Holder) {
	for _, h := range holders {
		f.Add(f.Find(name), quota.Used, h.Uses)
		p[name] = append(p[name], h)
	}
}

// these are the pods that wait.
func these(claimants []quota.Claimant) func() []quota.Claimant {
	return func() []quota.Claimant { return claimants }
}

func none() []quota.Claimant { return nil }

// one is a pod that uses n of cpu.
func one(f *quota.Forest, id string, n int64, change ...func(*quota.Holder)) quota.Holder {
	h := quota.Holder{Member: quota.Member{Uses: f.Vector(amount.List{cpu: n})}}
	h.UID, h.Start = id, eleven.Add(-time.Hour)
	for _, c := range change {
		c(&h)
	}
	return h
}

// victims prints who goes, a gang in brackets.
func victims(r quota.Revocation) string {
	var words []string
	for _, unit := range r.Victims {
		var ids []string
		for _, h := range unit {
			ids = append(ids, h.UID)
		}
		word := strings.Join(ids, "+")
		if len(unit) > 1 {
			word = "(" + word + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func kept(r quota.Revocation) string {
	var words []string
	for _, k := range r.Kept {
		words = append(words, k.Pod.UID+"="+string(k.Why))
	}
	return strings.Join(words, " ")
}

// story is T5: at 10:00 A asks for 100 and gets it, at 11:00 B does.
func story() (*quota.Forest, pods, []quota.Claimant) {
	f := quota.New(quota.Config{ScaleMin: true})
	f.SetNodes(amount.List{cpu: 100})
	for _, name := range []string{"A", "B"} {
		f.Set(quota.Spec{Name: name, Min: amount.List{cpu: 50}, Max: amount.List{cpu: 100}})
		f.Add(f.Find(name), quota.Request, f.Vector(amount.List{cpu: 100}))
	}
	p := pods{}
	for i := range 10 {
		p.run(f, "A", one(f, fmt.Sprintf("a%d", i), 10, func(h *quota.Holder) {
			h.Start = h.Start.Add(time.Duration(i) * time.Minute)
		}))
	}
	return f, p, []quota.Claimant{{Pod: "b0", Quota: f.Find("B"), Dimension: f.Dimension(cpu)}}
}

func TestTheBorrowerReleasesExactlyWhatItsOwnerAsksFor(t *testing.T) {
	t.Parallel()
	f, p, claimants := story()
	r := quota.NewRevoker(quota.OnDemand, delay, quota.Limits{})
	if plans := r.Plan(eleven, f, none, p.holdersIn); len(plans) > 0 {
		t.Fatalf("without a claimant: %v", plans)
	}
	plans := r.Plan(eleven.Add(time.Minute), f, these(claimants), p.holdersIn)
	if len(plans) != 1 {
		t.Fatalf("plans = %v, want one", plans)
	}
	plan := plans[0]
	if plan.Donor.Name() != "A" || plan.Claimant.Pod != "b0" || !plan.Due.Equal(eleven.Add(delay)) {
		t.Errorf("%s gives back to %s at %v", plan.Donor.Name(), plan.Claimant.Pod, plan.Due)
	}
	want := []quota.Level{{Dimension: f.Dimension(cpu), Used: 100, Goal: 50, After: 50}}
	if diff := cmp.Diff(want, plan.Levels); diff != "" {
		t.Errorf("levels (-want +got):\n%s", diff)
	}
	if got := victims(plan); got != "a9 a8 a7 a6 a5" {
		t.Errorf("victims = %s, want the five that started last, the last one first", got)
	}
	if len(plan.Kept) > 0 {
		t.Errorf("kept = %s", kept(plan))
	}
}

func TestADonorIsOneWithoutABreak(t *testing.T) {
	t.Parallel()
	f, p, claimants := story()
	r := quota.NewRevoker(quota.OnDemand, delay, quota.Limits{})
	due := func(at time.Time) time.Time {
		plans := r.Plan(at, f, these(claimants), p.holdersIn)
		if len(plans) != 1 {
			t.Fatalf("%d plans at %v", len(plans), at)
		}
		return plans[0].Due
	}
	due(eleven)
	half := f.Vector(amount.List{cpu: 50})
	f.Subtract(f.Find("A"), quota.Used, half)
	if plans := r.Plan(eleven.Add(time.Minute), f, these(claimants), p.holdersIn); len(plans) > 0 {
		t.Errorf("at its goal A gives back %v", plans)
	}
	f.Add(f.Find("A"), quota.Used, half)
	again := eleven.Add(90 * time.Second)
	if got := due(again); !got.Equal(again.Add(delay)) {
		t.Errorf("due at %v, want the delay after %v", got, again)
	}
	if got := due(again.Add(time.Hour)); !got.Equal(again.Add(delay)) {
		t.Errorf("due at %v, want the delay after %v", got, again)
	}
}

func TestWhoIsAClaimant(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(f *quota.Forest, c *quota.Claimant)
		want   bool
	}{
		"a pod that the nodes lack room for": {func(*quota.Forest, *quota.Claimant) {}, true},
		"a pod rejected by a limit above donor and claimant": {func(f *quota.Forest, c *quota.Claimant) {
			c.Level = f.Find(quota.Root)
		}, true},
		"a pod that its own quota rejected": {func(_ *quota.Forest, c *quota.Claimant) { c.Level = c.Quota }, false},
		"a pod of the donor": {
			func(f *quota.Forest, c *quota.Claimant) { c.Quota = f.Find("A") }, false,
		},
		"a pod that waits for something of which the donor has no more than its goal": {
			func(f *quota.Forest, c *quota.Claimant) { c.Dimension = f.Dimension("gpu") }, false,
		},
		"a quota whose requests are met": {func(f *quota.Forest, c *quota.Claimant) {
			f.Subtract(c.Quota, quota.Request, f.Vector(amount.List{cpu: 100}))
		}, false},
		"a quota that has its exact share": {func(f *quota.Forest, c *quota.Claimant) {
			f.Add(c.Quota, quota.Used, f.Vector(amount.List{cpu: 50}))
		}, false},
		"a quota a unit below its exact share": {func(f *quota.Forest, c *quota.Claimant) {
			f.Add(c.Quota, quota.Used, f.Vector(amount.List{cpu: 49}))
		}, true},
		"a quota of another tree": {func(f *quota.Forest, c *quota.Claimant) {
			all := amount.List{cpu: 100}
			f.Set(quota.Spec{
				Name: "other", IsRoot: true, Tree: "t", Total: all, Max: all, IgnoreDefaultTree: true, IsParent: true,
			})
			f.Set(quota.Spec{Name: "C", Parent: "other", Tree: "t", Min: all, Max: all})
			f.Add(f.Find("C"), quota.Request, f.Vector(all))
			c.Quota = f.Find("C")
		}, false},
		"the default quota, which is guaranteed nothing": {func(f *quota.Forest, c *quota.Claimant) {
			f.Set(quota.Spec{Name: quota.Default, Max: amount.List{cpu: 100}})
			f.Add(f.Find(quota.Default), quota.Request, f.Vector(amount.List{cpu: 100}))
			c.Quota = f.Find(quota.Default)
		}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, p, claimants := story()
			tt.change(f, &claimants[0])
			plans := quota.NewRevoker(quota.OnDemand, 0, quota.Limits{}).Plan(eleven, f, these(claimants), p.holdersIn)
			if got := len(plans) == 1; got != tt.want {
				t.Errorf("revokes = %v, want %v", got, tt.want)
			}
		})
	}
}

// Q8: a budget is ignored. Q9: a victim that uses CPUs alone hides that too many GPUs are used.
func TestVictims(t *testing.T) {
	t.Parallel()
	const gpu = "gpu"
	urgent := func(h *quota.Holder) { h.Priority = 100 }
	fixed := func(h *quota.Holder) { h.NonPreemptible = true }
	late := func(h *quota.Holder) { h.Start = eleven }
	leaving := func(h *quota.Holder) { h.Leaving = true }
	budget := func(b ...*gang.Budget) func(*quota.Holder) { return func(h *quota.Holder) { h.Budgets = b } }
	member := func(g *quota.Gang) func(*quota.Holder) { return func(h *quota.Holder) { h.Gang = g } }
	tests := map[string]struct {
		run        func(f *quota.Forest) []quota.Holder // in a quota that may use 10 CPUs and 2 GPUs
		limits     quota.Limits
		want, kept string
	}{
		"the lowest priority goes first, whoever started last": {
			run: func(f *quota.Forest) []quota.Holder {
				return []quota.Holder{one(f, "a", 10, urgent, late), one(f, "b", 10)}
			},
			want: "b",
		},
		"what is not needed is given back from high to low": {
			run: func(f *quota.Forest) []quota.Holder {
				return []quota.Holder{one(f, "a", 1), one(f, "b", 2, late), one(f, "c", 9, urgent)}
			},
			want: "b",
		},
		"a low pod stays where a higher one must go and is enough": {
			run: func(f *quota.Forest) []quota.Holder {
				return []quota.Holder{one(f, "a", 1), one(f, "b", 14, urgent)}
			},
			want: "b",
		},
		"a pod that uses CPUs alone does not hide the GPUs": {
			run: func(f *quota.Forest) []quota.Holder {
				both := one(f, "g", 1, urgent)
				both.Uses = f.Vector(amount.List{cpu: 1, gpu: 4})
				return []quota.Holder{one(f, "a", 12), both}
			},
			want: "a g",
		},
		"non-preemptible pods are not evicted": {
			run: func(f *quota.Forest) []quota.Holder {
				return []quota.Holder{one(f, "a", 8, fixed), one(f, "b", 5, fixed), one(f, "c", 1)}
			},
			want: "c", kept: "a=NonPreemptible b=NonPreemptible",
		},
		"a Reservation is not evicted": {
			run: func(f *quota.Forest) []quota.Holder {
				return []quota.Holder{one(f, "a", 12, func(h *quota.Holder) { h.Room = true }), one(f, "b", 1)}
			},
			want: "b", kept: "a=Reservation",
		},
		"a budget that is exhausted excludes its pods": {
			run: func(f *quota.Forest) []quota.Holder {
				none := budget(&gang.Budget{})
				return []quota.Holder{one(f, "a", 6, none), one(f, "b", 6, urgent)}
			},
			want: "b",
		},
		"a budget is charged for every victim": {
			run: func(f *quota.Forest) []quota.Holder {
				b := budget(&gang.Budget{Allowed: 1})
				return []quota.Holder{one(f, "a", 6, b), one(f, "b", 6, b), one(f, "c", 6, b)}
			},
			want: "a", kept: "b=BudgetExhausted c=BudgetExhausted",
		},
		"a unit given back leaves its budget to another": {
			run: func(f *quota.Forest) []quota.Holder {
				b := budget(&gang.Budget{Allowed: 1})
				big := one(f, "z", 1, b, urgent)
				big.Uses = f.Vector(amount.List{gpu: 4})
				return []quota.Holder{one(f, "a", 1, b), one(f, "m", 11), big}
			},
			want: "m z",
		},
		"a pod of two budgets stays": {
			run: func(f *quota.Forest) []quota.Holder {
				two := budget(&gang.Budget{Allowed: 9}, &gang.Budget{Allowed: 9})
				return []quota.Holder{one(f, "a", 6, two), one(f, "b", 6, urgent)}
			},
			want: "b",
		},
		"what leaves already counts as given back": {
			run: func(f *quota.Forest) []quota.Holder {
				return []quota.Holder{one(f, "a", 5, leaving), one(f, "b", 5), one(f, "c", 5)}
			},
		},
		"members above min go one by one, the last ones first": {
			run: func(f *quota.Forest) []quota.Holder {
				g := member(&quota.Gang{Bond: gang.Bond{Least: 2}, Bound: 4})
				return []quota.Holder{one(f, "a", 4, g), one(f, "b", 4, g), one(f, "c", 4, g, late), one(f, "d", 2, g)}
			},
			want: "c",
		},
		"a gang at its min goes whole": {
			run: func(f *quota.Forest) []quota.Holder {
				g := member(&quota.Gang{Bond: gang.Bond{Least: 3}, Bound: 3})
				return []quota.Holder{one(f, "a", 4, g), one(f, "b", 4, g), one(f, "c", 4, g), one(f, "d", 1, urgent)}
			},
			want: "(a+b+c)",
		},
		"a gang goes whole with its members above min": {
			run: func(f *quota.Forest) []quota.Holder {
				g := member(&quota.Gang{Bond: gang.Bond{Least: 2}, Bound: 3})
				return []quota.Holder{
					one(f, "a", 4, g), one(f, "b", 4, g), one(f, "c", 1, g, late), one(f, "d", 4, fixed),
				}
			},
			want: "(c+a+b)",
		},
		"the rest of a gang that lost members goes whole": {
			run: func(f *quota.Forest) []quota.Holder {
				g := member(&quota.Gang{Bond: gang.Bond{Least: 3}, Bound: 2})
				return []quota.Holder{
					one(f, "a", 4, g), one(f, "b", 4, g), one(f, "c", 1, g, leaving), one(f, "d", 4, urgent),
				}
			},
			want: "(a+b)",
		},
		"a gang with members in another quota stays at min": {
			run: func(f *quota.Forest) []quota.Holder {
				g := member(&quota.Gang{Bond: gang.Bond{Least: 2}, Bound: 3})
				return []quota.Holder{one(f, "a", 8, g), one(f, "b", 8, g)}
			},
			want: "a", kept: "",
		},
		"a gang with a member that may not be evicted does not fall below min": {
			run: func(f *quota.Forest) []quota.Holder {
				g := member(&quota.Gang{Bond: gang.Bond{Least: 2}, Bound: 2})
				return []quota.Holder{one(f, "a", 4, g), one(f, "b", 4, g, fixed), one(f, "c", 4, urgent)}
			},
			want: "c",
		},
		"a gang of members elsewhere alone is named": {
			run: func(f *quota.Forest) []quota.Holder {
				g := member(&quota.Gang{Bond: gang.Bond{Least: 3}, Bound: 3})
				return []quota.Holder{one(f, "a", 6, g), one(f, "b", 6, g)}
			},
			kept: "a=GangElsewhere b=GangElsewhere",
		},
		"gangs that start together go together, with their members above min": {
			run: func(f *quota.Forest) []quota.Holder {
				a, b := &quota.Gang{
					Bond:  gang.Bond{Least: 2},
					Bound: 2,
				}, &quota.Gang{
					Bond:  gang.Bond{Least: 1},
					Bound: 2,
				}
				a.Group = []*quota.Gang{a, b}
				b.Group = a.Group
				return []quota.Holder{
					one(f, "a", 4, member(a)), one(f, "b", 4, member(a)), one(f, "c", 1, member(b), late),
					one(f, "d", 1, member(b)), one(f, "e", 4, fixed),
				}
			},
			want: "(c+a+b+d)",
		},
		"a gang with one in another quota keeps those that start with it": {
			run: func(f *quota.Forest) []quota.Holder {
				a, b := &quota.Gang{
					Bond:  gang.Bond{Least: 2},
					Bound: 2,
				}, &quota.Gang{
					Bond:  gang.Bond{Least: 1},
					Bound: 1,
				}
				a.Group = []*quota.Gang{b, a}
				return []quota.Holder{one(f, "a", 6, member(a)), one(f, "b", 6, member(a))}
			},
			kept: "a=GangElsewhere b=GangElsewhere",
		},
		"a gang larger than the limit is named": {
			run: func(f *quota.Forest) []quota.Holder {
				g := member(&quota.Gang{Bond: gang.Bond{Least: 2}, Bound: 2})
				return []quota.Holder{one(f, "a", 6, g), one(f, "b", 6, g)}
			},
			limits: quota.Limits{PerQuota: 5, PerMinute: 1},
			kept:   "a=GangAboveLimit b=GangAboveLimit",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := quota.New(quota.Config{ScaleMin: true})
			limit := amount.List{cpu: 10, gpu: 2}
			f.SetNodes(limit)
			f.Set(quota.Spec{Name: "q", Max: amount.List{cpu: 1000, gpu: 1000}})
			f.Add(f.Find("q"), quota.Request, f.Vector(amount.List{cpu: 1000, gpu: 1000}))
			p := pods{}
			p.run(f, "q", tt.run(f)...)
			plans := quota.NewRevoker(quota.Strict, 0, tt.limits).Plan(eleven, f, none, p.holdersIn)
			if len(plans) != 1 {
				t.Fatalf("%d plans, want 1", len(plans))
			}
			if got := victims(plans[0]); got != tt.want {
				t.Errorf("victims = %q, want %q", got, tt.want)
			}
			if got := kept(plans[0]); got != tt.kept {
				t.Errorf("kept = %q, want %q", got, tt.kept)
			}
		})
	}
}

// Q22: a storm of evictions.
func TestLimitsHoldInEveryMinute(t *testing.T) {
	t.Parallel()
	r := quota.NewRevoker(quota.OnDemand, 0, quota.Limits{PerQuota: 2, PerMinute: 3})
	const a, b = "A", "B"
	for i, step := range []struct {
		at    time.Duration
		donor string
		pods  int
		want  bool
	}{
		{0, a, 3, false}, // more than its limit
		{0, a, 1, true},
		{30 * time.Second, a, 1, true},
		{31 * time.Second, a, 1, false},
		{31 * time.Second, b, 2, false}, // more than all may
		{32 * time.Second, b, 1, true},
		{59 * time.Second, a, 1, false},
		{60 * time.Second, a, 1, true}, // the first one is a minute ago
		{60 * time.Second, b, 1, false},
	} {
		if got := r.Admit(eleven.Add(step.at), step.donor, step.pods); got != step.want {
			t.Errorf("step %d: admits %+v: %v, want %v", i, step, got, step.want)
		}
	}
}

// drawn is up to eight pods of one quota, with gangs and budgets.
func drawn(t *rapid.T, f *quota.Forest, dimensions []string, budgets int) []quota.Holder {
	var gangs []*quota.Gang
	for range rapid.IntRange(0, 2).Draw(t, "gangs") {
		gangs = append(gangs, &quota.Gang{Bond: gang.Bond{
			Least: rapid.IntRange(0, 4).Draw(t, "min"), Plain: rapid.IntRange(0, 7).Draw(t, "plain") == 0,
			Whole: rapid.IntRange(0, 7).Draw(t, "whole") == 0,
		}})
	}
	if len(gangs) == 2 && rapid.Bool().Draw(t, "start together") {
		gangs[0].Group, gangs[1].Group = gangs, gangs
	}
	var all []*gang.Budget
	for range budgets {
		all = append(all, &gang.Budget{Allowed: rapid.IntRange(0, 3).Draw(t, "allowed")})
	}
	var holders []quota.Holder
	for i := range rapid.IntRange(1, 8).Draw(t, "pods") {
		uses := amount.List{}
		for _, d := range dimensions {
			uses[d] = rapid.Int64Range(0, 6).Draw(t, d)
		}
		h := quota.Holder{Member: quota.Member{Uses: f.Vector(uses), Pod: quota.Pod{
			UID: fmt.Sprint(i), Priority: rapid.Int32Range(0, 2).Draw(t, "priority"),
			Start:          eleven.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "start")) * time.Second),
			NonPreemptible: rapid.IntRange(0, 5).Draw(t, "fixed") == 0,
			Leaving:        rapid.IntRange(0, 7).Draw(t, "leaving") == 0,
		}}}
		if g := rapid.IntRange(-2, len(gangs)-1).Draw(t, "gang"); g >= 0 {
			h.Gang = gangs[g]
			if !h.Leaving {
				h.Gang.Bound++
			}
		}
		for range min(rapid.IntRange(0, 2).Draw(t, "budgets"), len(all)) {
			if b := all[rapid.IntRange(0, len(all)-1).Draw(t, "budget")]; !slices.Contains(h.Budgets, b) {
				h.Budgets = append(h.Budgets, b)
			}
		}
		holders = append(holders, h)
	}
	return holders
}

// allowed says whether a set of victims keeps every rule on pods.
func allowed(holders []quota.Holder, set map[string]bool) bool {
	gone, here, charged := map[*quota.Gang]int{}, map[*quota.Gang]int{}, map[*gang.Budget]int{}
	for _, h := range holders {
		if h.Gang != nil && !h.Leaving {
			here[h.Gang]++
		}
		if !set[h.UID] {
			continue
		}
		if h.NonPreemptible || h.Leaving || len(h.Budgets) > 1 {
			return false
		}
		if h.Gang != nil {
			gone[h.Gang]++
		}
		for _, b := range h.Budgets {
			if charged[b]++; charged[b] > b.Allowed {
				return false
			}
		}
	}
	for g, n := range gone {
		if keeps(g, n) {
			continue
		}
		for _, o := range together(g) {
			if gone[o] < here[o] {
				return false
			}
		}
	}
	return true
}

// keeps says whether a gang may lose so many members and keep the others.
func keeps(g *quota.Gang, lost int) bool {
	return lost == 0 || !g.Whole && (g.Plain || g.Least > 0 && g.Bound-lost >= g.Least)
}

func together(g *quota.Gang) []*quota.Gang {
	if g.Group != nil {
		return g.Group
	}
	return []*quota.Gang{g}
}

// reaches says whether all levels are as low without the victims as those that are wanted.
func reaches(holders []quota.Holder, levels []quota.Level, set map[string]bool, wanted func(quota.Level) int64) bool {
	for _, l := range levels {
		left := l.Used
		for _, h := range holders {
			for _, a := range h.Uses {
				if set[h.UID] && a.Dimension == l.Dimension {
					left -= a.N
				}
			}
		}
		if left > wanted(l) {
			return false
		}
	}
	return true
}

// TestNoVictimCanBePutBack is R1, R2 and R4 against all subsets.
//
// Q10: a pod is a victim twice. Q20: ten pods go where one is enough.
func TestNoVictimCanBePutBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := quota.New(quota.Config{})
		dimensions := []string{cpu, "gpu"}
		limit, ceiling := amount.List{}, amount.List{cpu: 1000, "gpu": 1000}
		for _, d := range dimensions {
			limit[d] = rapid.Int64Range(0, 12).Draw(t, "limit")
		}
		f.SetNodes(limit)
		f.Set(quota.Spec{Name: "q", Max: ceiling})
		f.Add(f.Find("q"), quota.Request, f.Vector(ceiling))
		budgets := rapid.IntRange(0, 2).Draw(t, "number of budgets")
		holders := drawn(t, f, dimensions, budgets)
		p := pods{}
		p.run(f, "q", holders...)
		plans := quota.NewRevoker(quota.Strict, 0, quota.Limits{}).Plan(eleven, f, none, p.holdersIn)
		if len(plans) == 0 {
			return
		}
		plan := plans[0]
		set := map[string]bool{}
		var ids []string
		for _, unit := range plan.Victims {
			for _, h := range unit {
				if set[h.UID] {
					t.Fatalf("%s is a victim twice", h.UID)
				}
				set[h.UID] = true
				ids = append(ids, h.UID)
			}
		}
		if !allowed(holders, set) {
			t.Fatalf("victims %v break a rule on pods", ids)
		}
		after := func(l quota.Level) int64 { return max(l.Goal, l.After) }
		goal := func(l quota.Level) int64 { return l.Goal }
		if !reaches(holders, plan.Levels, set, after) {
			t.Fatalf("victims %v do not reach %v", ids, plan.Levels)
		}
		// Where only some members of a gang may go, those that go are the first in order, whatever they use.
		choice := slices.ContainsFunc(holders, func(h quota.Holder) bool {
			return h.Gang != nil && keeps(h.Gang, 1)
		})
		reached := reaches(holders, plan.Levels, set, goal)
		if reached == (len(plan.Kept) > 0) {
			t.Fatalf("reaches the goals: %v, kept: %s", reached, kept(plan))
		}
		for bits := range 1 << len(holders) {
			other, smaller := map[string]bool{}, bits != 0
			for i, h := range holders {
				if bits>>i&1 == 1 {
					other[h.UID] = true
					smaller = smaller && set[h.UID]
				}
			}
			if budgets == 0 && !choice && !reached && allowed(holders, other) &&
				reaches(holders, plan.Levels, other, goal) {
				t.Fatalf("%v reaches the goals %v, victims %v do not", other, plan.Levels, ids)
			}
			if smaller = smaller && len(other) < len(set); smaller && isWhole(holders, set, other) &&
				allowed(holders, other) && reaches(holders, plan.Levels, other, after) {
				t.Fatalf("%v are enough of %v for %v", other, ids, plan.Levels)
			}
		}
	})
}

// isWhole says whether a smaller set has, of each gang that goes whole, all members or none.
func isWhole(holders []quota.Holder, set, smaller map[string]bool) bool {
	for _, h := range holders {
		if h.Gang == nil || !set[h.UID] {
			continue
		}
		gone, all, still := 0, 0, 0
		for _, o := range holders {
			if o.Gang == h.Gang && set[o.UID] {
				gone++
			}
			if o.Gang != nil && slices.Contains(together(h.Gang), o.Gang) && set[o.UID] {
				all++
				if smaller[o.UID] {
					still++
				}
			}
		}
		if !keeps(h.Gang, gone) && still > 0 && still < all {
			return false
		}
	}
	return true
}

// TestAHigherPodGoesOnlyWhereAllLowerOnesAreNotEnough is R3.
func TestAHigherPodGoesOnlyWhereAllLowerOnesAreNotEnough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := quota.New(quota.Config{})
		f.SetNodes(amount.List{cpu: rapid.Int64Range(0, 12).Draw(t, "limit")})
		f.Set(quota.Spec{Name: "q", Max: amount.List{cpu: 1000}})
		f.Add(f.Find("q"), quota.Request, f.Vector(amount.List{cpu: 1000}))
		holders := drawn(t, f, []string{cpu}, 0)
		for i := range holders {
			holders[i].Gang = nil
		}
		p := pods{}
		p.run(f, "q", holders...)
		for _, plan := range quota.NewRevoker(quota.Strict, 0, quota.Limits{}).Plan(eleven, f, none, p.holdersIn) {
			for _, unit := range plan.Victims {
				lower := map[string]bool{}
				for _, h := range holders {
					lower[h.UID] = !h.NonPreemptible && !h.Leaving && h.Priority < unit[0].Priority
				}
				if reaches(holders, plan.Levels, lower, func(l quota.Level) int64 { return l.Goal }) {
					t.Fatalf("%s goes, and %v would be enough", unit[0].UID, lower)
				}
			}
		}
	})
}
