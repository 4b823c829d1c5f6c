package app

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
)

// minOutage is the shortest outage of the API server that is reported as an Event: a shorter one is the end of a watch.
const minOutage = 10 * time.Second

// reach is whether the API server answers.
type reach struct {
	clock clock.PassiveClock
	// lost is called with the seconds that an outage lasted since the last call, back with an outage that is over.
	lost func(seconds float64)
	back func(from, to time.Time)

	mu          sync.Mutex // guards the fields below; never held across a call out
	from, until time.Time  // of the current outage, as far as it was reported; zero while the server answers
}

// note takes the outcome of a request.
func (r *reach) note(err error) {
	if errors.Is(err, context.Canceled) {
		return // the caller did not wait for an answer
	}
	now, away := r.clock.Now(), !answered(err)
	r.mu.Lock()
	from, more := r.from, time.Duration(0)
	switch {
	case away && from.IsZero():
		r.from, r.until = now, now
	case away:
		more, r.until = now.Sub(r.until), now
	case !from.IsZero():
		more, r.from = now.Sub(r.until), time.Time{}
	}
	r.mu.Unlock()
	if more > 0 {
		r.lost(more.Seconds())
	}
	if !away && !from.IsZero() && now.Sub(from) >= minOutage {
		r.back(from, now)
	}
}

// answered reports whether an error is the API server's own word; one that cannot serve has not answered.
func answered(err error) bool {
	var word apierrors.APIStatus
	return err == nil || errors.As(err, &word) && word.Status().Code < http.StatusInternalServerError
}
