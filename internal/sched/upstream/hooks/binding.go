package hooks

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
)

const (
	// BindingsInFlight bounds the Bindings on their way to the API server, and those of pods that start alone which are
	// begun. With more, the scheduling cycle, which is several times faster than writes while a batch lasts, would pile
	// up goroutines with all that a cycle knows; and the API server takes 100 requests on one connection, watches
	// included: beyond, each costs a TLS handshake.
	BindingsInFlight = 80
	// maxMembersBinding bounds the members of gangs whose Bindings are begun while other pods are scheduled. The
	// members of a gang are begun together, so the bound is that of several large gangs.
	maxMembersBinding = 1000
)

// Bindings counts the Bindings that are begun and not ended. Any goroutine may call its methods, apart from Wait.
type Bindings struct {
	alone, members atomic.Int64  // of pods that start alone, and of members of gangs
	ended          chan struct{} // has a token after a Binding has ended; only Wait reads it
}

// NewBindings returns a counter of no Bindings.
func NewBindings() *Bindings { return &Bindings{ended: make(chan struct{}, 1)} }

// Begin counts a Binding until the function that it returns is called.
func (b *Bindings) Begin(ofMember bool) (end func()) {
	count := &b.alone
	if ofMember {
		count = &b.members
	}
	count.Add(1)
	return func() {
		count.Add(-1)
		select {
		case b.ended <- struct{}{}:
		default:
		}
	}
}

// LimitBindings lets BindingsInFlight requests through at a time that bind a pod, in the order in which they come.
func LimitBindings(next http.RoundTripper) http.RoundTripper {
	return limited{next, make(chan struct{}, BindingsInFlight)}
}

// limited is a transport on which few Bindings are under way at a time. slots has a token for each.
type limited struct {
	http.RoundTripper
	slots chan struct{}
}

// RoundTrip sends a request. A Binding waits for a slot, at most until its context ends.
func (l limited) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodPost || !strings.HasSuffix(request.URL.Path, "/binding") {
		return l.RoundTripper.RoundTrip(request)
	}
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
		return l.RoundTripper.RoundTrip(request)
	case <-request.Context().Done():
		return nil, request.Context().Err()
	}
}

// Wait returns when there is room for another Binding, or when ctx ends. Only the scheduling loop may call it.
func (b *Bindings) Wait(ctx context.Context) {
	for b.alone.Load() >= BindingsInFlight || b.members.Load() >= maxMembersBinding {
		select {
		case <-b.ended:
		case <-ctx.Done():
			return
		}
	}
}
