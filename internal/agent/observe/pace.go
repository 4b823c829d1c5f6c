package observe

import "time"

// Pace is how often a source is read: after a hint as soon as Least allows, otherwise at every resync, and after
// failures with growing pauses. The zero Pace reads at every Refresh.
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
	last     time.Time // when the source was last read; zero before
	next     time.Time // when it is to be read without a hint
	failures int       // readings that failed since the last good one
	hinted   bool      // a reading is asked for as soon as Least allows
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

// Hint asks for a reading as soon as Least allows, also during the pause after a failure. If that reading fails too,
// the pauses begin again with the shortest.
func (s *Source[T]) Hint() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace.hinted, s.pace.failures = true, 0
}

// Want is Hint for a change that does not suggest that a failing source can be read again: it shortens no pause.
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
