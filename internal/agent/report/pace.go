package report

import "time"

// Limits of the writes of one node.
const (
	coalesce   = time.Second
	perMinute  = 12
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// pace decides when the next write may happen. It is plain state: the caller gives the time.
type pace struct {
	writes   []time.Time // of the last minute, ascending
	failures int         // attempts that failed since the last write
	failedAt time.Time   // when the last of them failed
}

// earliest returns when a change that was noticed at changed may be written.
func (p *pace) earliest(changed time.Time) time.Time {
	at := changed.Add(coalesce)
	if n := len(p.writes); n >= perMinute {
		at = later(at, p.writes[n-perMinute].Add(time.Minute))
	}
	if p.failures > 0 {
		at = later(at, p.failedAt.Add(p.backoff()))
	}
	return at
}

// backoff returns the pause after the last failure.
func (p *pace) backoff() time.Duration {
	return min(firstRetry<<min(p.failures-1, 6), lastRetry)
}

func (p *pace) failed(now time.Time) { p.failures, p.failedAt = p.failures+1, now }

func (p *pace) wrote(now time.Time) {
	p.failures = 0
	p.writes = append(p.writes, now)
	for p.writes[0].Before(now.Add(-time.Minute)) {
		p.writes = p.writes[1:]
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
