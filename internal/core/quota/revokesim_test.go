package quota_test

import (
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
)

// grove is a random tree of quotas, with what its leaves ask for.
type grove struct {
	f      *quota.Forest
	cpu    quota.Dimension
	specs  []quota.Spec
	leaves []*quota.Quota
}

func drawnGrove(t *rapid.T) *grove {
	g := &grove{f: quota.New(quota.Config{ScaleMin: true})}
	g.cpu = g.f.Dimension(cpu)
	g.f.SetNodes(amount.List{cpu: rapid.Int64Range(0, 100).Draw(t, "total")})
	var parents []string
	for i := range rapid.IntRange(0, 3).Draw(t, "parents") {
		s := g.spec(t, fmt.Sprintf("p%d", i), parents)
		s.IsParent = true
		g.specs = append(g.specs, s)
		parents = append(parents, s.Name)
	}
	for i := range rapid.IntRange(2, 8).Draw(t, "leaves") {
		g.specs = append(g.specs, g.spec(t, fmt.Sprintf("l%d", i), parents))
	}
	for _, s := range g.specs {
		g.f.Set(s)
	}
	for _, s := range g.specs {
		if !s.IsParent {
			q := g.f.Find(s.Name)
			g.leaves = append(g.leaves, q)
			g.f.Add(q, quota.Request, g.amount(rapid.Int64Range(0, 60).Draw(t, "request")))
		}
	}
	return g
}

func (g *grove) spec(t *rapid.T, name string, parents []string) quota.Spec {
	ceiling := rapid.Int64Range(0, 60).Draw(t, "max")
	s := quota.Spec{
		Name: name, Max: amount.List{cpu: ceiling},
		Min:      amount.List{cpu: rapid.Int64Range(0, ceiling).Draw(t, "min")},
		KeepsMin: rapid.IntRange(0, 4).Draw(t, "keeps") == 0,
	}
	if rapid.Bool().Draw(t, "weighted") {
		s.Weight = amount.List{cpu: rapid.Int64Range(0, 5).Draw(t, "weight")}
	}
	if len(parents) > 0 {
		s.Parent = rapid.SampledFrom(append([]string{""}, parents...)).Draw(t, "parent")
	}
	return s
}

func (g *grove) amount(n int64) quota.Vector { return g.f.Vector(amount.List{cpu: n}) }

// claimants are pods of all leaves: which of them has a claim is not theirs to say.
func (g *grove) claimants() []quota.Claimant {
	var out []quota.Claimant
	for _, q := range g.leaves {
		out = append(out, quota.Claimant{Pod: q.Name(), Quota: q, Dimension: g.cpu})
	}
	return out
}

// change is one event that may shift shares between quotas.
func (g *grove) change(t *rapid.T) {
	q := rapid.SampledFrom(g.leaves).Draw(t, "changed")
	switch rapid.IntRange(0, 3).Draw(t, "change") {
	case 0:
		g.f.SetNodes(amount.List{cpu: rapid.Int64Range(0, 100).Draw(t, "new total")})
	case 1:
		g.f.Add(q, quota.Request, g.amount(rapid.Int64Range(1, 20).Draw(t, "more")))
	case 2:
		more := max(q.Amount(quota.Request, g.cpu)-q.Amount(quota.Used, g.cpu), 0)
		g.f.Subtract(q, quota.Request, g.amount(rapid.Int64Range(0, more).Draw(t, "less")))
	case 3:
		i := rapid.IntRange(0, len(g.specs)-1).Draw(t, "quota")
		s := g.spec(t, g.specs[i].Name, nil)
		s.Parent, s.IsParent = g.specs[i].Parent, g.specs[i].IsParent
		g.f.Set(s)
	}
}

// TestAChangeThatLeavesTheExactShareEvictsNoPod is R5.
func TestAChangeThatLeavesTheExactShareEvictsNoPod(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := drawnGrove(t)
		for _, q := range g.leaves {
			runtime, _ := g.f.Runtime(q, g.cpu)
			most := min(runtime, q.Amount(quota.Request, g.cpu))
			g.f.Add(q, quota.Used, g.amount(max(most-rapid.Int64Range(0, 3).Draw(t, "idle"), 0)))
		}
		before := g.exact()
		r := quota.NewRevoker(quota.OnDemand, 0, quota.Limits{})
		holders := func(q *quota.Quota) []quota.Holder {
			var out []quota.Holder
			for i := range q.Amount(quota.Used, g.cpu) {
				out = append(out, one(g.f, fmt.Sprint(i), 1))
			}
			return out
		}
		if plans := r.Plan(eleven, g.f, g.claimants, holders); len(plans) > 0 {
			t.Fatalf("%s gives back %s of what it was admitted to", plans[0].Donor.Name(), victims(plans[0]))
		}
		g.change(t)
		after := g.exact()
		for _, p := range r.Plan(eleven, g.f, g.claimants, holders) {
			name := p.Donor.Name()
			if after[name].Cmp(before[name]) >= 0 {
				t.Fatalf("%s gives back %s, %+v; its exact share was %v and is %v", name, victims(p), p.Levels,
					before[name], after[name])
			}
		}
		if plans := r.Plan(eleven, g.f, none, holders); len(plans) > 0 {
			t.Fatalf("%s gives back %s, and no pod waits", plans[0].Donor.Name(), victims(plans[0]))
		}
	})
}

