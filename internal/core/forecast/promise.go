package forecast

import "time"

// Promise is when a unit was expected to start.
type Promise struct {
	// Early and Late are a range. Late is zero where only the earliest start was known.
	Early, Late time.Time
	// Learned says that the ends on which it depends were learned.
	Learned bool
}

// Off returns by how much a start missed the promise: negative where it was earlier, 0 within the range.
func (p Promise) Off(start time.Time) time.Duration {
	switch {
	case start.Before(p.Early):
		return start.Sub(p.Early)
	case !p.Late.IsZero() && start.After(p.Late):
		return start.Sub(p.Late)
	}
	return 0
}

// Promises are the first known estimates of units that wait, by name: the one that a user has planned with. It is not
// safe for concurrent use.
type Promises struct{ first map[string]Promise }

// Note records an estimate. A later one of the same unit does not replace it.
func (p *Promises) Note(unit string, estimate Promise) {
	if p.first == nil {
		p.first = map[string]Promise{}
	}
	if _, known := p.first[unit]; !known {
		p.first[unit] = estimate
	}
}

// Gone removes and returns the promises of units that do not wait any more.
func (p *Promises) Gone(waits func(unit string) bool) map[string]Promise {
	gone := map[string]Promise{}
	for unit, promise := range p.first {
		if !waits(unit) {
			gone[unit] = promise
			delete(p.first, unit)
		}
	}
	return gone
}
