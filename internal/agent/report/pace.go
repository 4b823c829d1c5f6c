package report

import "time"

// Limits of the writes of one node.
const (
	coalesce      = time.Second
	perMinute     = 12
	restoreEvery  = 30 * time.Second
	disputeWindow = 10 * time.Minute
	disputeCount  = 3
	firstRetry    = time.Second
	lastRetry     = time.Minute
)

// pace decides when the next write may happen. It is plain state: the caller gives the time.
type pace struct {
	writes   []time.Time // of the last minute, ascending
	restores []time.Time // of the last disputeWindow, ascending
	failures int
	failedAt time.Time
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

// nextRestore returns when content that vanished may be written again.
func (p *pace) nextRestore(now time.Time) time.Time {
	if n := len(p.restores); n > 0 {
		return later(now, p.restores[n-1].Add(restoreEvery))
	}
	return now
}

func (p *pace) backoff() time.Duration {
	return min(firstRetry<<min(p.failures-1, 6), lastRetry)
}

func (p *pace) failed(now time.Time) { p.failures, p.failedAt = p.failures+1, now }

func (p *pace) wrote(now time.Time) {
	p.failures = 0
	p.writes = append(since(p.writes, now.Add(-time.Minute)), now)
}

// restored counts a write of content that had vanished; true when another program keeps removing it.
func (p *pace) restored(now time.Time) (disputed bool) {
	p.restores = append(since(p.restores, now.Add(-disputeWindow)), now)
	return len(p.restores) >= disputeCount
}

// disputed reports whether another program removed our content several times lately.
func (p *pace) disputed(now time.Time) bool {
	return len(since(p.restores, now.Add(-disputeWindow))) >= disputeCount
}

func since(times []time.Time, from time.Time) []time.Time {
	for len(times) > 0 && times[0].Before(from) {
		times = times[1:]
	}
	return times
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