func (g *grove) exact() map[string]*big.Rat {
	shares, out := g.f.Shares(), map[string]*big.Rat{}
	for _, q := range g.leaves {
		out[q.Name()], _ = shares.Exact(q, g.cpu)
	}
	return out
}

// TestRevocationEnds is R6: with fixed requests, each eviction brings use closer to the goals, there are no more of
// them than pods, with admissions in between, and no pod is evicted twice.
//
// Q16: evictions in turn that never end.
func TestRevocationEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := drawnGrove(t)
		running, pending := pods{}, pods{}
		n := 0
		for _, q := range g.leaves {
			left := q.Amount(quota.Request, g.cpu)
			for ; left > 0; n++ {
				size := min(rapid.Int64Range(1, 8).Draw(t, "size"), left)
				left -= size
				h := one(g.f, fmt.Sprintf("%s-%d", q.Name(), n), size)
				h.Priority = rapid.Int32Range(0, 3).Draw(t, "priority")
				if rapid.Bool().Draw(t, "runs") { // whatever the runtime: as a change of quotas leaves it
					running.run(g.f, q.Name(), h)
				} else {
					pending[q.Name()] = append(pending[q.Name()], h)
				}
			}
		}
		policy := rapid.SampledFrom([]quota.RevokePolicy{quota.OnDemand, quota.Strict}).Draw(t, "policy")
		r := quota.NewRevoker(policy, 0, quota.Limits{})
		gone := map[string]bool{}
		for range n + 1 {
			plans := r.Plan(eleven, g.f, g.claimants, running.holdersIn)
			if len(plans) == 0 {
				return
			}
			plan := plans[0]
			if len(plan.Victims) == 0 {
				t.Fatalf("%s: no victims for %+v", plan.Donor.Name(), plan.Levels)
			}
			name, victim := plan.Donor.Name(), *plan.Victims[0][0]
			if gone[victim.UID] {
				t.Fatalf("%s is evicted twice", victim.UID)
			}
			gone[victim.UID] = true
			// Use can decide a tie, and so shift a goal by a unit: Φ is compared over the goals that were planned with.
			goals := g.goals(policy)
			before := g.excess(goals)
			g.f.Subtract(g.f.Find(name), quota.Used, victim.Uses)
			if after := g.excess(goals); after >= before {
				t.Fatalf("%s goes for %+v: %d above the goals, %d before", victim.UID, plan.Levels, after, before)
			}
			running[name] = slices.DeleteFunc(running[name], func(h quota.Holder) bool { return h.UID == victim.UID })
			pending[name] = append(pending[name], victim)
			g.admit(running, pending)
		}
		t.Fatalf("%d pods, and no end", n)
	})
}

func (g *grove) goals(policy quota.RevokePolicy) map[string]int64 {
	shares, out := g.f.Shares(), map[string]int64{}
	for _, q := range g.leaves {
		out[q.Name()] = shares.Goal(q, g.cpu)
		if policy == quota.Strict {
			out[q.Name()], _ = g.f.Runtime(q, g.cpu)
		}
	}
	return out
}

// excess is Φ: how much is used above goals.
func (g *grove) excess(goals map[string]int64) (total int64) {
	for _, q := range g.leaves {
		total += max(q.Amount(quota.Used, g.cpu)-goals[q.Name()], 0)
	}
	return total
}

// admit starts what is within the runtime on its whole path.
func (g *grove) admit(running, pending pods) {
	for _, q := range g.leaves {
		var left []quota.Holder
		for _, h := range pending[q.Name()] {
			fits := true
			for n := q; n.Parent() != nil; n = n.Parent() {
				runtime, named := g.f.Runtime(n, g.cpu)
				fits = fits && (!named || n.Amount(quota.Used, g.cpu)+h.Uses[0].N <= runtime)
			}
			if fits {
				running.run(g.f, q.Name(), h)
			} else {
				left = append(left, h)
			}
		}
		pending[q.Name()] = left
	}
}

func TestANewRevokerKnowsOfNoOveruse(t *testing.T) {
	t.Parallel()
	f, p, claimants := story()
	for _, at := range []time.Time{eleven, eleven.Add(time.Hour)} {
		plans := quota.NewRevoker(quota.OnDemand, delay, quota.Limits{}).Plan(at, f, these(claimants), p.holdersIn)
		if len(plans) != 1 || !plans[0].Due.Equal(at.Add(delay)) {
			t.Errorf("plans of a new leader = %+v, want one that is due after the delay", plans)
		}
	}
}
