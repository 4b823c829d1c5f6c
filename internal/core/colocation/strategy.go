package colocation

import (
	"time"

	"github.com/tenon-project/tenon/internal/core/amount"
)

// Strategy is how the resources of nodes are reclaimed, and when a Node is written.
type Strategy struct {
	Rules [amount.Resources]Rule
	// MidStatic gives mid pods a fixed share of the capacity. Else they get what prod pods are predicted not to use,
	// and MidUnallocatedPercent of what they have not requested.
	MidStatic             bool
	MidUnallocatedPercent int64
	// Degrade is the age at which a report grants nothing more.
	Degrade time.Duration
	// Update is the age at which a Node is written with any change; sooner with changes above DiffPermille of what it
	// shows.
	Update       time.Duration
	DiffPermille int64
}

// growth is the part of the capacity by which an amount grows in a growthTime.
const (
	growth     = 10
	growthTime = time.Minute
)

// Fresh reports whether what a report says may be granted. One from the future is as bad as an old one.
func (s *Strategy) Fresh(report, now time.Time) bool { return now.Sub(report).Abs() <= s.Degrade }

// Grant is what batch and mid pods may have of a node.
type Grant struct{ Batch, Mid amount.Pair }

// Shown is what a Node shows. Since is when it was written; zero for a Node that shows nothing.
type Shown struct {
	Grant
	Since time.Time
}

// Next returns what a Node is to show now. Amounts shrink at once to what they must, and grow by at most a tenth of the
// capacity in a minute. Small changes wait for the time of Update, as long as what is shown stays within the bound.
// write is false where the Node is left as it is; again is then when to ask once more, 0 for at the next report.
func (s *Strategy) Next(accounts Accounts, shown Shown, now time.Time) (g Grant, write bool,
	again time.Duration,
) {
	elapsed := min(max(now.Sub(shown.Since), 0), growthTime)
	differs, due := false, shown.Since.IsZero() || now.Sub(shown.Since) >= s.Update
	limited := false
	for r := range amount.Resources {
		a := &accounts[r]
		whole, minute, part := a.Capacity/growth, growthTime.Milliseconds(), elapsed.Milliseconds()
		step := whole/minute*part + whole%minute*part/minute
		for _, one := range []struct {
			target     *int64
			want, have int64
		}{{&g.Batch[r], a.Batch, shown.Batch[r]}, {&g.Mid[r], a.Mid, shown.Mid[r]}} {
			*one.target = min(one.want, one.have+step)
			limited = limited || one.want > one.have+step
			change := max(*one.target-one.have, one.have-*one.target)
			differs = differs || change > 0
			due = due || change > one.have/1000*s.DiffPermille+one.have%1000*s.DiffPermille/1000
		}
		due = due || shown.Batch[r] > a.Bound
	}
	switch {
	case shown.Since.IsZero(), differs && due:
		if limited {
			again = growthTime
		}
		return g, true, again
	case limited:
		return g, false, growthTime - elapsed
	case differs:
		return g, false, s.Update - now.Sub(shown.Since)
	}
	return g, false, 0
}
