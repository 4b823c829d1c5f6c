package load

import "time"

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
