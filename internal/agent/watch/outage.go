package watch

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// minOutage is the shortest outage of the API server that is reported as an Event: a shorter one is the end of a watch.
const minOutage = 10 * time.Second

// outage is the current one, as far as it was reported; zero while the server answers.
type outage struct {
	mu          sync.Mutex // guards the fields below; never held across a call out
	from, until time.Time
}

// note takes the outcome of a request.
func (r *outage) note(o Options, err error) {
	if errors.Is(err, context.Canceled) {
		return // the caller did not wait for an answer
	}
	now, away := o.Clock.Now(), !answered(err)
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
		o.Lost(more.Seconds())
	}
	if !away && !from.IsZero() && now.Sub(from) >= minOutage {
		o.Back(from, now)
	}
}

// answered reports whether an error is the API server's own word; one that cannot serve has not answered.
func answered(err error) bool {
	var word apierrors.APIStatus
	return err == nil || errors.As(err, &word) && word.Status().Code < http.StatusInternalServerError
}
