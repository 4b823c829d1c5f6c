package quota

import (
	"maps"
	"slices"
	"time"

	"github.com/tenon-project/tenon/internal/core/gang"
)

// RevokePolicy is when what a quota uses above its share is taken back.
type RevokePolicy int

const (
	// OnDemand revokes what is above Shares.Goal, while a pod of another quota waits for it.
	OnDemand RevokePolicy = iota
	// Strict revokes what is above runtime, whether or not a pod waits for it.
	Strict
)

// Holder is a pod that is reserved or bound, as revocation sees it. What the pod uses does not count while it is being
// deleted.
type Holder struct {
	Member
	Gang    *Gang          // nil where the pod is in none
	Budgets []*gang.Budget // that count the pod
}

// Gang is the members of a gang that hold what they ask for and are not leaving.
type Gang struct {
	gang.Bond
	Bound int // the members, in all quotas
	// Group is the gangs none of which runs without the others, this one among them; nil where it is alone.
	Group []*Gang
}

// Claimant is a pending pod that its last scheduling cycle rejected for lack of a dimension.
type Claimant struct {
	Pod       string
	Quota     *Quota
	Dimension Dimension
	// Level is the quota whose limit rejected the pod; nil where the nodes lack the resource.
	Level *Quota
}

// Revocation is what is taken back from one quota.
type Revocation struct {
	Donor *Quota
	// Due is when the quota will have used more than its goal for the whole delay. No victim goes before.
	Due time.Time
	// Claimant waits for it: nil with Strict.
	Claimant *Claimant
	// Levels are the dimensions in which the quota uses more than its goal.
	Levels []Level
	// Victims are in the order in which they go. The pods of one element, a gang, go together or not at all. Without
	// any one element a level would remain above its goal, or further above it.
	Victims [][]*Holder
	// Kept says, where a level remains above its goal, why each other pod that uses the dimension stays.
	Kept []Kept
}

// Level is a quota in one dimension: what it uses, without leaving pods, before and after the revocation.
type Level struct {
	Dimension         Dimension
	Used, Goal, After int64
}

// Kept is a pod that cannot be revoked.
type Kept struct {
	Pod *Holder
	Why Obstacle
}

// Limits are the most pods that are evicted in any minute: of one quota, and of all. 0 means unlimited.
type Limits struct{ PerQuota, PerMinute int }

// Revoker decides what is taken back from which quota. It remembers since when quotas use more than their goal, and the
// evictions of the last minute; a new one knows of neither.
type Revoker struct {
	policy RevokePolicy
	delay  time.Duration
	limits Limits

	since   map[*Quota]time.Time
	evicted []eviction // ascending time
}

// eviction is one pod that was evicted. donor is the name of the quota that gave it up, as the quota used too much.
type eviction struct {
	at    time.Time
	donor string
}

// NewRevoker returns a Revoker that takes back what was used too much for the whole delay.
func NewRevoker(policy RevokePolicy, delay time.Duration, limits Limits) *Revoker {
	return &Revoker{policy: policy, delay: delay, limits: limits}
}

// Plan returns the revocations that the state of the forest asks for, by name of the donor: leaves above their goal,
// from which a claimant asks something back. Claimants are asked for only while there is a donor; holders are the pods
// of a leaf. Before each element of Victims is evicted, plan again from newer state: the new plan begins with
// it, or it is not needed.
func (r *Revoker) Plan(now time.Time, f *Forest, claimants func() []Claimant,
	holders func(*Quota) []Holder,
) []Revocation {
	var plans []Revocation
	var waiting []Claimant
	shares, since := f.Shares(), map[*Quota]time.Time{}
	for _, name := range slices.Sorted(maps.Keys(f.quotas)) {
		q := f.quotas[name]
		if q == f.system || q == f.fallback || len(q.children) > 0 {
			continue
		}
		levels := r.levels(f, shares, q)
		if len(levels) == 0 {
			continue
		}
		since[q] = now
		if earlier, known := r.since[q]; known {
			since[q] = earlier
		}
		plan := Revocation{Donor: q, Due: since[q].Add(r.delay), Levels: levels}
		if r.policy == OnDemand {
			if waiting == nil {
				waiting = claimants()
			}
			if plan.Claimant = claimantOf(shares, q, levels, waiting); plan.Claimant == nil {
				continue
			}
		}
		s := r.choose(levels, holders(q))
		plan.Victims, plan.Kept = s.victims(), s.kept()
		plans = append(plans, plan)
	}
	r.since = since
	return plans
}

// Admit reports whether the limits allow to evict so many pods of a quota now, and if so counts them as evicted.
func (r *Revoker) Admit(now time.Time, donor string, pods int) bool {
	r.evicted = slices.DeleteFunc(r.evicted, func(e eviction) bool { return now.Sub(e.at) >= time.Minute })
	own := 0
	for _, e := range r.evicted {
		if e.donor == donor {
			own++
		}
	}
	if exceeds(own+pods, r.limits.PerQuota) || exceeds(len(r.evicted)+pods, r.limits.PerMinute) {
		return false
	}
	for range pods {
		r.evicted = append(r.evicted, eviction{now, donor})
	}
	return true
}

// exceeds reports whether n is above a limit. A limit of 0 is none.
func exceeds(n, limit int) bool { return limit > 0 && n > limit }

// levels returns the dimensions in which a quota uses more than its goal. Shares are computed only for one that uses
// more than its runtime.
func (r *Revoker) levels(f *Forest, shares *Shares, q *Quota) []Level {
	var levels []Level
	for i := range q.cells {
		d := Dimension(i)
		used := q.Amount(Used, d)
		goal, named := f.Runtime(q, d)
		if !named || used <= goal {
			continue
		}
		if r.policy == OnDemand {
			goal = shares.Goal(q, d)
		}
		if used > goal {
			levels = append(levels, Level{Dimension: d, Used: used, Goal: goal})
		}
	}
	return levels
}

// claimantOf returns the first claimant that the donor can serve: its quota is of the same tree, has less than the
// whole units of its exact share, and asks for more, in a dimension in which the donor is above its goal; and no limit
// rejected it under which the donor does not count.
func claimantOf(shares *Shares, donor *Quota, levels []Level, claimants []Claimant) *Claimant {
	for i := range claimants {
		c, d := &claimants[i], claimants[i].Dimension
		q := shares.forest.live(c.Quota)
		if q == donor || q.top() != donor.top() || c.Level != nil && !donor.isWithin(c.Level) ||
			!slices.ContainsFunc(levels, func(l Level) bool { return l.Dimension == d }) {
			continue
		}
		exact, named := shares.Exact(q, d)
		if named && q.Amount(Used, d) < min(floor(exact), q.cells[d].limited()) {
			return c
		}
	}
	return nil
}

// top returns the quota at the top of q's tree.
func (q *Quota) top() *Quota {
	for q.parent != nil {
		q = q.parent
	}
	return q
}

// isWithin reports whether a quota is ancestor or below it.
func (q *Quota) isWithin(ancestor *Quota) bool {
	for n := q; n != nil; n = n.parent {
		if n == ancestor {
			return true
		}
	}
	return false
}
