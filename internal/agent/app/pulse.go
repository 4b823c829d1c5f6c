package app

import (
	"fmt"
	"sync/atomic"
	"time"
)

// patience is how long a loop may be stalled before only a restart can be expected to help.
const patience = 5 * time.Minute

// pulse is when a loop last did something; the zero value never did.
type pulse struct{ at atomic.Int64 }

func (p *pulse) beat(now time.Time) { p.at.Store(now.UnixNano()) }

// stalled returns for how long a loop has been stalled, if that is too long.
func (p *pulse) stalled(now time.Time, limit time.Duration) (time.Duration, bool) {
	at := p.at.Load()
	still := now.Sub(time.Unix(0, at))
	return still, at != 0 && still > limit
}

// Alive returns an error when a loop of Run has not moved for so long that only a restart can be expected to help.
func (a *Agent) Alive() error {
	now, limit := a.o.Clock.Now(), max(patience, 3*a.o.Resync)
	if still, yes := a.followed.stalled(now, limit); yes {
		return fmt.Errorf("the loop that follows the node has not moved for %v", still.Round(time.Second))
	}
	if still, yes := a.passed.stalled(now, limit); yes && a.writes() {
		return fmt.Errorf("the cgroup tree was last looked at %v ago", still.Round(time.Second))
	}
	return nil
}
