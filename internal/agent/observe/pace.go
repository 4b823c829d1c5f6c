package observe

import "time"

// Pace is how often a source is read: at once when something points at a change, at every resync, and after failures
// with growing pauses. The zero Pace has no pauses.
type Pace struct {
	// Least is the time between two readings, whatever happens.
	Least time.Duration
	// Resync is the time between two readings of a source that answers.
	Resync time.Duration
}

// Pauses after failures.
const (
	firstPause = time.Second
	lastPause  = 2 * time.Minute
)

// paceState is what a Pace decides from.
type paceState struct {
	last, next time.Time
	failures   int
	hinted     bool
}

func (p Pace) due(s *paceState, now time.Time) bool {
	if p == (Pace{}) {
		return true
	}
	return !now.Before(s.last.Add(p.Least)) && (s.hinted || !now.Before(s.next))
}

// next is the state after a reading.
func (p Pace) next(s paceState, now time.Time, err error) paceState {
	if err == nil {
		return paceState{last: now, next: now.Add(p.Resync)}
	}
	pause := min(firstPause<<min(s.failures, 10), lastPause)
	return paceState{last: now, next: now.Add(pause), failures: s.failures + 1}
}

// Hint asks for a reading as soon as one may happen. It does not shorten the pause after a failure to nothing: the next
// reading is the first of a new series.
func (s *Source[T]) Hint() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace.hinted, s.pace.failures = true, 0
}

// Want is Hint for a change that says nothing about whether the source can be read again.
func (s *Source[T]) Want() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace.hinted = s.pace.hinted || s.pace.failures == 0
}

// Wait returns how long until a reading that is wanted may happen; false when none is wanted before the next resync.
func (s *Source[T]) Wait() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.o.Clock.Now()
	switch {
	case s.pace.hinted:
		return max(0, s.pace.last.Add(s.o.Pace.Least).Sub(now)), true
	case s.pace.failures > 0:
		return max(0, s.pace.next.Sub(now)), true
	}
	return 0, false
}
