package load

import (
	"time"

	"github.com/tenon-project/tenon/internal/core/amount"
)

// Rules are by which use a node is judged, and by which percentages of what it can allocate.
type Rules struct {
	Usage Percents
	// Prod is for production pods, by the use of production pods alone, and instead of the other percentages.
	Prod Percents
	// ProdWithSystem adds what is not of pods to the use of production pods.
	ProdWithSystem bool
	// Aggregated is by the measure AggregatedBy, instead of Usage.
	Aggregated   Percents
	AggregatedBy Measure
}

// Override is what a node says of its own. A group that is nil is as for all nodes.
type Override struct {
	Usage, Prod, Aggregated *Percents
	AggregatedBy            Measure
}

// Of returns the rules for a node.
func (r Rules) Of(o Override) Rules {
	if o.Usage != nil {
		r.Usage = *o.Usage
	}
	if o.Prod != nil {
		r.Prod = *o.Prod
	}
	if o.Aggregated != nil {
		r.Aggregated, r.AggregatedBy = *o.Aggregated, o.AggregatedBy
	}
	return r
}

// Excess is a resource of which a node would use more than its threshold, in percent.
type Excess struct {
	Resource             amount.Resource
	Percent, Threshold   int64
	ByProd, ByAggregated bool
}

// Exceeds returns the first resource whose use, rounded to a percent, is above the threshold, with the pod included in
// the view. A resource that the node does not have is not judged.
func (r Rules) Exceeds(v View, allocatable amount.Pair, prod bool) (Excess, bool) {
	found := Excess{ByProd: prod && !r.Prod.IsZero()}
	thresholds := r.Usage
	var use amount.Pair
	switch {
	case found.ByProd:
		thresholds, use = r.Prod, v.prodUse(r.ProdWithSystem)
	case !r.Aggregated.IsZero():
		thresholds, use, found.ByAggregated = r.Aggregated, v.Use(r.AggregatedBy), true
	case r.Usage.IsZero():
		return Excess{}, false
	default:
		use = v.Use(Measure{})
	}
	for i, threshold := range thresholds {
		if threshold == 0 || allocatable[i] <= 0 {
			continue
		}
		if percent := amount.Part(use[i], 100, allocatable[i], allocatable[i]/2); percent > threshold {
			found.Resource, found.Percent, found.Threshold = amount.Resource(i), percent, threshold
			return found, true
		}
	}
	return Excess{}, false
}

// prodUse returns what production pods use, with or without what no pod uses.
func (v View) prodUse(withSystem bool) amount.Pair {
	if withSystem {
		return v.ProdUse().Plus(v.System())
	}
	return v.ProdUse()
}

// Weights are how much each resource counts in a score.
type Weights struct {
	Resources Percents // weights, not percentages
	// Dominant is how much the resource counts of which the least is left.
	Dominant int64
}

// Scoring is by which use a node is scored.
type Scoring struct {
	Weights Weights
	By      Measure
	// Prod scores production pods by the use of production pods alone.
	Prod, ProdWithSystem bool
}

// Score returns the weighted mean of what is left of each resource, from 0 to 100, with the pod included in the view.
// Of a resource that the node does not have, nothing is left.
func (s Scoring) Score(v View, allocatable amount.Pair, prod bool) int64 {
	use := v.Use(s.By)
	if s.Prod && prod {
		use = v.prodUse(s.ProdWithSystem)
	}
	total, weights, least := int64(0), s.Weights.Dominant, int64(100)
	for r, weight := range s.Weights.Resources {
		left := int64(0)
		if allocatable[r] > use[r] {
			left = amount.Part(allocatable[r]-use[r], 100, allocatable[r], 0)
		}
		total, weights, least = total+weight*left, weights+weight, min(least, left)
	}
	if weights == 0 {
		return 0
	}
	return (total + s.Weights.Dominant*least) / weights
}

// Expiry is what becomes of a report that is too old.
type Expiry struct {
	After time.Duration // 0 for never
	// Ignore counts an old report as a fresh one in the check of thresholds.
	Ignore bool
	// Pass lets pods pass the check where the report is old.
	Pass bool
}

// Outcome is what a report is good for.
type Outcome uint8

// Outcomes.
const (
	Counts  Outcome = iota // the report counts
	Skipped                // there is nothing to check by
	Refused                // the node is refused for its old report
)

// Check returns what the last report of a node is good for. Without a report, nothing is checked.
func (e Expiry) Check(r *Report, now time.Time) Outcome {
	switch {
	case r == nil:
		return Skipped
	case e.Ignore || !e.expires(r, now):
		return Counts
	case e.Pass:
		return Skipped
	}
	return Refused
}

// Scores reports whether the last report of a node can be scored by. A node without one, or with an old one, gets 0.
func (e Expiry) Scores(r *Report, now time.Time) bool { return r != nil && !e.expires(r, now) }

// expires reports whether a report is too old, or was never made.
func (e Expiry) expires(r *Report, now time.Time) bool {
	return r.Updated.IsZero() || e.After > 0 && now.Sub(r.Updated) >= e.After
}
