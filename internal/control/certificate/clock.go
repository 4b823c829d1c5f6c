package certificate

import (
	"net/http"
	"sync/atomic"
	"time"
)

// Clock is that of the API server, by the Date of its last answer: it checks the certificates of webhooks, and replicas
// whose own clocks differ must not replace each other's.
type Clock struct{ ahead atomic.Int64 }

// Now returns the time. Before the first answer it is this machine's.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// Wrap is for rest.Config.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper { return &listener{c, next} }

type listener struct {
	*Clock
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (l *listener) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err == nil {
		if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			l.ahead.Store(int64(time.Until(date)))
		}
	}
	return resp, err
}
