package hooks

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestABindingCountsUntilItEnds(t *testing.T) {
	t.Parallel()
	b := NewBindings()
	for range 2 {
		end := b.Begin(false)
		if n := b.alone.Load(); n != 1 {
			t.Errorf("%d Bindings are on their way while one is", n)
		}
		end()
	}
	if n := b.alone.Load(); n != 0 {
		t.Errorf("%d Bindings are on their way after the last one has ended", n)
	}
}

// transport counts the requests under way, and ends them when end is closed.
type transport struct {
	running atomic.Int64
	end     chan struct{}
}

func (t *transport) RoundTrip(*http.Request) (*http.Response, error) {
	t.running.Add(1)
	<-t.end
	t.running.Add(-1)
	return &http.Response{}, nil
}

// TestBindingsOfALargeGangShareAConnection: a gang of 1,000 members is bound at once, and the API server takes 100
// requests on one connection.
func TestBindingsOfALargeGangShareAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &transport{end: make(chan struct{})}
		client := LimitBindings(server)
		request := func(ctx context.Context, method, path string) error {
			r, err := http.NewRequestWithContext(ctx, method, "https://server"+path, nil)
			if err != nil {
				return err
			}
			response, err := client.RoundTrip(r)
			if response != nil && response.Body != nil {
				err = errors.Join(err, response.Body.Close())
			}
			return err
		}
		const binding = "/api/v1/namespaces/n/pods/p/binding"
		for range 1000 {
			go func() {
				if err := request(t.Context(), http.MethodPost, binding); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		if n := server.running.Load(); n != BindingsInFlight {
			t.Errorf("got %d requests at a time, want %d", n, BindingsInFlight)
		}
		others, cancel := context.WithCancel(t.Context())
		go func() { _ = request(others, http.MethodGet, "/api/v1/pods") }()
		synctest.Wait()
		if n := server.running.Load(); n != BindingsInFlight+1 {
			t.Errorf("got %d requests with one that binds no pod", n)
		}
		cancel()
		if err := request(others, http.MethodPost, binding); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v for a request that has ended while it waited", err)
		}
		close(server.end)
		synctest.Wait()
		if n := server.running.Load(); n != 0 {
			t.Errorf("%d requests remain", n)
		}
	})
}

// slowServer takes a while for each request, as many as come.
type slowServer struct{}

const slowServerTakes = 10 * time.Millisecond

func (slowServer) RoundTrip(*http.Request) (*http.Response, error) {
	<-time.After(slowServerTakes)
	return &http.Response{Body: http.NoBody}, nil
}

// TestMembersAreBoundAsFastAsOtherPods: while such pods are bound all the time, a gang is bound in the time that the
// API server needs for it.
func TestMembersAreBoundAsFastAsOtherPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others, members = 1000, 200
		client := LimitBindings(slowServer{})
		var plain, gang sync.WaitGroup
		bind := func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://server/pods/p/binding", nil)
			if err != nil {
				t.Error(err)
				return
			}
			if answer, err := client.RoundTrip(r); err != nil || answer.Body.Close() != nil {
				t.Error(err)
			}
		}
		for i := range others { // 1,000 a second
			plain.Go(func() {
				<-time.After(time.Duration(i) * time.Millisecond)
				bind()
			})
		}
		<-time.After(100 * time.Millisecond)
		began := time.Now()
		for range members {
			gang.Go(bind)
		}
		gang.Wait()
		if took := time.Since(began); took > 4*slowServerTakes {
			t.Errorf("%d members were bound in %s, want %d at a time", members, took, BindingsInFlight)
		}
		plain.Wait()
	})
}

func TestWaitForABindingEndsWithTheContext(t *testing.T) {
	bindings := NewBindings()
	bindings.alone.Store(BindingsInFlight)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	bindings.Wait(ctx)
}
