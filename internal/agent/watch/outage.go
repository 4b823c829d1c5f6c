package watch

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// minOutage is the shortest outage of the API server that is reported as an Event: a shorter one is the end of a watch.
const minOutage = 10 * time.Second

// note takes the outcome of a request.
func (a *API) note(err error) {
	if errors.Is(err, context.Canceled) {
		return // the caller did not wait for an answer
	}
	now, away := a.o.Clock.Now(), !answered(err)
	a.mu.Lock()
	from, more := a.from, time.Duration(0)
	switch {
	case away && from.IsZero():
		a.from, a.until = now, now
	case away:
		more, a.until = now.Sub(a.until), now
	case !from.IsZero():
		more, a.from = now.Sub(a.until), time.Time{}
	}
	a.mu.Unlock()
	if more > 0 {
		a.o.Lost(more.Seconds())
	}
	if !away && !from.IsZero() && now.Sub(from) >= minOutage {
		a.o.Back(from, now)
	}
}

// answered reports whether an error is the API server's own word; one that cannot serve has not answered.
func answered(err error) bool {
	var word apierrors.APIStatus
	return err == nil || errors.As(err, &word) && word.Status().Code < http.StatusInternalServerError
}
