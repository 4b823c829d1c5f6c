package observe

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// SourceOptions are what a Source of T needs.
type SourceOptions[T any] struct {
	// Report sets the condition of the source: to hold, with the reason Failed and the error, while the last reading
	// failed; otherwise not to hold, with the reason Usable and Text.
	Report func(ctx context.Context, holds bool, reason, message string) error
	Failed string
	Usable string
	Text   string
	// Instead returns, for the end of that message, which value is in force while the last reading failed; nil for
	// none.
	Instead func() string
	// Excused reports whether one failure with an error, between two good readings, is not to be reported; nil excuses
	// none.
	Excused func(error) bool
	// Pace is how often the source is read; the zero Pace reads it at each Refresh.
	Pace  Pace
	Clock clock.PassiveClock
}

// Source is one thing that is read, and its last good value. Refresh has one caller at a time; the other methods are
// safe for concurrent use.
type Source[T any] struct {
	o SourceOptions[T]

	mu      sync.Mutex // guards the fields below; never held across a call out of the package
	value   T
	pace    paceState
	excused bool // a failure was excused since the last good reading
}

// NewSource returns a Source with the value that counts before the first good reading.
func NewSource[T any](value T, o SourceOptions[T]) *Source[T] { return &Source[T]{o: o, value: value} }

// Value returns the last good value. It must not be changed.
func (s *Source[T]) Value() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value
}

// Put replaces the value.
func (s *Source[T]) Put(value T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value = value
}

// Refresh reads the source where that is due, and reports how that went. The last good value goes into read; what read
// returns is the next one, also beside an error. The error of Refresh is what read or the report failed with.
func (s *Source[T]) Refresh(ctx context.Context, read func(last T) (T, error)) error {
	s.mu.Lock()
	due, last := s.o.Pace.due(&s.pace, s.o.Clock.Now()), s.value
	s.mu.Unlock()
	if !due {
		return nil
	}
	value, err := read(last)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the agent ends: not the source's fault
	}
	s.mu.Lock()
	s.value = value
	s.pace = s.o.Pace.next(s.pace, s.o.Clock.Now(), err)
	excused := err != nil && !s.excused && s.o.Excused != nil && s.o.Excused(err)
	s.excused = err != nil && (s.excused || excused)
	s.mu.Unlock()
	switch {
	case excused:
		return nil
	case err == nil:
		return s.o.Report(ctx, false, s.o.Usable, s.o.Text)
	}
	text := err.Error()
	if s.o.Instead != nil {
		text += ": " + s.o.Instead()
	}
	return errors.Join(err, s.o.Report(ctx, true, s.o.Failed, text))
}

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
